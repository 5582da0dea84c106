//! Compares the wait for the first batch of an epoch with the waits for its other batches, for
//! datasets of 64, 500 and 50,000 samples. The batches are in host memory. With the `cuda` feature
//! and a GPU, batches in device memory are measured as well.
//!
//! ```text
//! cargo bench --bench border
//! WARPFEED_PHOTOS=PHOTOGRAPHS cargo bench --bench border    # with your own images instead of generated ones
//! ```
//!
//! "Ahead" is the default loader, which prepares the next epoch before the current one ends. "On
//! request" is the same loader with `epochs(0)`. The two loaders are measured alternately, each
//! with two consumers. The first does no work, so the loader is the bottleneck. The second sleeps
//! after each batch for 1.5 times as long as loading takes, so the consumer is the bottleneck. A
//! wait is the time from requesting a batch until it is available. For a device batch, it includes
//! synchronizing the consumer's stream.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use warpfeed::source::open;
use warpfeed::{Augment, Batches, Loader};
use warpfeed_synth::Synth;

/// Number of samples, batch size, and number of epochs in each round.
const SETS: [(u64, usize, u64); 4] = [(64, 32, 24), (500, 256, 12), (500, 500, 12), (50_000, 256, 3)];
const ROUNDS: usize = 3;

/// Waits in seconds, at epoch boundaries and inside epochs.
#[derive(Default)]
struct Waits {
    border: Vec<f64>,
    inside: Vec<f64>,
}

fn main() {
    let root = tempfile::tempdir().unwrap();
    let generated_folder = root.path().join("few");
    let source = match std::env::var_os("WARPFEED_PHOTOS") {
        Some(photos) => open(photos).unwrap(),
        None => {
            Synth::new().images(500).side(160).write(&generated_folder).unwrap();
            open(&generated_folder).unwrap()
        }
    };
    let loader = |(samples, batch, _): (u64, usize, u64)| {
        let images = source.len() as u64;
        let loader = Loader::source(source.clone()).subset((0..samples).map(|i| i % images)).shuffle(1);
        loader.batch_size(batch).augment(Augment::train(64))
    };
    for set in SETS {
        let host = |loader: Loader| {
            let mut batches = loader.host().unwrap();
            move |set, step_time| measure_waits(&mut batches, set, step_time, &mut |_| ())
        };
        compare("host", set, |epochs| host(loader(set).epochs(epochs)));
        #[cfg(feature = "cuda")]
        if let Ok(stream) = warpfeed::cuda::stream(0) {
            let device = |loader: Loader| {
                let loader = loader.decode_on(warpfeed::DecodeOn::Gpu);
                let (mut batches, stream) = (loader.cuda(&stream).unwrap(), stream.clone());
                move |set, step_time| {
                    measure_waits(&mut batches, set, step_time, &mut |_| stream.synchronize().unwrap())
                }
            };
            compare("device", set, |epochs| device(loader(set).epochs(epochs)));
        }
    }
}

type Set = (u64, usize, u64);

/// Measures a dataset with and without prepared epochs. `open_loader` takes the value of
/// `Loader::epochs`: `u64::MAX` prepares the next epoch in advance, and 0 does not.
fn compare<F: FnMut(Set, Duration) -> Waits>(place: &str, set: Set, open_loader: impl Fn(u64) -> F) {
    let (samples, batch, epochs) = set;
    println!("\n{samples} samples, batches of {batch}, {epochs} epochs, {ROUNDS} rounds, {place}");
    let mut loaders = [("ahead", open_loader(u64::MAX)), ("on request", open_loader(0))];
    // Warm up the "on request" loader and measure the time per batch.
    let start = Instant::now();
    let warm_up_waits = loaders[1].1((samples, batch, 2), Duration::ZERO);
    let batch_time = start.elapsed() / (warm_up_waits.border.len() + warm_up_waits.inside.len() + 1) as u32;
    for (name, step) in [("no step", Duration::ZERO), ("step = 1.5x batch time", batch_time.mul_f64(1.5))] {
        let mut totals: [Waits; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (total, (_, measure)) in totals.iter_mut().zip(&mut loaders) {
                let Waits { border, inside } = measure(set, step);
                total.border.extend(border);
                total.inside.extend(inside);
            }
        }
        // One-batch epochs have no waits inside them. For these, compare with the time per batch.
        for (waits, (epochs_mode, _)) in totals.iter().zip(&loaders) {
            let border = median(&waits.border);
            let inside_wait = median(&waits.inside).unwrap_or(batch_time.as_secs_f64());
            println!(
                "  {name:<22}{epochs_mode:<12} border {:>8.3} ms, inside {:>8.3} ms: {:>6.2}; (border + step) / (inside + step) {:.2}",
                1e3 * border.unwrap_or(0.0),
                1e3 * inside_wait,
                border.unwrap_or(0.0) / inside_wait,
                (border.unwrap_or(0.0) + step.as_secs_f64()) / (inside_wait + step.as_secs_f64()),
            );
        }
    }
}

/// Measures the waits of a consumer that sleeps for `step` after each batch. `wait_until_available`
/// blocks until the batch is available.
fn measure_waits<B>(
    batches: &mut Batches<B>,
    (_, _, epochs): Set,
    step: Duration,
    wait_until_available: &mut dyn FnMut(&B),
) -> Waits {
    let mut waits = Waits::default();
    for epoch in 0..epochs {
        let mut request_time = Instant::now();
        let mut is_first = true;
        for batch in batches.epoch(epoch) {
            let batch = batch.unwrap();
            wait_until_available(&batch);
            if epoch > 0 || !is_first {
                let target_waits = if is_first { &mut waits.border } else { &mut waits.inside };
                target_waits.push(request_time.elapsed().as_secs_f64());
            }
            std::thread::sleep(step);
            drop(batch);
            (request_time, is_first) = (Instant::now(), false);
        }
    }
    waits
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
