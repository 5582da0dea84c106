//! Adds a random transform that gives the same result for any number of workers.
//!
//! ```text
//! cargo run --release --example custom_transform [DATASET]
//! ```

use warpfeed::sampler::Rng;
use warpfeed::transform::ImageMut;
use warpfeed::{Augment, Loader, Result};

/// A transform that adds a random number from -`STRENGTH` to `STRENGTH` to every channel value.
fn grain(image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
    const STRENGTH: u64 = 24;
    for value in image.data_mut() {
        *value = value.saturating_add_signed(rng.below(2 * STRENGTH + 1) as i8 - STRENGTH as i8);
    }
    Ok(())
}

fn main() -> Result<()> {
    let path =
        std::env::args().nth(1).unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/mini").into());
    let loader = Loader::new(path).augment(Augment::train(64)).transform(grain).batch_size(16).shuffle(7);
    let checksum = |loader: Loader| -> Result<u64> {
        let mut sum = 0u64;
        for batch in loader {
            for byte in batch?.images().bytes() {
                sum = sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
            }
        }
        Ok(sum)
    };
    println!("1 worker:  {:016x}", checksum(loader.clone().workers(1))?);
    println!("4 workers: {:016x}", checksum(loader.workers(4))?);
    Ok(())
}
