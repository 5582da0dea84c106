//! Measures images per second delivered as tch tensors. The variants take turns in every round.
//!
//! ```text
//! cargo bench --bench images -- PATH [ROUNDS [BATCH]]      # photographs; 5 rounds, batches of 64
//! ```
//!
//! Each variant is measured with and without tensors. Without a GPU, the variants are `u8` batches
//! (N, 224, 224, 3) and `f32` batches (N, 3, 224, 224) in host memory. With the `cuda` feature and
//! a GPU, they are `f16` batches (N, 3, 224, 224) in device memory, on libtorch's stream and on a
//! separate stream, and page-locked `u8` batches, whose tensors are uploaded. Every image is
//! randomly cropped, resized and flipped. An epoch on a GPU has at least 10,000 images, and is
//! timed until all queued work is done. The benchmark prints medians of images per second, and
//! ratios of medians.

use std::time::Instant;

#[cfg(feature = "cuda")]
use tch::{Device, Tensor};
use warpfeed::{Augment, Batches, Dtype, Layout, Loader, Normalize};
use warpfeed_tch::ToTch;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(path) = arguments.first() else {
        println!("usage: cargo bench --bench images -- PATH [ROUNDS [BATCH]]   (PATH is a dataset of photographs)");
        return Ok(());
    };
    let rounds = arguments.get(1).map_or(Ok(5), |n| n.parse())?;
    let batch = arguments.get(2).map_or(Ok(64), |n| n.parse())?;
    let loader = || Loader::new(path).batch_size(batch).shuffle(42).augment(Augment::train(224));
    println!("batches of {batch}, medians of {rounds} rounds");
    #[cfg(feature = "cuda")]
    if warpfeed::cuda::available().is_ok() {
        return on_the_gpu(loader, warpfeed::source::open(path)?.len() as u64, rounds);
    }
    let mut bytes = loader().host()?;
    let mut floats = loader().dtype(Dtype::F32).layout(Layout::Nchw).normalize(Normalize::IMAGENET).host()?;
    print(["u8", "f32"], rounds, |round| {
        Ok([
            epoch(&mut bytes, round, drop, || ())?,
            epoch(&mut bytes, round, tensors, || ())?,
            epoch(&mut floats, round, drop, || ())?,
            epoch(&mut floats, round, tensors, || ())?,
        ])
    })
}

/// Calls `round` repeatedly. For each variant, prints the median rate without tensors, the median
/// rate with tensors, and their ratio.
fn print<const PATHS: usize, const RATES: usize>(
    paths: [&str; PATHS],
    rounds: u64,
    mut round: impl FnMut(u64) -> Result<[f64; RATES]>,
) -> Result<()> {
    let mut rates = [const { Vec::new() }; RATES];
    for number in 0..=rounds {
        let now = round(number)?;
        // The first round is a warm-up.
        if number > 0 {
            rates.iter_mut().zip(now).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    for (path, pair) in paths.iter().zip(medians.chunks(2)) {
        println!("{path:38}: loader {:6.0}   tensors {:6.0}   ratio {:.3}", pair[0], pair[1], pair[1] / pair[0]);
    }
    Ok(())
}

fn tensors(batch: impl ToTch) {
    drop(std::hint::black_box(batch.to_tch().expect("the images have labels")));
}

/// Returns the images per second of a pass over the batches. `done` waits for all queued work.
fn epoch<B>(batches: &mut Batches<B>, epoch: u64, take: impl Fn(B), done: impl Fn()) -> Result<f64> {
    let (began, images) = (Instant::now(), batches.epoch_len(epoch));
    for batch in batches.epoch(epoch) {
        take(batch?);
    }
    done();
    Ok(images as f64 / began.elapsed().as_secs_f64())
}

#[cfg(feature = "cuda")]
fn on_the_gpu(loader: impl Fn() -> Loader, samples: u64, rounds: u64) -> Result<()> {
    let loader = || loader().repeat(10_000u64.div_ceil(samples));
    let floats = || loader().dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
    let mut ours = floats().cuda(&warpfeed_tch::stream(0)?)?;
    let mut separate = floats().cuda(&warpfeed::cuda::stream(0)?)?;
    let mut host = loader().pinned(true).host()?;
    let done = || tch::Cuda::synchronize(0);
    let upload = |batch: warpfeed::HostBatch| {
        let (images, labels) = batch.to_tch().expect("the images have labels");
        let upload = |tensor: Tensor| tensor.to_device_(Device::Cuda(0), tensor.kind(), true, false);
        drop(std::hint::black_box((upload(images), upload(labels))));
    };
    let paths =
        ["f16 on the device, libtorch's stream", "f16 on the device, separate stream", "u8 page-locked, uploaded"];
    print(paths, rounds, |round| {
        Ok([
            epoch(&mut ours, round, drop, done)?,
            epoch(&mut ours, round, tensors, done)?,
            epoch(&mut separate, round, drop, done)?,
            epoch(&mut separate, round, tensors, done)?,
            epoch(&mut host, round, drop, done)?,
            epoch(&mut host, round, upload, done)?,
        ])
    })
}
