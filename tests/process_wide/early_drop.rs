//! Tests that a program may abandon an epoch or drop the loader at any point. Threads must be
//! joined and slots returned, and batches that the program holds must stay valid.

use crate::process::serial;
use crate::support::{BatchContent, NumberSource, exit_on_hang, loader, wait_for_threads};
use warpfeed::sampler::Rng;

#[test]
fn dropping_at_any_point_joins_threads_and_returns_slots() {
    let _serial = serial();
    exit_on_hang(|| {
        let source = NumberSource::new(300);
        // Every other loader chooses its number of workers, and tunes its prefetch depth, for which
        // it has spare slots.
        let make = |n: u32| {
            let loader = loader(source.clone()).shuffle(3);
            if n.is_multiple_of(2) { loader.workers(4).prefetch(3) } else { loader }
        };
        let unbroken: Vec<_> = make(0).into_iter().map(|b| BatchContent::from(&b.unwrap())).collect();
        wait_for_threads(0);

        let mut rng = Rng::new(11, 0, 0);
        for n in 0..60 {
            let mut batches = make(n).host().unwrap();
            wait_for_threads(batches.workers() + 1); // workers and coordinator
            let mut held_batch = None;
            for _ in 0..rng.below(4) {
                let stop = rng.below(unbroken.len() as u64 + 1) as usize;
                for (i, batch) in batches.epoch(0).take(stop).enumerate() {
                    let batch = batch.unwrap();
                    assert!(
                        BatchContent::from(&batch) == unbroken[i],
                        "batch {i} is the same after an epoch was abandoned"
                    );
                    held_batch = Some((i, batch));
                }
            }
            if rng.chance(0.5) {
                drop(batches.epoch(1));
            }
            drop(batches);
            wait_for_threads(0);
            if let Some((i, batch)) = held_batch {
                assert!(
                    BatchContent::from(&batch) == unbroken[i],
                    "batch {i} is unchanged after its loader was dropped"
                );
            }
        }
    });
}
