//! Measures the cost of tracing. Three loaders run in turn: without a trace, with a trace that does
//! not record yet, and with a trace that records. The benchmark also measures one update of the
//! statistics, which are always on.
//!
//! ```text
//! cargo bench --bench trace
//! ```
#![allow(missing_docs)]

use std::time::Instant;

use warpfeed::trace::Schedule;
use warpfeed::{Augment, Batches, HostBatch, Loader, source};
use warpfeed_sources::internal::Tally;
use warpfeed_synth::Synth;

const ROUNDS: usize = 15;

fn main() {
    println!("{:.1} ns per update of a counter, including reading the clock", update_cost());
    let root = tempfile::tempdir().unwrap();
    for (name, images, side, crop) in [("photographs", 400, 500, 224), ("thumbnails", 4000, 64, 48)] {
        let folder = root.path().join(name);
        Synth::new().images(images).side(side).write(&folder).unwrap();
        let source = source::open(&folder).unwrap();
        let loader = || Loader::source(source.clone()).batch_size(32).shuffle(1).augment(Augment::train(crop));
        let traced_loader = |file: &str, wait: u64| {
            let schedule = Schedule { wait, warmup: 0, active: 1 << 40, repeat: 1 };
            loader().trace(root.path().join(file), schedule).host().unwrap()
        };
        let mut loaders = [
            ("no trace", loader().host().unwrap()),
            ("outside", traced_loader("outside.json", 1 << 40)),
            ("inside", traced_loader("inside.json", 0)),
        ];
        let mut ratios = [const { Vec::new() }; 3];
        for round in 0..=ROUNDS {
            let times = loaders.each_mut().map(|(_, batches)| epoch(batches, round as u64));
            if round > 0 {
                ratios.iter_mut().zip(times).for_each(|(ratios, time)| ratios.push(time / times[0]));
            }
        }
        println!("{name} ({images} images of {side} pixels), CPU time per epoch relative to no trace, {ROUNDS} rounds");
        for ((name, _), ratios) in loaders.iter().zip(&mut ratios).skip(1) {
            ratios.sort_by(f64::total_cmp);
            println!("  {name:<8} median {:.3}, {:.3} to {:.3}", ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
        }
    }
}

/// Returns the cost of a counter update in nanoseconds: the minimum over all rounds.
fn update_cost() -> f64 {
    const ENTRIES: u32 = 1_000_000;
    let tally = Tally::default();
    let round = |_| {
        let start = Instant::now();
        let mut last = start;
        for _ in 0..ENTRIES {
            let now = Instant::now();
            tally.add(now.duration_since(last).as_nanos() as u64, 100);
            last = now;
        }
        start.elapsed().as_nanos() as f64 / f64::from(ENTRIES)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Returns the CPU seconds of an epoch, which vary less than elapsed time on a shared machine.
fn epoch(batches: &mut Batches<HostBatch>, number: u64) -> f64 {
    let start_seconds = batches.stats().process.cpu_seconds;
    for batch in batches.epoch(number) {
        batch.unwrap();
    }
    batches.stats().process.cpu_seconds - start_seconds
}
