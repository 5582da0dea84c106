//! Measures images per second delivered as candle tensors. The variants take turns in every round.
//!
//! ```text
//! cargo bench --bench images -- PATH [ROUNDS [BATCH]]      # photographs; 5 rounds, batches of 64
//! ```
//!
//! Each variant is measured with and without conversion to tensors. Without a GPU, the variants are
//! `u8` batches (N, 224, 224, 3) and `f32` batches (N, 3, 224, 224) in host memory. With the `cuda`
//! feature and a GPU, they are `f16` batches (N, 3, 224, 224) in device memory, on candle's stream
//! and on a separate stream, and page-locked `u8` batches, which are uploaded. Every image is
//! randomly cropped, resized and flipped. The benchmark prints medians of images per second, and
//! ratios of medians.

use std::time::Instant;

use candle_core::Device;
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize};
use warpfeed_candle::ToCandle;

const SIDE: u32 = 224;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(path) = arguments.first() else {
        println!("usage: cargo bench --bench images -- PATH [ROUNDS [BATCH]]   (PATH is a dataset of photographs)");
        return Ok(());
    };
    let rounds = arguments.get(1).map_or(Ok(5), |n| n.parse())?;
    let batch = arguments.get(2).map_or(Ok(64), |n| n.parse())?;
    let loader = || Loader::new(path).batch_size(batch).shuffle(42).augment(Augment::train(SIDE));
    let mut bytes = loader().host()?;
    let mut floats = loader().dtype(Dtype::F32).layout(Layout::Nchw).normalize(Normalize::IMAGENET).host()?;
    #[cfg(feature = "cuda")]
    if warpfeed::cuda::available().is_ok() {
        return measure_on_gpu(loader, warpfeed::source::open(path)?.len() as u64, rounds);
    }
    println!("batches of {batch}, medians of {rounds} rounds");

    let mut rates: [Vec<f64>; 4] = Default::default();
    for round in 0..=rounds {
        let round_rates = [
            epoch(&mut bytes, round, false)?,
            epoch(&mut bytes, round, true)?,
            epoch(&mut floats, round, false)?,
            epoch(&mut floats, round, true)?,
        ];
        // The first round is a warm-up.
        if round > 0 {
            rates.iter_mut().zip(round_rates).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let [u8s, u8_tensors, f32s, f32_tensors] = rates.map(median);
    println!("u8   loader {u8s:6.0}   tensors {u8_tensors:6.0}   ratio {:.3}", u8_tensors / u8s);
    println!("f32  loader {f32s:6.0}   tensors {f32_tensors:6.0}   ratio {:.3}", f32_tensors / f32s);
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn epoch(batches: &mut Batches<HostBatch>, epoch: u64, to_tensors: bool) -> Result<f64> {
    let (began, mut images) = (Instant::now(), 0);
    for batch in batches.epoch(epoch) {
        let batch = batch?;
        images += batch.len();
        if to_tensors {
            std::hint::black_box(batch.to_candle(&Device::Cpu)?);
        } else {
            std::hint::black_box((batch.images().bytes(), batch.labels()?));
        }
    }
    Ok(images as f64 / began.elapsed().as_secs_f64())
}

/// Measures device batches and page-locked batches on the first GPU. An epoch repeats the dataset
/// until it has at least 10,000 images, and drops an incomplete last batch. It is timed until all
/// queued work is done.
#[cfg(feature = "cuda")]
fn measure_on_gpu(loader: impl Fn() -> Loader, samples: u64, rounds: u64) -> Result<()> {
    let device = Device::new_cuda_with_stream(0)?;
    let (stream, separate_stream) = (warpfeed_candle::stream(&device)?, warpfeed::cuda::stream(0)?);
    let loader = || loader().repeat(10_000u64.div_ceil(samples)).last_batch(warpfeed::LastBatch::Drop);
    let floats = || loader().dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
    let (mut on_candle_stream, mut on_separate_stream) = (floats().cuda(&stream)?, floats().cuda(&separate_stream)?);
    let mut host = loader().pinned(true).host()?;
    let synchronize = || -> Result<()> {
        stream.synchronize()?;
        Ok(separate_stream.synchronize()?)
    };
    let mut rates: [Vec<f64>; 6] = Default::default();
    for round in 0..=rounds {
        let round_rates = [
            timed_epoch(&mut on_candle_stream, round, |batch| Ok(batch.len()), synchronize)?,
            timed_epoch(
                &mut on_candle_stream,
                round,
                |batch| tensors(&batch, &device).map(|()| batch.len()),
                synchronize,
            )?,
            timed_epoch(&mut on_separate_stream, round, |batch| Ok(batch.len()), synchronize)?,
            timed_epoch(
                &mut on_separate_stream,
                round,
                |batch| tensors(&batch, &device).map(|()| batch.len()),
                synchronize,
            )?,
            timed_epoch(&mut host, round, |batch| Ok(batch.len()), synchronize)?,
            timed_epoch(&mut host, round, |batch| tensors(&batch, &device).map(|()| batch.len()), synchronize)?,
        ];
        if round > 0 {
            rates.iter_mut().zip(round_rates).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let medians = rates.map(median);
    let paths =
        ["f16 on the device, candle's stream", "f16 on the device, separate stream", "u8 page-locked, uploaded"];
    for (path, pair) in paths.iter().zip(medians.chunks(2)) {
        println!("{path:36}: loader {:6.0}   tensors {:6.0}   ratio {:.3}", pair[0], pair[1], pair[1] / pair[0]);
    }
    Ok(())
}

#[cfg(feature = "cuda")]
fn tensors(batch: &impl ToCandle, device: &Device) -> Result<()> {
    std::hint::black_box(batch.to_candle(device)?);
    Ok(())
}

/// Returns the images per second of an epoch. `consume` takes a batch and returns its number of
/// images, and `synchronize` waits for all queued work.
#[cfg(feature = "cuda")]
fn timed_epoch<B>(
    batches: &mut Batches<B>,
    epoch: u64,
    consume: impl Fn(B) -> Result<usize>,
    synchronize: impl Fn() -> Result<()>,
) -> Result<f64> {
    let (began, mut images) = (Instant::now(), 0);
    for batch in batches.epoch(epoch) {
        images += consume(batch?)?;
    }
    synchronize()?;
    Ok(images as f64 / began.elapsed().as_secs_f64())
}
