//! Measures decoding throughput on the workers, on the device, and on both, in alternating rounds.
//! Run with `cargo bench --bench decode_gpu -- PATH.. [OPTIONS]`. The options are `--seconds`,
//! `--warmup`, `--rounds`, `--only` (`Cpu`, `Gpu` or `Auto`), `--workers`, and `--prefetch`
//! (default 4).
//!
//! Each PATH is a dataset of JPEGs, repeated 1,000 times per epoch. Batches of 256 crops, 224x224
//! each, are delivered on the device as f16 (N, C, H, W). By default, one worker runs on each core
//! available to the process; limit the cores with `taskset -c 0-3`. The consumer discards each
//! batch.
//!
//! "GPU ms" is the device time to decode and convert a batch, measured with events on an otherwise
//! idle device. "at 20,000/s" is the percentage of the time for which the device would be busy at
//! 20,000 images per second. "on the device" is the percentage of images that workers sent to the
//! device for decoding. "busy cores" and "p99 ms", the 99th percentile of the wait for a batch, are
//! from the worst round.

use std::sync::Arc;
use std::time::Instant;

use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::{Augment, Batches, CudaBatch, DecodeOn, Dtype, Layout, Loader, Normalize, Result, cuda};

const BATCH: usize = 256;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let option = |name: &str, default: f64| {
        let index = arguments.iter().position(|a| a == name);
        index
            .and_then(|i| arguments.get(i + 1))
            .map_or(default, |n| n.parse().expect("the values of the options must be numbers"))
    };
    let (seconds, warmup, rounds) =
        (option("--seconds", 3.0), option("--warmup", 1.0), option("--rounds", 2.0) as usize);
    let only_device = arguments.iter().position(|a| a == "--only").and_then(|i| arguments.get(i + 1));
    let (prefetch, workers) = (option("--prefetch", 4.0) as usize, option("--workers", 0.0) as usize);
    let options: Vec<usize> = ["--seconds", "--warmup", "--rounds", "--only", "--prefetch", "--workers"]
        .iter()
        .filter_map(|name| arguments.iter().position(|a| a == name))
        .flat_map(|index| [index, index + 1])
        .collect();
    let paths = arguments.iter().enumerate().filter(|(i, _)| !options.contains(i)).map(|(_, path)| path);
    let stream = match cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => {
            println!("skipped: {e}");
            return Ok(());
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores, {rounds} rounds of {seconds} s");
    for path in paths {
        println!(
            "{path}\n  decoded on   images/s (each round)         GPU ms  at 20,000/s  on the device  busy cores  p99 ms"
        );
        let devices = [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto];
        let mut loaders = devices
            .iter()
            .filter(|decode_on| only_device.is_none_or(|only_device| *only_device == format!("{decode_on:?}")))
            .map(|&decode_on| {
                let loader = loader(path, decode_on).prefetch(prefetch);
                let loader = if workers > 0 { loader.workers(workers) } else { loader };
                Ok((decode_on, loader.cuda(&stream)?, Vec::new()))
            })
            .collect::<Result<Vec<_>>>()?;
        for _ in 0..rounds {
            for (_, batches, rates) in &mut loaders {
                rates.push(measure(batches, &stream, warmup, seconds)?);
            }
        }
        for (decode_on, batches, rates) in &loaders {
            let stats = batches.stats();
            let round_rates: Vec<String> =
                rates.iter().map(|round| format!("{:.0}", round.images_per_second)).collect();
            let gpu_stages = [&stats.device_decode, &stats.convert];
            let gpu_seconds =
                gpu_stages.into_iter().flatten().map(|stage| stage.seconds).sum::<f64>() / stats.batches.max(1) as f64;
            println!(
                "  {:<12} {:<30} {:>6.3} {:>10.1}% {:>12.1}% {:>11.1} {:>7.2}",
                format!("{decode_on:?}"),
                round_rates.join(" "),
                gpu_seconds * 1e3,
                gpu_seconds * 20_000.0 / BATCH as f64 * 100.0,
                stats.images_sent_to_device as f64 / stats.prepared_samples.max(1) as f64 * 100.0,
                rates.iter().map(|round| round.busy_cores).fold(0.0, f64::max),
                rates.iter().map(|round| round.p99_wait_ms).fold(0.0, f64::max),
            );
        }
        if let Some((.., batches, _)) = loaders.last() {
            println!("  {}", batches.memory_plan());
        }
    }
    Ok(())
}

fn loader(path: &str, decode_on: DecodeOn) -> Loader {
    Loader::new(path)
        .batch_size(BATCH)
        .shuffle(42)
        .repeat(1000)
        .augment(Augment::train(224))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F16)
        .layout(Layout::Nchw)
        .decode_on(decode_on)
}

struct Measurement {
    images_per_second: f64,
    busy_cores: f64,
    /// 99th percentile of the wait for a batch, in ms.
    p99_wait_ms: f64,
}

/// Waits for the first batch, warms up for `warmup` seconds, then measures for `seconds`.
fn measure(
    batches: &mut Batches<CudaBatch>,
    stream: &Arc<CudaStream>,
    warmup: f64,
    seconds: f64,
) -> Result<Measurement> {
    let monitor = batches.handle();
    let mut epoch = batches.epoch(0);
    epoch.next().expect("an epoch has batches")?;
    let warmup_start = Instant::now();
    while warmup_start.elapsed().as_secs_f64() < warmup {
        epoch.next().expect("the dataset is too small for the warm-up: use more files, or --warmup 0")?;
    }
    let (mut samples, mut waits, start, start_stats) = (0, Vec::new(), Instant::now(), monitor.stats());
    while start.elapsed().as_secs_f64() < seconds {
        let request_time = Instant::now();
        let Some(batch) = epoch.next() else { break };
        waits.push(request_time.elapsed().as_secs_f64() * 1e3);
        samples += batch?.len();
    }
    stream.synchronize().expect("cannot synchronize the stream");
    let seconds_measured = start.elapsed().as_secs_f64();
    waits.sort_by(f64::total_cmp);
    Ok(Measurement {
        images_per_second: samples as f64 / seconds_measured,
        busy_cores: monitor.stats().since(&start_stats).process.cpu_seconds / seconds_measured,
        p99_wait_ms: waits.get(waits.len() * 99 / 100).copied().unwrap_or_default(),
    })
}
