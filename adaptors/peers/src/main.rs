//! Compares warpfeed with candle's and burn's own loaders: images per second, from an image folder
//! to CPU tensors. The loaders take turns in every round.
//!
//! ```text
//! cargo run --release                          # 500 synthetic images
//! cargo run --release -- FOLDER [ROUNDS]        # class folders of images; 5 rounds
//! ```
//!
//! Every loader decodes an image, resizes its shorter side to 224 pixels, crops the central
//! 224x224, normalizes to `f32`, and batches 64 images as (N, 3, 224, 224) with their labels. Each
//! loader uses two workers; candle's `Batcher` is also measured with one thread. The program first
//! compares 128 images of each loader, and stops if labels or numbers of images differ, or if the
//! mean pixel difference is larger than rounding explains.

mod burn;
mod candle;
mod ours;

use std::path::PathBuf;
use std::time::Instant;

use image::imageops::FilterType;
use image::{DynamicImage, RgbImage};
use warpfeed_synth::Synth;

const SIDE: u32 = 224;
const BATCH: usize = 64;
const WORKERS: usize = 2;
/// Mean and standard deviation of each channel, as in `Normalize::IMAGENET`.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];
const COMPARED_IMAGES: usize = 2 * BATCH;
/// Maximum mean absolute pixel difference, on a scale of 0 to 255. Decoders and resize filters
/// round differently.
const MAX_DIFFERENCE: f32 = 1.5;
/// Minimum duration of a measurement, which consists of whole epochs.
const MIN_SECONDS: f64 = 2.0;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The images in path order: pixels of shape (N, 3, 224, 224), and labels.
type Images = (Vec<f32>, Vec<i64>);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = arguments.get(1).map_or(Ok(5), |n| n.parse())?;
    let generated = tempfile::tempdir()?;
    let folder = match arguments.first() {
        Some(folder) => PathBuf::from(folder),
        None => {
            let folder = generated.path().join("images");
            Synth::new().images(500).side(500).write(&folder)?;
            folder
        }
    };

    let mut to_candle = ours::batches(&folder)?;
    let to_burn = ours::burn_loader(&folder)?;
    let candle = candle::Peer::new(&folder)?;
    let burn = burn::Peer::new(&folder)?;
    let expected = ours::first(&folder, COMPARED_IMAGES)?;
    compare("candle-datasets", &expected, &candle.first(COMPARED_IMAGES)?)?;
    compare("burn", &expected, &burn.first(COMPARED_IMAGES)?)?;

    let mut rates: [Vec<f64>; 5] = Default::default();
    for round in 0..=rounds {
        let round_rates = [
            rate(|| ours::candle_epoch(&mut to_candle))?,
            rate(|| candle.epoch(WORKERS))?,
            rate(|| candle.epoch(1))?,
            rate(|| ours::burn_epoch(&*to_burn))?,
            rate(|| burn.epoch())?,
        ];
        // The first round is a warm-up.
        if round > 0 {
            rates.iter_mut().zip(round_rates).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let [to_candle, candle, one_thread, to_burn, burn] = rates.map(median);
    println!("{WORKERS} workers, batches of {BATCH}, medians of {rounds} rounds, images/s");
    println!("candle: warpfeed {to_candle:6.0}   Batcher    {candle:6.0}   ratio {:.2}", to_candle / candle);
    println!("        warpfeed {to_candle:6.0}   one thread {one_thread:6.0}   ratio {:.2}", to_candle / one_thread);
    println!("burn:   warpfeed {to_burn:6.0}   DataLoader {burn:6.0}   ratio {:.2}", to_burn / burn);
    Ok(())
}

/// The preprocessing of the candle and burn baselines. Like `Augment::eval`, it computes sizes and
/// offsets as torchvision's `Resize` and `CenterCrop` do.
fn resize_and_crop(image: &DynamicImage) -> RgbImage {
    let (width, height) = (image.width(), image.height());
    let scaled = |length: u32| (u64::from(SIDE) * u64::from(length) / u64::from(width.min(height))) as u32;
    let (width, height) = (scaled(width), scaled(height));
    let resized = image.resize_exact(width, height, FilterType::Triangle);
    let start = |length: u32| (f64::from(length - SIDE) / 2.0).round_ties_even() as u32;
    resized.crop_imm(start(width), start(height), SIDE, SIDE).to_rgb8()
}

/// Prints the mean pixel difference. Fails if it exceeds [`MAX_DIFFERENCE`], or if labels or
/// numbers of images differ.
fn compare(name: &str, expected: &Images, actual: &Images) -> Result<()> {
    if expected.1 != actual.1 || expected.0.len() != actual.0.len() {
        return Err(format!("{name}: labels or numbers of images differ").into());
    }
    let plane = (SIDE * SIDE) as usize;
    let levels = |(i, (a, b)): (usize, (&f32, &f32))| f64::from((a - b).abs() * STD[i / plane % 3] * 255.0);
    let sum: f64 = expected.0.iter().zip(&actual.0).enumerate().map(levels).sum();
    let mean_difference = (sum / expected.0.len() as f64) as f32;
    println!(
        "{name}: {} images, mean absolute difference {mean_difference:.2} (levels are 0 to 255)",
        expected.1.len()
    );
    // NaN must fail, so check `<=` instead of its opposite.
    let is_close = mean_difference <= MAX_DIFFERENCE;
    if !is_close {
        return Err(format!("{name}: the mean pixel difference exceeds {MAX_DIFFERENCE} levels").into());
    }
    Ok(())
}

/// Returns the images per second. `epoch` runs one epoch and returns its number of images.
fn rate(mut epoch: impl FnMut() -> Result<usize>) -> Result<f64> {
    let (began, mut images) = (Instant::now(), 0);
    loop {
        images += epoch()?;
        let seconds = began.elapsed().as_secs_f64();
        if seconds >= MIN_SECONDS {
            return Ok(images as f64 / seconds);
        }
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
