//! Cost of tracing: the loader without a trace, outside a trace's window, and inside it, in turns.
//!
//! ```text
//! cargo bench --bench trace
//! ```
//!
//! Counters cannot be turned off. `cargo test --lib -- --ignored --nocapture an_entry` prints the
//! cost of one entry.
#![allow(missing_docs)]

use warpfeed::trace::Schedule;
use warpfeed::{Augment, Batches, HostBatch, Loader, source};
use warpfeed_synth::Synth;

const TURNS: usize = 15;

fn main() {
    let root = tempfile::tempdir().unwrap();
    for (name, images, side, crop) in [("photographs", 400, 500, 224), ("thumbnails", 4000, 64, 48)] {
        let folder = root.path().join(name);
        Synth::new().images(images).side(side).write(&folder).unwrap();
        let source = source::open(&folder).unwrap();
        let loader = || Loader::source(source.clone()).batch_size(32).shuffle(1).augment(Augment::train(crop));
        let traced = |file: &str, wait: u64| {
            let schedule = Schedule { wait, warmup: 0, active: 1 << 40, repeat: 1 };
            loader().trace(root.path().join(file), schedule).host().unwrap()
        };
        let mut all = [
            ("no trace", loader().host().unwrap()),
            ("outside", traced("outside.json", 1 << 40)),
            ("inside", traced("inside.json", 0)),
        ];
        let mut ratios = [const { Vec::new() }; 3];
        for turn in 0..=TURNS {
            let times = all.each_mut().map(|(_, batches)| epoch(batches, turn as u64));
            // The first turn warms up.
            if turn > 0 {
                ratios.iter_mut().zip(times).for_each(|(ratios, time)| ratios.push(time / times[0]));
            }
        }
        println!(
            "{name} ({images} of {side} pixels), CPU time of an epoch relative to that without a trace, {TURNS} turns"
        );
        for ((what, _), ratios) in all.iter().zip(&mut ratios).skip(1) {
            ratios.sort_by(f64::total_cmp);
            println!("  {what:<8} median {:.3}, {:.3} to {:.3}", ratios[TURNS / 2], ratios[0], ratios[TURNS - 1]);
        }
    }
}

/// Measures the CPU seconds of an epoch. On a shared machine they vary less than elapsed time.
fn epoch(batches: &mut Batches<HostBatch>, number: u64) -> f64 {
    let before = batches.stats().process.cpu_seconds;
    for batch in batches.epoch(number) {
        batch.unwrap();
    }
    batches.stats().process.cpu_seconds - before
}
