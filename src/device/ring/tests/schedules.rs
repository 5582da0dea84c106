//! Tests the ring under thread schedules chosen by a seed. The copy thread, the consumer, the
//! loader and the simulated streams run one at a time.

use super::*;
use crate::scheduler;

#[derive(Debug)]
struct Drawn {
    what: usize,
    /// Maximum pause of the device, in microseconds.
    device: usize,
    /// Maximum time that the loader takes per batch, in microseconds.
    loader: u64,
    /// For each run: its first batch, the number of batches to receive, and whether `stop` ends the
    /// run before the next one begins.
    runs: Vec<(u64, u64, bool)>,
    keeps: usize,
    ring_goes_first: bool,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 7, 7);
        let mut below = |end: u64| rng.next_u64() % end;
        let runs = (0..1 + below(3)).map(|_| {
            let first = BATCHES - 2 - below(8);
            (first, below(BATCHES - first + 3), below(2) == 0)
        });
        Drawn {
            runs: runs.collect(),
            what: below(KINDS as u64) as usize,
            device: [0, 5, 50][below(3) as usize],
            loader: [0, 30, 300][below(3) as usize],
            keeps: below(SLOTS as u64) as usize,
            ring_goes_first: below(2) == 0,
        }
    }
}

const KINDS: usize = 5;

fn kind(what: usize) -> Spec {
    match what {
        0 => spec(CONVERTED),
        1 => spec(COPIED),
        2 => spec_of(vec![image("image", 8, 9), label()], COPIED, true),
        3 => spec_of(vec![image("left", 8, 9), image("right", 8, 9)], CONVERTED, false),
        _ => overlapping(),
    }
}

/// Returns the number of batches, and the number of torn batches, which were incomplete or
/// overwritten when the consumer read them.
fn run(drawn: &Drawn, mistake: Mistake) -> [u64; 2] {
    let sim = Sim::new(mistake, drawn.device);
    let mut ring = open_spec(&sim, kind(drawn.what), drawn.loader).unwrap();
    let (seen, mut expected, mut held_batches) = (Seen::default(), Vec::new(), std::collections::VecDeque::new());
    for (epoch, &(first, count, ends)) in (0..).zip(&drawn.runs) {
        ring.start(RunPlan::one_epoch(epoch, first..BATCHES));
        for number in first..first + count {
            let Some(batch) = next(&mut ring) else {
                assert_eq!(number, BATCHES, "a batch is missing");
                break;
            };
            let batch = batch.unwrap();
            assert_eq!((batch.info().epoch(), batch.info().batch_index()), (epoch, number));
            read(&batch, &seen);
            expected.push((epoch, number));
            held_batches.push_back(batch);
            if held_batches.len() > drawn.keeps {
                held_batches.pop_front();
            }
        }
        if ends {
            ring.stop();
            assert!(next(&mut ring).is_none());
        }
    }
    let shared = ring.shared.clone();
    if drawn.ring_goes_first {
        drop(ring);
        held_batches.clear();
    } else {
        held_batches.clear();
        drop(ring);
    }
    finish(&sim, &shared.consumer);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().map(|&(epoch, number, _)| (epoch, number)).eq(expected), "each batch is read once, in order");
    [seen.len() as u64, seen.iter().filter(|(_, _, is_whole)| !is_whole).count() as u64]
}

const ORDERS: u64 = 10;

#[test]
fn no_batch_is_torn_under_any_thread_schedule() {
    crate::process::own_process!(no_batch_is_torn_under_any_thread_schedule);
    let explored = scheduler::explore(scheduler::seeds(0..1000), |seed| {
        let [arrived, torn] = run(&Drawn::new(seed / ORDERS), Mistake::None);
        assert_eq!(torn, 0);
        [arrived]
    });
    let explored = explored.unwrap_or_else(|seed| panic!("schedule {seed}: {:?}", Drawn::new(seed / ORDERS)));
    println!("{}; {} batches", explored.summary, explored.counts[0]);
}

/// The schedules are useful only if they detect mistakes.
#[test]
fn thread_schedules_detect_each_missing_wait() {
    crate::process::own_process!(thread_schedules_detect_each_missing_wait);
    for (mistake, what) in [
        (Mistake::ConsumerWait, 0),
        (Mistake::ConsumerWait, 1),
        (Mistake::ConsumerWait, 2),
        (Mistake::ReleasedWait, 0),
        (Mistake::ReleasedWait, 1),
        (Mistake::ReleasedWait, 2),
        (Mistake::ReleasedWait, 4),
        (Mistake::StagingWait, 0),
        (Mistake::StagingWait, 3),
        (Mistake::StagingWait, 4),
        (Mistake::LaneWait, 4),
        (Mistake::SwitchWait, 4),
        (Mistake::CopiedWait, 0),
        (Mistake::CopiedWait, 2),
        (Mistake::CopiedWait, 4),
        (Mistake::EarlyReturn, 0),
        (Mistake::EarlyReturn, 1),
    ] {
        let schedules = scheduler::explore(0..500, |seed| {
            let [_, torn] = run(&Drawn { what, ..Drawn::new(seed) }, mistake);
            [u64::from(torn > 0)]
        });
        let schedule = schedules.expect("a torn batch is the only failure");
        println!("{mistake:?} with kind {what}: found by {} of {}", schedule.counts[0], schedule.summary);
        assert!(schedule.counts[0] > 0, "{mistake:?} with kind {what} is not detected");
    }
}
