//! Compares the loader's automatic settings with a grid search over workers and prefetch, on three
//! workloads with different bottlenecks.
//!
//! ```text
//! cargo bench --bench tune [-- waiting | computing | bursty]
//! ```
//!
//! The benchmark first searches the grid. It then gives the automatic settings 14 s to converge,
//! and alternates between the best cell of the grid and the automatic loader.
#![allow(missing_docs)]

use std::thread::sleep;
use std::time::{Duration, Instant};

use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Batches, HostBatch, Loader, Result, source};
use warpfeed_synth::Synth;

const ROUNDS: usize = 9;
const CELL_TIME: Duration = Duration::from_millis(600);
const ROUND_TIME: Duration = Duration::from_millis(700);
const SETTLE_TIME: Duration = Duration::from_secs(14);

/// A source whose reads block for a fixed duration, like reads from a network.
struct SlowReads(Duration);

impl Source for SlowReads {
    fn len(&self) -> usize {
        1 << 20
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        sleep(self.0);
        scratch.clear();
        scratch.extend_from_slice(&(index as u64).to_le_bytes());
        Sample::new("sample").with_field("img", scratch)
    }
}

struct Gray;

impl Codec for Gray {
    fn format(&self) -> Format {
        Format::any("gray")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(64, 64)))
    }

    fn decode(&self, _: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(region.size()).fill(127);
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

struct Workload {
    name: &'static str,
    loader: Loader,
    workers: &'static [usize],
    prefetch: &'static [usize],
    step: fn(u64) -> Duration,
}

fn main() {
    let names: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let root = tempfile::tempdir().unwrap();
    Synth::new().images(400).side(400).write(root.path()).unwrap();
    let images = source::open(root.path()).unwrap();
    let slow_loader = |ms| Loader::source(SlowReads(Duration::from_millis(ms))).codec(Gray).augment(Augment::train(48));
    let workloads = [
        Workload {
            name: "waiting: 4 ms per read, a consumer that takes no time",
            loader: slow_loader(4).batch_size(16),
            workers: &[2, 4, 8, 16, 32],
            prefetch: &[2, 8],
            step: |_| Duration::ZERO,
        },
        Workload {
            name: "computing: synthetic photographs of about 400 pixels, crop 224",
            loader: Loader::source(images).augment(Augment::train(224)).batch_size(32).shuffle(1).repeat(100),
            workers: &[1, 2, 4, 8],
            prefetch: &[2, 8],
            step: |_| Duration::ZERO,
        },
        Workload {
            name: "bursty: 1 ms per read, two workers; one step in 12 takes 60 ms",
            loader: slow_loader(1).batch_size(8).workers(2),
            workers: &[2],
            prefetch: &[1, 2, 4, 8, 12, 16],
            step: |n| Duration::from_millis(if n % 12 == 11 { 60 } else { 0 }),
        },
    ];
    for workload in workloads
        .into_iter()
        .filter(|workload| names.is_empty() || names.iter().any(|w| workload.name.starts_with(&**w)))
    {
        workload.run();
    }
}

impl Workload {
    fn run(self) {
        let Workload { name, loader, workers, prefetch, step } = self;
        println!("{name}");
        let mut best = (0.0, 0, 0);
        for (&workers, &prefetch) in workers.iter().flat_map(|w| prefetch.iter().map(move |p| (w, p))) {
            let mut batches = loader.clone().workers(workers).prefetch(prefetch).host().unwrap();
            let mut run = Run::new(&mut batches, step);
            run.rate(CELL_TIME / 3);
            let rate = run.rate(CELL_TIME);
            println!("  workers {workers:>2}, prefetch {prefetch:>2}: {rate:>7.0} samples/s");
            best = if rate > best.0 { (rate, workers, prefetch) } else { best };
        }
        // If the number of workers is fixed, only the prefetch depth is tuned.
        let automatic = if workers.len() == 1 { loader.clone().workers(workers[0]) } else { loader.clone() };
        let mut automatic = automatic.host().unwrap();
        let mut grid_best = loader.workers(best.1).prefetch(best.2).host().unwrap();
        let start = Instant::now();
        let mut changes = Vec::new();
        while start.elapsed() < SETTLE_TIME {
            Run::new(&mut automatic, step).rate(Duration::from_millis(250));
            let settings = (automatic.workers(), automatic.prefetch());
            if changes.last().is_none_or(|(_, last)| *last != settings) {
                changes.push((start.elapsed().as_secs_f64(), settings));
            }
        }
        let settings_path: Vec<_> = changes.iter().map(|(time, (w, p))| format!("{w}/{p} at {time:.1} s")).collect();
        println!("  automatic workers/prefetch: {}", settings_path.join(", "));
        let mut ratios: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let automatic_rate = Run::new(&mut automatic, step).rate(ROUND_TIME);
                let grid_rate = Run::new(&mut grid_best, step).rate(ROUND_TIME);
                automatic_rate / grid_rate
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "  automatic (now {}/{}) compared with the best of the grid ({}/{}): {:.3}, {:.3} to {:.3}, {ROUNDS} rounds",
            automatic.workers(),
            automatic.prefetch(),
            best.1,
            best.2,
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1]
        );
    }
}

struct Run<'a> {
    batches: &'a mut Batches<HostBatch>,
    step: fn(u64) -> Duration,
}

impl<'a> Run<'a> {
    fn new(batches: &'a mut Batches<HostBatch>, step: fn(u64) -> Duration) -> Self {
        Run { batches, step }
    }

    /// Returns the samples per second, measured for about `time` after the first batches of an
    /// epoch.
    fn rate(&mut self, time: Duration) -> f64 {
        let (mut samples, mut start) = (0, None::<Instant>);
        loop {
            for batch in self.batches.epoch(0) {
                let batch = batch.unwrap();
                sleep((self.step)(batch.batch_index()));
                match start {
                    // Start the clock after 24 batches, when the pipeline is full.
                    None if batch.batch_index() >= 23 => start = Some(Instant::now()),
                    None => {}
                    Some(start) => {
                        samples += batch.len();
                        if start.elapsed() >= time {
                            return samples as f64 / start.elapsed().as_secs_f64();
                        }
                    }
                }
            }
        }
    }
}
