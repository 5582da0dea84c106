//! Measures the latency and throughput of `Decoder`. Run with
//! `cargo bench --bench decoder -- PATH [--seconds N] [--workers N]`.
//!
//! Each request contains 1, 8, 64 or 256 images from the dataset at PATH. A batch contains
//! normalized 224x224 center crops, as `f16` in the layout (N, C, H, W). If a GPU is available,
//! batches are in device memory, and each request size is measured twice: decoding on the GPU and
//! on the CPU.
//!
//! - "median ms", "p99 ms": latency from the call until the batch is in host or device memory, with
//!   one request at a time.
//! - "images/s": rate with one request at a time.
//! - "in flight: images/s": rate with four requests in flight.
//! - "on the device": percentage of images that workers sent to the GPU for decoding.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpfeed::{Augment, DecodeOn, Decoder, Dtype, Layout, Normalize, Result, cuda, source};

const REQUESTS_IN_FLIGHT: usize = 4;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let option = |name: &str, default: f64| {
        let index = arguments.iter().position(|a| a == name);
        index
            .and_then(|i| arguments.get(i + 1))
            .map_or(default, |n| n.parse().expect("--seconds and --workers must be numbers"))
    };
    let (seconds, workers) = (option("--seconds", 2.0), option("--workers", 0.0) as usize);
    let Some(path) = arguments.first().filter(|path| !path.starts_with("--")) else {
        println!("skipped; usage: cargo bench --bench decoder -- PATH");
        return Ok(());
    };
    let source = source::open(path)?;
    let mut scratch = Vec::new();
    let image = |index| {
        Ok(Arc::from(source.read(index, &mut scratch)?.image().expect("each sample of PATH must have an image").1))
    };
    let images = (0..source.len()).map(image).collect::<Result<Vec<Arc<[u8]>>>>()?;
    let bytes: usize = images.iter().map(|image| image.len()).sum();
    println!("{} images of {} bytes on average", images.len(), bytes / images.len());
    println!(
        "{:<22} {:>7} {:>10} {:>10} {:>12} {:>19} {:>16}",
        "", "request", "median ms", "p99 ms", "images/s", "in flight: images/s", "on the device"
    );
    let stream = cuda::stream(0);
    for size in [1, 8, 64, 256] {
        let options = |decode_on| {
            let options = Decoder::builder()
                .batch_size(size)
                .workers(workers)
                .max_in_flight(REQUESTS_IN_FLIGHT)
                .decode_on(decode_on);
            let options = options.augment(Augment::eval(256, 224)).normalize(Normalize::IMAGENET);
            options.dtype(Dtype::F16).layout(Layout::Nchw)
        };
        match &stream {
            Ok(stream) => {
                for decode_on in [DecodeOn::Gpu, DecodeOn::Cpu] {
                    let decoder = options(decode_on).cuda(stream)?;
                    let synchronize = || stream.synchronize().expect("the stream can be synchronized");
                    measure(&format!("{decode_on:?}"), &decoder, &images, size, seconds, synchronize)?;
                }
            }
            Err(_) => measure("host memory", &options(DecodeOn::Cpu).host()?, &images, size, seconds, || ())?,
        }
    }
    Ok(())
}

fn measure<B: Send + 'static>(
    name: &str,
    decoder: &Decoder<B>,
    images: &[Arc<[u8]>],
    size: usize,
    seconds: f64,
    synchronize: impl Fn(),
) -> Result<()> {
    let mut images_in_turn = images.iter().cycle().cloned();
    let mut next_request = || images_in_turn.by_ref().take(size).collect::<Vec<_>>();
    for _ in 0..10 {
        decoder.decode(next_request())?;
    }
    let (start, mut latencies) = (Instant::now(), Vec::new());
    while start.elapsed().as_secs_f64() < seconds {
        let (images, request_time) = (next_request(), Instant::now());
        let batch = decoder.decode(images)?;
        synchronize();
        latencies.push(request_time.elapsed());
        drop(batch);
    }
    let single_rate = (latencies.len() * size) as f64 / latencies.iter().sum::<Duration>().as_secs_f64();
    latencies.sort();
    let quantile = |fraction: f64| latencies[(latencies.len() as f64 * fraction) as usize].as_secs_f64() * 1e3;

    let mut pending: VecDeque<_> =
        (0..REQUESTS_IN_FLIGHT).map(|_| decoder.submit(next_request())).collect::<Result<_>>()?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        drop(pending.pop_front().expect("REQUESTS_IN_FLIGHT requests are always pending").wait()?);
        pending.push_back(decoder.submit(next_request())?);
        count += size;
    }
    let in_flight_rate = count as f64 / start.elapsed().as_secs_f64();
    let stats = decoder.stats();
    println!(
        "{name:<22} {size:>7} {:>10.2} {:>10.2} {single_rate:>12.0} {in_flight_rate:>19.0} {:>14.1}%",
        quantile(0.5),
        quantile(0.99),
        stats.images_sent_to_device as f64 / stats.prepared_samples.max(1) as f64 * 100.0,
    );
    Ok(())
}
