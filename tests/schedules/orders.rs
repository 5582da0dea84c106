//! Tests that, for each explored interleaving of the threads, nothing deadlocks, all threads end,
//! and batches and faults are as expected.

use std::sync::atomic::Ordering::Relaxed;

use crate::faults::{Account, Schedule, run};
use crate::scheduler::{self, Explored};
use crate::support::silence_panics;

/// Number of interleavings per schedule of faults.
const ORDERS: u64 = 10;

#[test]
fn the_order_of_threads_changes_nothing() {
    crate::process::own_process!(the_order_of_threads_changes_nothing);
    silence_panics();
    let explore = |seeds| {
        let explored = scheduler::explore(seeds, |seed| {
            let mut schedule = Schedule::draw(seed / ORDERS);
            schedule.pauses = true;
            let Account { delivered, skipped, undelivered, total, stopped } = run(&schedule);
            assert_eq!(delivered + skipped + undelivered, total);
            assert_eq!(scheduler::running_threads(), 0, "threads outlive the loader");
            [delivered, skipped, undelivered, stopped, schedule.ahead.load(Relaxed)]
        });
        explored.unwrap_or_else(|seed| panic!("schedule {seed}: {:?}", Schedule::draw(seed / ORDERS)))
    };
    let Explored { counts, summary, .. } = explore(scheduler::seeds(0..8_000));
    println!("{summary}; delivered, skipped, undelivered, stopped, read ahead: {counts:?}");
    assert!(counts.iter().all(|&count| count > 0) || scheduler::are_selected());
    assert_eq!(explore(0..20).order, explore(0..20).order, "a seed repeats the order of the threads");
}
