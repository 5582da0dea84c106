//! Measures throughput when the workers, the device or both decode. The variants are measured
//! alternately. Run with `cargo bench --bench decode_gpu -- PATH.. [--seconds N] [--turns N]
//! [--only Gpu]`.
//!
//! Each PATH is a dataset of JPEGs, repeated as needed. Batches of 256 crops of 224x224 pixels are
//! delivered on the device as f16 (N, C, H, W). There is one worker per core that the process may
//! use (`taskset -c 0-3`). "GPU ms" is the device time for decoding and converting a batch,
//! measured with events on an otherwise idle device. "at 20,000/s" is the share of device time that
//! decoding and converting would use at 20,000 images per second.

use std::sync::Arc;
use std::time::Instant;

use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::{Augment, Batches, CudaBatch, DecodeOn, Dtype, Layout, Loader, Normalize, Result, cuda};

const BATCH: usize = 256;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let option = |name: &str, default: f64| {
        let at = arguments.iter().position(|a| a == name);
        at.and_then(|i| arguments.get(i + 1)).map_or(default, |n| n.parse().expect("a number"))
    };
    let (seconds, turns) = (option("--seconds", 3.0), option("--turns", 2.0) as usize);
    let only = arguments.iter().position(|a| a == "--only").and_then(|i| arguments.get(i + 1));
    let options: Vec<usize> = ["--seconds", "--turns", "--only"]
        .iter()
        .filter_map(|name| arguments.iter().position(|a| a == name))
        .flat_map(|at| [at, at + 1])
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
    println!("{cores} cores, {turns} turns of {seconds} s");
    for path in paths {
        println!("{path}\n  decoded on   images/s (each turn)          GPU ms  at 20,000/s  on the device  busy cores");
        let choices = [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto];
        let mut open = choices
            .iter()
            .filter(|on| only.is_none_or(|only| *only == format!("{on:?}")))
            .map(|&on| Ok((on, loader(path, on).cuda(&stream)?, Vec::new())))
            .collect::<Result<Vec<_>>>()?;
        for _ in 0..turns {
            for (_, batches, rates) in &mut open {
                rates.push(rate(batches, &stream, seconds)?);
            }
        }
        for (on, batches, rates) in &open {
            let stats = batches.stats();
            let each: Vec<String> = rates.iter().map(|(rate, _)| format!("{rate:.0}")).collect();
            let of_gpu = [&stats.device_decode, &stats.convert];
            let gpu =
                of_gpu.into_iter().flatten().map(|stage| stage.seconds).sum::<f64>() / stats.batches.max(1) as f64;
            println!(
                "  {:<12} {:<30} {:>6.3} {:>10.1} % {:>12.1} % {:>11.1}",
                format!("{on:?}"),
                each.join(" "),
                gpu * 1e3,
                gpu * 20_000.0 / BATCH as f64 * 100.0,
                stats.decoded_on_device as f64 / stats.prepared.max(1) as f64 * 100.0,
                rates.iter().map(|r| r.1).fold(0.0, f64::max),
            );
        }
        if let Some((.., batches, _)) = open.last() {
            println!("  {}", batches.memory_plan());
        }
    }
    Ok(())
}

fn loader(path: &str, on: DecodeOn) -> Loader {
    Loader::new(path)
        .batch_size(BATCH)
        .shuffle(42)
        .repeat(200)
        .augment(Augment::train(224))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F16)
        .layout(Layout::Nchw)
        .prefetch(4)
        .decode_on(on)
}

/// Returns the images per second, and the number of cores that the process kept busy.
fn rate(batches: &mut Batches<CudaBatch>, stream: &Arc<CudaStream>, seconds: f64) -> Result<(f64, f64)> {
    let (mut samples, mut since, mut warm) = (0, Instant::now(), 0);
    let monitor = batches.handle();
    let mut before = monitor.stats();
    for batch in batches.epoch(0) {
        let count = batch?.len();
        warm += 1;
        if warm <= 12 {
            (since, before) = (Instant::now(), monitor.stats());
            continue;
        }
        samples += count;
        if since.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    stream.synchronize().expect("the stream is alive");
    let took = since.elapsed().as_secs_f64();
    let cores = monitor.stats().since(&before).process.cpu_seconds / took;
    Ok((samples as f64 / took, cores))
}
