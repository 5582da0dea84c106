//! A real training loop on the CPU, fed from an LMDB that the crate packed itself.
//!
//! ```text
//! cargo run --release --example train [-- EPOCHS]
//! ```
//!
//! It draws its own pictures into `datasets/generated` the first time.

mod net;

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use warpfeed::pack::Pack;
use warpfeed::pack::synth::Synth;
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize, Result};

const SIDE: u32 = 32;
const CLASSES: usize = 6;

fn main() -> Result<()> {
    let epochs: u64 = std::env::args().nth(1).map_or(8, |n| n.parse().expect("a number of epochs"));
    let train = data_set("train", 2400, 1)?;
    let test = data_set("test", 480, 2)?;

    let normalized =
        |path: &Path| Loader::new(path).dtype(Dtype::F32).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
    let mut batches = normalized(&train)
        .batch(64)
        .shuffle(42)
        .augment(Augment::train(SIDE).scale(0.5, 1.0))
        .workers(2)
        .pinned(true)
        .prefetch(4)
        .host()?;
    let mut held_out = normalized(&test).batch(64).augment(Augment::eval(SIDE, SIDE)).host()?;

    let mut net = net::Net::new(CLASSES);
    println!("{} pictures of {} classes; {}", batches.samples(), batches.classes().len(), batches.plan());
    for epoch in 0..epochs {
        let rate = 0.05 * (1.0 - epoch as f32 / epochs as f32);
        let loss = train_epoch(&mut net, &mut batches, epoch, rate)?;
        println!(
            "epoch {epoch}: loss {loss:.3}, held-out accuracy {:.1} %",
            100.0 * accuracy(&mut net, &mut held_out)?
        );
    }
    println!("\n{}", batches.stats());
    Ok(())
}

/// Trains over one epoch and returns its mean loss.
fn train_epoch(net: &mut net::Net, batches: &mut Batches<HostBatch>, epoch: u64, rate: f32) -> Result<f32> {
    let bar = ProgressBar::new(batches.batches(epoch));
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").expect("a valid template"));
    let before = batches.stats();
    let (mut sum, mut count) = (0.0, 0.0);
    let mut epoch = batches.epoch(epoch);
    while let Some(batch) = epoch.next() {
        let batch = batch?;
        let images = batch.images().as_f32().expect("the loader was asked for f32");
        sum += net.train(images, batch.labels()?, SIDE as usize, rate);
        count += 1.0;
        let stats = epoch.stats().since(&before);
        bar.set_message(format!(
            "{:.0} images/s, waited {:.1} % of the time, loss {:.3}",
            stats.samples_per_second(),
            100.0 * stats.stall_fraction(),
            sum / count
        ));
        bar.inc(1);
    }
    bar.finish();
    Ok(sum / count)
}

/// The share of held-out pictures that the net names rightly.
fn accuracy(net: &mut net::Net, batches: &mut Batches<HostBatch>) -> Result<f64> {
    let (mut right, mut all) = (0, 0);
    for batch in batches.epoch(0) {
        let batch = batch?;
        let images = batch.images().as_f32().expect("the loader was asked for f32");
        let named = net.classify(images, SIDE as usize);
        right += named.iter().zip(batch.labels()?).filter(|(a, b)| a == b).count();
        all += batch.len();
    }
    Ok(right as f64 / all as f64)
}

/// The LMDB `name`, made if it is not there: pictures drawn into class folders, then packed.
fn data_set(name: &str, images: usize, seed: u64) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/generated").join(name);
    let lmdb = folder.with_extension("lmdb");
    if !lmdb.exists() {
        if !folder.exists() {
            println!("drawing {images} pictures into {}", folder.display());
            Synth::new().images(images).classes(CLASSES).side(64).seed(seed).write(&folder)?;
        }
        let report = Pack::new(&*warpfeed::source::open(&folder)?).to(&lmdb)?;
        println!("packed {} pictures into {}", report.samples, lmdb.display());
    }
    Ok(lmdb)
}
