//! Images a second into candle tensors, in turns in one run:
//!
//! ```text
//! cargo bench --bench images -- PATH [TURNS [BATCH]]      # class folders of photographs; 5 turns, batches of 64
//! ```
//!
//! 1. the loader's own host batches, `u8` (N, 224, 224, 3) and `f32` (N, 3, 224, 224);
//! 2. the same as tensors on the CPU;
//! 3. what candle-datasets offers for pictures: an iterator of tensors, batched by `Tensor::stack`
//!    as its `Batcher` does, with the crate `image` for decoding, cropping and resizing; on one
//!    thread, as it is, and on all, by hand.
//!
//! With the feature `cuda`, on the first GPU: the loader's batches in device memory, `f16`
//! (N, 3, 224, 224), and the same as tensors.
//!
//! Every picture is a random-resized crop of 224 pixels, flipped or not. Printed are medians of
//! images a second, and ratios of medians.

use std::path::{Path, PathBuf};
use std::time::Instant;

use candle_core::{Device, Tensor};
use image::imageops::{self, FilterType};
use warpfeed::{Augment, Batches, Dtype, HostBatch, Layout, Loader, Normalize};
use warpfeed_candle::ToCandle;

const SIDE: u32 = 224;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(folder) = arguments.first() else {
        println!("images: name class folders of photographs: cargo bench --bench images -- PATH");
        return Ok(());
    };
    let turns = arguments.get(1).map_or(Ok(5), |n| n.parse())?;
    let batch = arguments.get(2).map_or(Ok(64), |n| n.parse())?;
    let loader = || Loader::new(folder).batch_size(batch).shuffle(42).augment(Augment::train(SIDE));
    let mut bytes = loader().host()?;
    let mut floats = loader().dtype(Dtype::F32).layout(Layout::Nchw).normalize(Normalize::IMAGENET).host()?;
    #[cfg(feature = "cuda")]
    if warpfeed::cuda::available().is_ok() {
        return on_the_gpu(loader(), turns);
    }
    let files = files(Path::new(folder))?;
    let threads = std::thread::available_parallelism()?.get();
    println!("{} pictures, {threads} threads, batches of {batch}, medians of {turns} turns", files.len());

    let mut rates: [Vec<f64>; 6] = Default::default();
    for turn in 0..=turns {
        let now = [
            epoch(&mut bytes, turn, false)?,
            epoch(&mut bytes, turn, true)?,
            epoch(&mut floats, turn, false)?,
            epoch(&mut floats, turn, true)?,
            by_hand(&files, batch, turn, 1)?,
            by_hand(&files, batch, turn, threads)?,
        ];
        // The first turn warms up.
        if turn > 0 {
            rates.iter_mut().zip(now).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    let [u8s, u8_tensors, f32s, f32_tensors, one, all] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("u8   loader {u8s:6.0}   tensors {u8_tensors:6.0}   ratio {:.3}", u8_tensors / u8s);
    println!("f32  loader {f32s:6.0}   tensors {f32_tensors:6.0}   ratio {:.3}", f32_tensors / f32s);
    println!("u8   image and Tensor::stack: one thread {one:.0}, {threads} threads {all:.0}");
    println!("u8   tensors of the loader are {:.1} and {:.1} times as fast", u8_tensors / one, u8_tensors / all);
    Ok(())
}

/// Images a second of an epoch. Each tensor is looked at once, as is each batch of the loader.
fn epoch(batches: &mut Batches<HostBatch>, epoch: u64, tensors: bool) -> Result<f64> {
    let (began, mut images) = (Instant::now(), 0);
    for batch in batches.epoch(epoch) {
        let batch = batch?;
        images += batch.len();
        if tensors {
            std::hint::black_box(batch.to_candle(&Device::Cpu)?);
        } else {
            std::hint::black_box((batch.images().bytes(), batch.labels()?));
        }
    }
    Ok(images as f64 / began.elapsed().as_secs_f64())
}

/// Two epochs' worth of turns on the first GPU, each ended by a wait for all that was queued.
#[cfg(feature = "cuda")]
fn on_the_gpu(loader: Loader, turns: u64) -> Result<()> {
    let device = Device::new_cuda_with_stream(0)?;
    let stream = warpfeed_candle::stream(&device)?;
    let loader = loader.dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
    let mut batches = loader.last_batch(warpfeed::LastBatch::Drop).cuda(&stream)?;
    let mut rates: [Vec<f64>; 2] = Default::default();
    for turn in 0..=2 * turns {
        let (began, mut images, tensors) = (Instant::now(), 0, turn % 2 == 1);
        for batch in batches.epoch(turn) {
            let batch = batch?;
            images += batch.len();
            if tensors {
                std::hint::black_box(batch.to_candle(&device)?);
            }
        }
        stream.synchronize()?;
        if turn > 0 {
            rates[usize::from(tensors)].push(images as f64 / began.elapsed().as_secs_f64());
        }
    }
    let [own, tensors] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("f16 on the device: loader {own:.0}, tensors {tensors:.0}, ratio {:.3}", tensors / own);
    Ok(())
}

/// The pictures below class folders, with their classes.
fn files(folder: &Path) -> Result<Vec<(PathBuf, i64)>> {
    let mut classes: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    classes.retain(|class| class.is_dir());
    classes.sort();
    let mut files = Vec::new();
    for (class, label) in classes.iter().zip(0..) {
        for entry in std::fs::read_dir(class)? {
            files.push((entry?.path(), label));
        }
    }
    Ok(files)
}

/// Images a second of all files, each thread with its share of the batches.
fn by_hand(files: &[(PathBuf, i64)], batch: usize, epoch: u64, threads: usize) -> Result<f64> {
    let began = Instant::now();
    let share = files.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let work = |(thread, files)| scope.spawn(move || batches_of(files, batch, epoch * 100 + thread as u64));
        let threads: Vec<_> = files.chunks(share).enumerate().map(work).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    Ok(files.len() as f64 / began.elapsed().as_secs_f64())
}

fn batches_of(files: &[(PathBuf, i64)], batch: usize, seed: u64) -> Result<()> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    for files in files.chunks(batch) {
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for (path, label) in files {
            let picture = image::open(path)?.into_rgb8();
            // torchvision's rule, without its ten tries: 8 to 100 % of the area, 3/4 to 4/3.
            let area = (picture.width() * picture.height()) as f32 * (0.08 + 0.92 * uniform());
            let ratio = (0.75f32.ln() + uniform() * (16f32 / 9.0).ln()).exp();
            let width = ((area * ratio).sqrt() as u32).clamp(1, picture.width());
            let height = ((area / ratio).sqrt() as u32).clamp(1, picture.height());
            let left = (uniform() * (picture.width() - width) as f32) as u32;
            let top = (uniform() * (picture.height() - height) as f32) as u32;
            let crop = imageops::crop_imm(&picture, left, top, width, height).to_image();
            let mut crop = imageops::resize(&crop, SIDE, SIDE, FilterType::Triangle);
            if uniform() < 0.5 {
                imageops::flip_horizontal_in_place(&mut crop);
            }
            images.push(Tensor::from_vec(crop.into_raw(), (SIDE as usize, SIDE as usize, 3), &Device::Cpu)?);
            labels.push(Tensor::new(*label, &Device::Cpu)?);
        }
        std::hint::black_box((Tensor::stack(&images, 0)?, Tensor::stack(&labels, 0)?));
    }
    Ok(())
}
