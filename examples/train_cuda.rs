//! A training loop on the GPU: `cargo run --release --example train_cuda [PATH [EPOCHS]]`.
//!
//! PATH is a data set of pictures with at most 256 classes; without it, pictures of ten colours are made up. The model is a softmax classifier
//! on 8x8 averages, which is enough to see the loss fall. Printed each epoch: the loss, images a second, and the stall, which is the time that
//! the stream waited for batches, by the device's own clock.
#![allow(unsafe_code)]

use std::time::Instant;

use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::{CudaStream, DriverError, LaunchConfig, PushKernelArg};
use warpfeed::cuda::cudarc::nvrtc::Ptx;
use warpfeed::cuda::internal::{Context, Event, Stream};
use warpfeed::order::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::Augment;
use warpfeed::{Dtype, Layout, Loader, Normalize};

const SIDE: u32 = 64;
const FEATURES: u32 = 192;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = match cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => {
            println!("no GPU to train on: {e}");
            return Ok(());
        }
    };
    let mut arguments = std::env::args().skip(1);
    let (path, epochs) = (arguments.next(), arguments.next().map_or(Ok(5), |n| n.parse())?);
    let loader = match &path {
        Some(path) => Loader::new(path),
        None => Loader::source(colours(4096)),
    };
    let mut batches = loader
        .batch(128)
        .shuffle(42)
        .augment(Augment::train(SIDE).scale(0.5, 1.0))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F32)
        .layout(Layout::Nchw)
        .prefetch(3)
        .cuda(&stream)?;
    let classes = batches.classes().len().max(if path.is_none() { 10 } else { 1 }) as u32;
    if classes > 256 {
        return Err(format!("{classes} classes; this model has at most 256").into());
    }
    println!("{} samples, {classes} classes; {}", batches.samples(), batches.plan());

    let model = Model::new(&stream, classes)?;
    let (mut weights, mut gradient) =
        (stream.alloc_zeros::<f32>(model.weights())?, stream.alloc_zeros::<f32>(model.weights())?);
    let mut features = stream.alloc_zeros::<f32>(128 * FEATURES as usize)?;
    let mut loss = stream.alloc_zeros::<f32>(1)?;
    let (context, own) = (Context::of(&stream)?, Stream::lent(&stream)?);
    for epoch in 0..epochs {
        stream.memset_zeros(&mut loss)?;
        let (mut samples, mut marks) = (0, Vec::new());
        let since = Instant::now();
        let mut epoch_batches = batches.epoch(epoch);
        loop {
            let (asked, got) = (Event::timed(&context)?, Event::timed(&context)?);
            asked.record(&own)?;
            let Some(batch) = epoch_batches.next() else { break };
            let batch = batch?;
            got.record(&own)?;
            marks.push((asked, got));

            let n = batch.len() as u32;
            let (images, labels) = (batch.images().view::<f32>()?, batch.labels()?.view::<i64>()?);
            // SAFETY: the arguments are those that `train.cu` declares, and the buffers have the sizes it reads and writes.
            unsafe {
                stream
                    .launch_builder(&model.pool)
                    .arg(&mut features)
                    .arg(&images)
                    .arg(&n)
                    .arg(&SIDE)
                    .launch(over(n * FEATURES))?;
                let config = LaunchConfig { grid_dim: (n, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
                let mut step = stream.launch_builder(&model.step);
                step.arg(&features)
                    .arg(&labels)
                    .arg(&weights)
                    .arg(&mut gradient)
                    .arg(&mut loss)
                    .arg(&classes)
                    .launch(config)?;
                let (count, rate) = (model.weights() as u32, 0.1 / n as f32);
                let mut update = stream.launch_builder(&model.update);
                update.arg(&mut weights).arg(&mut gradient).arg(&count).arg(&rate).launch(over(count))?;
            }
            samples += batch.len();
            // Dropped here, the batch's memory is written again after the kernels above.
        }
        drop(epoch_batches);
        let mean = stream.clone_dtoh(&loss)?[0] / samples as f32;
        let seconds = since.elapsed().as_secs_f64();
        let stall = marks.iter().map(|(asked, got)| asked.elapsed_ms(got)).sum::<warpfeed::Result<f32>>()?;
        println!(
            "epoch {epoch}: loss {mean:.4}, {:.0} images/s, stall {stall:.1} ms of {:.1} ms on the device's clock",
            samples as f64 / seconds,
            seconds * 1e3
        );
    }
    println!("{}", batches.stats());
    Ok(())
}

struct Model {
    pool: cuda::cudarc::driver::CudaFunction,
    step: cuda::cudarc::driver::CudaFunction,
    update: cuda::cudarc::driver::CudaFunction,
    classes: u32,
}

impl Model {
    fn new(stream: &std::sync::Arc<CudaStream>, classes: u32) -> Result<Self, DriverError> {
        let module = stream.context().load_module(Ptx::from_src(include_str!("kernels/train.ptx")))?;
        let load = |name| module.load_function(name);
        Ok(Model { pool: load("pool")?, step: load("step")?, update: load("update")?, classes })
    }

    fn weights(&self) -> usize {
        (self.classes * (FEATURES + 1)) as usize
    }
}

fn over(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (count.div_ceil(256), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}

/// `len` pictures of 64x64 pixels, each mostly of its class's colour, as uncompressed BMP files.
fn colours(len: u64) -> Memory {
    let picture = |i: u64| {
        let (class, mut rng) = (i % 10, Rng::new(1, 0, i));
        let mut bytes = b"BM".to_vec();
        for word in [54 + 64 * 64 * 3, 0, 54, 40, 64, 64, 1 | 24 << 16, 0, 64 * 64 * 3, 2835, 2835, 0, 0] {
            bytes.extend(u32::to_le_bytes(word));
        }
        let colour = [0, 1, 2].map(|c| 60 + ((class + 1) * [37, 59, 83][c] % 130));
        bytes.extend((0..64 * 64).flat_map(|_| colour).map(|v| (v + rng.below(64)) as u8));
        OwnedSample::new(format!("{i}")).field("bmp", bytes).label(class as i64)
    };
    Memory::new((0..len).map(picture).collect())
}
