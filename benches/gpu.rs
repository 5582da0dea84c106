//! Measures the stages of loading batches into GPU memory. Run with
//! `cargo bench --bench gpu -- [--data PATH] [--workers N] [--end-to-end]`.
//!
//! PATH is any image dataset. Its samples are repeated to fill a temporary LMDB of 10,000 samples.
//! Without PATH, the end-to-end measurement is skipped. With `--end-to-end`, all other measurements
//! are skipped. Most results are medians over repeated measurements. Device times are measured with
//! events.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use warpfeed::cuda::cudarc::nvrtc::Ptx;
use warpfeed::cuda::internal::{AfterFork, Context, Convert, DeviceBuffer, Event, Launch, Pinned, SampleOps, Stream};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::pack::{DatasetWriter, LmdbWriter, WriteOptions};
use warpfeed::sampler::Rng;
use warpfeed::source::{self, OwnedSample, Sample, Source};
use warpfeed::transform::{Mixing, RandomErasing};
use warpfeed::{Augment, Batches, CudaBatch, Dtype, Layout, Loader, Normalize, Result};

const SIDE: usize = 224;
const IMAGE: usize = SIDE * SIDE * 3;
const BATCH: usize = 256;

fn main() -> Result<()> {
    let arguments = std::env::args().collect::<Vec<_>>();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).cloned();
    let stream = match cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let workers = option("--workers").map_or(16, |n| n.parse().expect("--workers must be a number"));
    let gpu = Gpu::new(stream)?;
    println!("{}, {workers} workers", gpu.context.name()?);
    if !arguments.iter().any(|a| a == "--end-to-end") {
        let bare = gpu.bare_copies()?;
        let device = gpu.device_copy()?;
        gpu.conversions(device)?;
        let per_batch = gpu.ring(bare, workers)?;
        gpu.overlap(per_batch, workers)?;
        gpu.latency_memory_loader(workers)?;
        gpu.program_uploads(workers)?;
    }
    match option("--data") {
        Some(path) => gpu.end_to_end(&path, workers)?,
        None => println!("\nend to end: skipped, no --data"),
    }
    Ok(())
}

struct Gpu {
    stream: Arc<CudaStream>,
    bench_stream: Stream,
    context: Context,
    spin_kernel: CudaFunction,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn percentile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * p) as usize]
}

impl Gpu {
    fn new(stream: Arc<CudaStream>) -> Result<Self> {
        let context = Context::from_stream(&stream)?;
        let ptx = Ptx::from_src(include_str!("../examples/kernels/probe.ptx"));
        let spin_kernel =
            stream.context().load_module(ptx).and_then(|m| m.load_function("spin")).expect("the probe kernels load");
        Ok(Gpu { bench_stream: Stream::lent(&stream)?, stream, context, spin_kernel })
    }

    /// Returns the median device time of `work` over `rounds` measurements, in milliseconds, after
    /// three unmeasured calls.
    fn device_ms(&self, rounds: usize, mut work: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        let (start, end) = (Event::timed(&self.context)?, Event::timed(&self.context)?);
        (0..3).try_for_each(&mut work)?;
        let mut times = Vec::new();
        for i in 0..rounds {
            start.record(&self.bench_stream)?;
            work(i)?;
            end.record(&self.bench_stream)?;
            end.synchronize()?;
            times.push(f64::from(start.elapsed_ms(&end)?));
        }
        Ok(median(times))
    }

    /// Measures the GB/s of plain copies of a `u8` image batch from page-locked memory.
    fn bare_copies(&self) -> Result<f64> {
        println!("\nbare copies of {:.1} MB to the device", (BATCH * IMAGE) as f64 / 1e6);
        let memory = DeviceBuffer::new(&self.context, BATCH * IMAGE)?;
        let mut pinned = Pinned::new(&self.context, BATCH * IMAGE, AfterFork::Absent)?;
        let start = Instant::now();
        pinned.chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8));
        let fill_rate = (BATCH * IMAGE) as f64 / start.elapsed().as_secs_f64() / 1e9;
        let ms = self.device_ms(15, |_| {
            // SAFETY: `pinned` stays alive and unchanged until the wait for the event after the
            // copies.
            (0..10).try_for_each(|_| unsafe { self.bench_stream.upload(&memory, 0, &pinned) })
        })?;
        let rate = (BATCH * IMAGE * 10) as f64 / ms / 1e6;
        println!("  {rate:.2} GB/s; one thread fills the memory at {fill_rate:.1} GB/s");
        Ok(rate)
    }

    /// Measures the GB/s of a 1 GiB copy on the device, counting bytes read and written. This
    /// is the upper bound for conversions.
    fn device_copy(&self) -> Result<f64> {
        let allocate_block = || self.stream.alloc_zeros::<u8>(1 << 30).expect("memory is available");
        let (source, mut target) = (allocate_block(), allocate_block());
        let ms = self.device_ms(20, |_| {
            self.stream.memcpy_dtod(&source, &mut target).expect("the copy is queued");
            Ok(())
        })?;
        let rate = (2u64 << 30) as f64 / ms / 1e6;
        println!("\ncopy on the device: {rate:.0} GB/s read and written");
        Ok(rate)
    }

    fn conversions(&self, copy_rate: f64) -> Result<()> {
        const N: usize = 1024;
        println!("conversion of {N} images of {SIDE}x{SIDE} unless noted; rates count bytes read and written");
        // Use four inputs and outputs in turn, so that no data is in the cache.
        let (input, output) = (N * IMAGE, N * IMAGE * 4);
        let memory = DeviceBuffer::new(&self.context, 4 * (input + output) + 2 * N * SampleOps::BYTES)?;
        let mut rng = Rng::new(0, 0, 0);
        let pixels = (0..input).map(|_| rng.next_u64() as u8).collect::<Vec<_>>();
        let (size, area) = (Size::new(SIDE as u32, SIDE as u32), 1.0 / 12.0);
        let erasing = RandomErasing::new(1.0).scale(area, area);
        let augment = Augment::resize(size.width, size.height).erase(erasing);
        // The first N records only erase. The next N records erase and mix.
        let mut records = vec![0; 2 * N * SampleOps::BYTES];
        for (n, record) in records.as_chunks_mut().0.iter_mut().enumerate() {
            let erase = SampleOps::from_plan(&augment.plan(size, &mut rng)?);
            let mixing = Mixing { weight: 0.7, cutmix_area: None };
            if n < N { erase } else { erase.mix((n + N - 1) % N, &mixing) }.write(record);
        }
        let records_offset = 4 * (input + output);
        for i in 0..4 {
            // SAFETY: `pixels` outlives the wait below.
            unsafe { self.bench_stream.upload(&memory, i * (input + output), &pixels) }?;
        }
        // SAFETY: `records` outlives the wait below.
        unsafe { self.bench_stream.upload(&memory, records_offset, &records) }?;
        self.bench_stream.synchronize()?;
        for dtype in [Dtype::F16, Dtype::F32, Dtype::Bf16, Dtype::U8] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                for (variant, size, records, reads_per_pixel) in [
                    ("plain", (SIDE, SIDE), None, 1),
                    ("erase", (SIDE, SIDE), Some(records_offset), 1),
                    // The kernel also reads the sample that is mixed in.
                    ("erase, mix", (SIDE, SIDE), Some(records_offset + N * SampleOps::BYTES), 2),
                    ("223 x 223", (223, 223), None, 1),
                ] {
                    let with_ops = records.is_some();
                    if (dtype, layout, with_ops) == (Dtype::U8, Layout::Nhwc, false) {
                        continue; // copied, not converted
                    }
                    let kernel = Convert::load(&self.context, dtype, layout, size, Normalize::IMAGENET, with_ops)?;
                    let ms = self.device_ms(30, |i| {
                        let from = i % 4 * (input + output);
                        // SAFETY: the records refer only to samples below N, the ranges are
                        // disjoint, and `device_ms` waits for the work.
                        unsafe {
                            kernel.launch(
                                &self.bench_stream,
                                &memory,
                                Launch {
                                    input_offset: from,
                                    output_offset: from + input,
                                    records_offset: records,
                                    count: N,
                                },
                            )
                        }
                    })?;
                    let bytes = N * size.0 * size.1 * 3 * (reads_per_pixel + dtype.bytes());
                    let rate = bytes as f64 / ms / 1e6;
                    println!(
                        "  {:<8} {layout:?} {variant:<17} {:>8.1} us {rate:>7.0} GB/s {:>6.1}% of the copy",
                        dtype.name(),
                        ms * 1e3,
                        100.0 * rate / copy_rate
                    );
                }
            }
        }
        Ok(())
    }

    /// Opens a loader without reading and decoding, to measure only how batches pass through the
    /// ring of slots. A slot is a reusable batch buffer that workers fill and the loader uploads.
    fn memory_loader(&self, batches: usize, dtype: Dtype, workers: usize) -> Result<Batches<CudaBatch>> {
        Loader::source(Blank(batches * BATCH))
            .codec(Blank(0))
            .batch_size(BATCH)
            .augment(Augment::pass_through(SIDE as u32, SIDE as u32))
            .dtype(dtype)
            .layout(if dtype == Dtype::U8 { Layout::Nhwc } else { Layout::Nchw })
            .workers(workers)
            .prefetch(4)
            .cuda(&self.stream)
    }

    /// Measures the throughput of batches that require no reading or decoding, for `f16` NCHW and
    /// `u8` NHWC. Returns the milliseconds per `u8` batch.
    fn ring(&self, bare_rate: f64, workers: usize) -> Result<f64> {
        println!(
            "\nthroughput of the ring of slots: batches of {:.1} MB, no reading or decoding, idle consumer",
            (BATCH * IMAGE) as f64 / 1e6
        );
        let mut per_batch = 0.0;
        for dtype in [Dtype::F16, Dtype::U8] {
            let mut batches = self.memory_loader(400, dtype, workers)?;
            println!("  {}", batches.memory_plan());
            let mut times = Vec::new();
            for epoch in 0..6 {
                let mut start = Instant::now();
                for batch in batches.epoch(epoch) {
                    let batch = batch?;
                    if batch.batch_index() == 19 {
                        self.bench_stream.synchronize()?;
                        start = Instant::now();
                    }
                }
                self.bench_stream.synchronize()?;
                times.push(start.elapsed().as_secs_f64() / 380.0);
            }
            let seconds = median(times);
            let rate = (BATCH * IMAGE) as f64 / seconds / 1e9;
            println!("  {:<8} {rate:.2} GB/s, {:.1}% of the bare copy", dtype.name(), 100.0 * rate / bare_rate);
            per_batch = seconds * 1e3;
        }
        Ok(per_batch)
    }

    /// Measures the time per batch and the stalls while the consumer's stream runs steps of known
    /// length.
    fn overlap(&self, loader_ms: f64, workers: usize) -> Result<()> {
        const BATCHES: usize = 300;
        println!(
            "\noverlap: {BATCHES} f16 NCHW batches, prefetch 4; a step takes s times {loader_ms:.3} ms, the loader's time \
             per u8 batch"
        );
        let mut batches = self.memory_loader(BATCHES, Dtype::F16, workers)?;
        let events = (0..2 * BATCHES).map(|_| Event::timed(&self.context)).collect::<Result<Vec<_>>>()?;
        for factor in [0.5, 0.75, 1.0, 1.5, 2.0, 4.0] {
            let nanoseconds = (loader_ms * factor * 1e6) as u64;
            let step_ms = self.device_ms(20, |_| self.step(nanoseconds))?;
            let mut waits = [0; BATCHES];
            let (start, end) = (Event::timed(&self.context)?, Event::timed(&self.context)?);
            let mut number = 0;
            let mut epoch = batches.epoch(0);
            loop {
                // Wait for the step before the previous one. A training loop also synchronizes, so
                // the host cannot run far ahead of the device.
                if number >= 2 {
                    events[2 * (number - 2) + 1].synchronize()?;
                }
                if number < BATCHES {
                    events[2 * number].record(&self.bench_stream)?;
                }
                let since = Instant::now();
                let Some(batch) = epoch.next() else { break };
                waits[number] = since.elapsed().as_micros() as u64;
                let batch = batch?;
                events[2 * number + 1].record(&self.bench_stream)?;
                if number == 10 {
                    start.record(&self.bench_stream)?;
                }
                self.step(nanoseconds)?;
                drop(batch);
                number += 1;
            }
            end.record(&self.bench_stream)?;
            end.synchronize()?;
            let batch_ms = f64::from(start.elapsed_ms(&end)?) / (BATCHES - 10) as f64;
            let stall_us = |i: usize| events[2 * i].elapsed_ms(&events[2 * i + 1]).map(|ms| f64::from(ms) * 1e3);
            let mut stalls = (11..BATCHES).map(stall_us).collect::<Result<Vec<_>>>()?;
            let mean_stall = stalls.iter().sum::<f64>() / stalls.len() as f64;
            let mut host_waits = waits[11..].iter().map(|&us| us as f64).collect::<Vec<_>>();
            println!(
                "  s {factor:<4} step {step_ms:.3} ms: {batch_ms:.3} ms per batch, {:.3} of max(step, loader); stream stall: mean {mean_stall:.1} us ({:.2}%), \
                 p99 {:.1} us; host wait in next(): p50 {:.0} us, p99 {:.0} us",
                batch_ms / step_ms.max(loader_ms),
                mean_stall / batch_ms / 10.0,
                percentile(&mut stalls, 0.99),
                percentile(&mut host_waits, 0.5),
                percentile(&mut host_waits, 0.99),
            );
        }
        Ok(())
    }

    fn step(&self, nanoseconds: u64) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.spin_kernel);
        launch.arg(&nanoseconds);
        // An H100 or H200 has 132 multiprocessors. One block per multiprocessor leaves resources
        // for other kernels, as most training kernels do.
        let config = LaunchConfig { grid_dim: (132, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel takes exactly one `u64` argument.
        unsafe { launch.launch(config) }.expect("the spin kernel launches");
        Ok(())
    }

    /// Measures the milliseconds from the start of each epoch until its first batch is in
    /// device memory.
    fn first_batches(&self, batches: &mut Batches<CudaBatch>, epochs: u64) -> Result<Vec<f64>> {
        let measure_epoch = |epoch| {
            let since = Instant::now();
            let mut epoch = batches.epoch(epoch);
            let batch = epoch.next().expect("the epoch has at least one batch")?;
            self.bench_stream.synchronize()?;
            let ms = since.elapsed().as_secs_f64() * 1e3;
            drop(batch);
            std::thread::sleep(Duration::from_millis(20));
            Ok(ms)
        };
        (0..epochs).map(measure_epoch).collect()
    }

    fn latency_memory_loader(&self, workers: usize) -> Result<()> {
        let start = Instant::now();
        let mut batches = self.memory_loader(100, Dtype::F16, workers)?;
        let opening_ms = start.elapsed().as_secs_f64() * 1e3;
        let times = self.first_batches(&mut batches, 21)?;
        let (first_ms, later_ms) = (times[0], median(times[1..].to_vec()));
        println!(
            "\nlatency without reading or decoding: opening {opening_ms:.1} ms, first batch {first_ms:.2} ms, first \
             batch of later epochs {later_ms:.2} ms"
        );
        Ok(())
    }

    /// Measures host batches that the program uploads itself, in three ways: page-locked batches
    /// that are dropped after the copy is queued, page-locked batches that are released with
    /// `release_on`, and batches in ordinary memory.
    fn program_uploads(&self, workers: usize) -> Result<()> {
        const BATCHES: usize = 200;
        println!("\nuploads by the program: ms per batch of 38.5 MB; one stream for uploads and simulated steps");
        let mut target = self.stream.alloc_zeros::<u8>(BATCH * IMAGE).expect("memory is available");
        for (prefetch, step_ms) in [(4, 0.0), (4, 1.0), (4, 5.0), (4, 20.0), (1, 1.0), (1, 20.0)] {
            let mut line = format!("  prefetch {prefetch}, step {step_ms:>4.1} ms:");
            for (name, pinned) in [("dropped", true), ("release_on", true), ("not page-locked", false)] {
                let loader = Loader::source(Blank(BATCHES * BATCH)).codec(Blank(0)).batch_size(BATCH);
                let loader = loader.augment(Augment::pass_through(SIDE as u32, SIDE as u32)).workers(workers);
                let mut batches = loader.prefetch(prefetch).pinned(pinned).host()?;
                let mut batch_times = Vec::new();
                for epoch in 0..3 {
                    self.bench_stream.synchronize()?;
                    let start = Instant::now();
                    for batch in batches.epoch(epoch) {
                        let batch = batch?;
                        self.stream.memcpy_htod(batch.images().bytes(), &mut target).expect("the copy is queued");
                        if name == "release_on" {
                            batch.release_on(&self.stream)?;
                        } else {
                            drop(batch);
                        }
                        if step_ms > 0.0 {
                            self.step((step_ms * 1e6) as u64)?;
                        }
                    }
                    self.bench_stream.synchronize()?;
                    batch_times.push(start.elapsed().as_secs_f64() * 1e3 / BATCHES as f64);
                }
                let stall_percent = 100.0 * batches.stats().stall_fraction();
                line += &format!("  {name} {:.3} (stall {stall_percent:.1}%)", median(batch_times));
            }
            println!("{line}");
        }
        Ok(())
    }

    fn end_to_end(&self, path: &str, workers: usize) -> Result<()> {
        let folder = std::env::temp_dir().join(format!("warpfeed-bench-{}.lmdb", std::process::id()));
        let original = source::open(path)?;
        let mut writer = Box::new(LmdbWriter::create(&folder, &WriteOptions::default())?);
        let mut scratch = Vec::new();
        for i in 0..10_000 {
            let sample = original.read(i % original.len(), &mut scratch)?;
            writer.put(&OwnedSample::try_from(&sample)?.as_sample()?)?;
        }
        let written = writer.finish()?;
        println!("\nend to end: {path} as LMDB of {} samples, {:.0} MB", written.samples, written.bytes as f64 / 1e6);
        let loader = || {
            Loader::new(&folder)
                .batch_size(BATCH)
                .shuffle(42)
                .augment(Augment::train(SIDE as u32))
                .normalize(Normalize::IMAGENET)
                .dtype(Dtype::F16)
                .layout(Layout::Nchw)
                .workers(workers)
                .prefetch(4)
        };
        let since = Instant::now();
        let mut batches = loader().cuda(&self.stream)?;
        let opening_ms = since.elapsed().as_secs_f64() * 1e3;
        let times = self.first_batches(&mut batches, 11)?;
        let (first_ms, later_ms) = (times[0], median(times[1..].to_vec()));
        println!(
            "  opening {opening_ms:.0} ms, first batch {first_ms:.1} ms, first batch of later epochs {later_ms:.1} ms"
        );
        println!("  {}", batches.memory_plan());
        let mut rates = Vec::new();
        for epoch in 100..104 {
            let since = Instant::now();
            let mut samples = 0;
            for batch in batches.epoch(epoch) {
                samples += batch?.len();
            }
            self.bench_stream.synchronize()?;
            rates.push(samples as f64 / since.elapsed().as_secs_f64());
        }
        println!("  images/s by epoch: {}", rates.iter().map(|r| format!("{r:.0}")).collect::<Vec<_>>().join(" "));
        println!("  {:.0} images/s (median of the last three)", median(rates[1..].to_vec()));
        println!("{}", batches.stats());
        let stats = batches.device_stats();
        println!(
            "  device memory: {:.0} MB reserved, {:.0} MB at peak",
            stats.reserved_bytes as f64 / 1e6,
            stats.peak_bytes as f64 / 1e6
        );
        drop(batches);
        let _ = std::fs::remove_dir_all(&folder);
        Ok(())
    }
}

/// A source of samples with placeholder bytes, and a codec that decodes them to an image without
/// work. The number is the number of samples.
struct Blank(usize);

impl Source for Blank {
    fn len(&self) -> usize {
        self.0
    }
    fn read<'a>(&'a self, _index: usize, _scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        Sample::new("blank").with_field("img", b"blank")
    }
}

impl Codec for Blank {
    fn format(&self) -> Format {
        Format::any("blank")
    }
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(SIDE as u32, SIDE as u32)))
    }
    fn decode(&self, _: &mut EncodedImage<'_>, _: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(Size::new(SIDE as u32, SIDE as u32));
        Ok(())
    }
}
