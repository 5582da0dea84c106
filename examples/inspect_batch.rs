//! Prints the shapes, types, labels and keys of a batch, and the memory and time that loading
//! takes.
//!
//! ```text
//! cargo run --release --example inspect_batch [DATASET]
//! ```

use warpfeed::{Augment, Dtype, Layout, Loader, Normalize, Result};

fn main() -> Result<()> {
    let path =
        std::env::args().nth(1).unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/mini").into());
    let mut batches = Loader::new(path)
        .batch_size(8)
        .shuffle(42)
        .augment(Augment::train(64))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F16)
        .layout(Layout::Nchw)
        .workers(2)
        .host()?;
    println!("{} samples, classes {:?}", batches.source_len(), batches.classes());
    println!("{}", batches.memory_plan());

    let batch = batches.epoch(0).next().expect("the dataset is not empty")?;
    println!("images {:?}", batch.images());
    let values = batch.images().as_f16().expect("the loader delivers f16");
    println!("first values {:?}", &values[..4]);
    for ((id, key), label) in batch.ids().zip(batch.sample_keys()).zip(batch.labels()?) {
        println!("  sample {id:>4}  label {label}  {key}");
    }
    println!("{}", batches.stats());
    Ok(())
}
