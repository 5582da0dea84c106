//! Trains a small network on the CPU, from an LMDB that the program packs itself.
//!
//! ```text
//! cargo run --release --example train [-- EPOCHS]
//! ```
//!
//! The first run generates images in `datasets/generated`. The exit code is 0 if the loss has
//! fallen and the held-out accuracy is well above chance, and 1 otherwise. On a given machine,
//! every run computes the same losses, for any number of workers.

mod net;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use warpfeed::pack::Pack;
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize};
use warpfeed_synth::Synth;

const SIDE: u32 = 32;
const CLASSES: usize = 6;

/// Maximum loss of the last epoch, relative to the first. A run of two epochs reaches 0.47.
const MAX_LOSS_RATIO: f32 = 0.7;
/// Minimum held-out accuracy. Guessing gives 0.17, and a run of two epochs gives 0.83.
const MIN_ACCURACY: f64 = 0.6;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let epochs = match std::env::args().nth(1) {
        Some(n) => n.parse().map_err(|_| format!("`{n}` is not a number of epochs"))?,
        None => 8u64,
    };
    if epochs < 2 {
        return Err("at least 2 epochs are needed to see whether the loss falls".into());
    }
    println!("training a small network for {epochs} epochs");
    let train = dataset("train", 2400, 1)?;
    let test = dataset("test", 480, 2)?;

    let normalized_loader =
        |path: &Path| Loader::new(path).dtype(Dtype::F32).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
    let mut batches = normalized_loader(&train)
        .batch_size(64)
        .shuffle(42)
        .augment(Augment::train(SIDE).scale(0.5, 1.0))
        .workers(2)
        .pinned(true)
        .prefetch(4)
        .host()?;
    let mut held_out = normalized_loader(&test).batch_size(64).augment(Augment::eval(SIDE, SIDE)).host()?;

    let mut net = net::Net::new(CLASSES);
    println!("{} images of {} classes; {}", batches.source_len(), batches.classes().len(), batches.memory_plan());
    let (mut losses, mut held_out_accuracy) = (Vec::new(), 0.0);
    for epoch in 0..epochs {
        let rate = 0.05 * (1.0 - epoch as f32 / epochs as f32);
        let loss = train_epoch(&mut net, &mut batches, epoch, rate)?;
        held_out_accuracy = accuracy(&mut net, &mut held_out)?;
        println!("epoch {epoch}: loss {loss:.3}, held-out accuracy {:.1}%", 100.0 * held_out_accuracy);
        losses.push(loss);
    }
    println!("\n{}", batches.stats());

    let (first, last) = (losses[0], losses[losses.len() - 1]);
    // This comparison is false for NaN.
    let has_fallen = last < MAX_LOSS_RATIO * first;
    if !has_fallen {
        return Err(format!(
            "the loss went from {first:.3} to {last:.3}, expected less than {MAX_LOSS_RATIO} of the first"
        )
        .into());
    }
    if held_out_accuracy <= MIN_ACCURACY {
        let (actual, expected) = (100.0 * held_out_accuracy, 100.0 * MIN_ACCURACY);
        return Err(format!("the held-out accuracy is {actual:.1}%, expected more than {expected:.1}%").into());
    }
    println!(
        "the loss fell from {first:.3} to {last:.3}, and {:.1}% are classified correctly",
        100.0 * held_out_accuracy
    );
    Ok(())
}

fn train_epoch(net: &mut net::Net, batches: &mut Batches<HostBatch>, epoch: u64, rate: f32) -> Result<f32> {
    let total = batches.num_batches(epoch);
    let start_stats = batches.stats();
    let (mut sum, mut count) = (0.0, 0_u16);
    let shows_progress = std::io::stderr().is_terminal();
    let mut epoch = batches.epoch(epoch);
    while let Some(batch) = epoch.next() {
        let batch = batch?;
        let images = batch.images().as_f32().expect("the loader delivers f32");
        sum += net.train(images, batch.labels()?, SIDE as usize, rate);
        count += 1;
        if shows_progress {
            let stats = epoch.stats().since(&start_stats);
            eprint!(
                "\r{count:>4} of {total} batches, {:.0} images/s, waited {:.1}% of the time, loss {:.3}\x1b[K",
                stats.samples_per_second(),
                100.0 * stats.stall_fraction(),
                sum / f32::from(count)
            );
        }
    }
    if shows_progress {
        eprintln!();
    }
    Ok(sum / f32::from(count))
}

fn accuracy(net: &mut net::Net, batches: &mut Batches<HostBatch>) -> Result<f64> {
    let (mut correct_count, mut count) = (0, 0);
    for batch in batches.epoch(0) {
        let batch = batch?;
        let images = batch.images().as_f32().expect("the loader delivers f32");
        let predicted = net.classify(images, SIDE as usize);
        correct_count += predicted.iter().zip(batch.labels()?).filter(|(a, b)| a == b).count();
        count += batch.len();
    }
    Ok(correct_count as f64 / count as f64)
}

fn dataset(name: &str, images: usize, seed: u64) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("datasets").join("generated").join(name);
    let lmdb = folder.with_extension("lmdb");
    if !lmdb.exists() {
        if !folder.exists() {
            println!("generating {images} images in {}", folder.display());
            Synth::new().images(images).classes(CLASSES).side(64).seed(seed).write(&folder)?;
        }
        let report = Pack::new(&*warpfeed::source::open(&folder)?).to(&lmdb)?;
        println!("packed {} images into {}", report.samples, lmdb.display());
    }
    Ok(lmdb)
}
