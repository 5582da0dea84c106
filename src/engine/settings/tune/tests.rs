use super::*;
use crate::engine::settings::Bounds;

/// Model of a loader, which computes the counters for a given prefetch depth.
struct Load {
    cores: usize,
    /// CPU time per sample, in seconds.
    computes: f64,
    /// Samples read per second for each prefetched batch.
    reads: f64,
    /// Maximum throughput of the storage, in samples per second.
    storage: f64,
    /// Duration of the consumer's long step. One step in every [`PERIOD`] is long; the other steps
    /// take no time.
    pause: f64,
}

const PERIOD: f64 = 12.0;
const BATCH: f64 = 32.0;
const WORKERS: usize = 4;

const COMPUTES: Load =
    Load { cores: WORKERS, computes: 1e-3, reads: f64::INFINITY, storage: f64::INFINITY, pause: 0.0 };

impl Load {
    /// Returns what the counters would read over a one-second window, on average.
    fn window(&self, prefetch: usize) -> Sums {
        let computed = WORKERS as f64 / self.computes;
        let made = computed.min(self.reads * prefetch as f64).min(self.storage);
        let batch = BATCH / made;
        // All slots are filled during the long step. The other steps consume these batches, then
        // wait.
        let ahead = (Settings::slots_for(prefetch) as f64 - 1.0).min(self.pause / batch);
        let waits = ((PERIOD - ahead).max(0.0) * batch).max(0.0);
        let period = if self.pause == 0.0 { PERIOD * batch } else { self.pause + waits };
        let rate = PERIOD * BATCH / period;
        let blocked = if self.pause == 0.0 { 0.9 } else { (self.pause - ahead * batch).max(0.0) / period };
        Sums {
            seconds: 1.0,
            batches: rate / BATCH,
            samples: rate,
            waited: if self.pause == 0.0 { 0.99 } else { waits / period },
            stalled: 0.0,
            blocked,
            busy: rate * self.computes,
            cpu: (rate * self.computes).min(self.cores as f64),
            delayed: 0.0,
        }
    }
}

/// Returns the prefetch depth after `windows` windows, and the number of changes in the second half
/// of them.
fn settle(climb: &mut Climb, load: &Load, windows: usize) -> (usize, usize) {
    let mut late = 0;
    for i in 0..windows {
        let window = load.window(climb.prefetch);
        if climb.window(window).is_some() && i >= windows / 2 {
            late += 1;
        }
    }
    (climb.prefetch, late)
}

fn climb() -> Climb {
    Climb::new(&Settings::new(WORKERS, WORKERS, Bounds { least: 2, most: 16 }))
}

fn best(load: &Load) -> f64 {
    (1..=16).map(|prefetch| load.window(prefetch).samples).fold(0.0, f64::max)
}

#[test]
fn work_that_only_computes_keeps_its_first_prefetch_depth() {
    assert_eq!(settle(&mut climb(), &COMPUTES, 400), (2, 0));
}

#[test]
fn a_bursty_consumer_gets_a_larger_prefetch_depth() {
    let load = Load { pause: 0.1, ..COMPUTES };
    let (prefetch, late) = settle(&mut climb(), &load, 400);
    assert_eq!(prefetch, 16);
    assert!(late <= 8, "{late} changes in 200 windows: trials become less frequent");
    assert_eq!(load.window(prefetch).samples, best(&load));
}

#[test]
fn slow_reads_raise_prefetch_until_storage_is_saturated() {
    let load = Load { reads: 100.0, storage: 700.0, ..COMPUTES };
    let (prefetch, late) = settle(&mut climb(), &load, 400);
    assert_eq!(prefetch, 8, "a depth of 7 already saturates the storage");
    assert!(late <= 8, "{late}");
}

#[test]
fn a_consumer_that_does_not_wait_changes_nothing() {
    let calm = Sums { seconds: 1.0, batches: 20.0, samples: 640.0, busy: 2.0, blocked: 0.5, ..Sums::default() };
    let mut climb = climb();
    assert!((0..200).all(|_| climb.window(calm).is_none()));
}

#[test]
fn load_of_other_programs_does_not_raise_prefetch() {
    // Another program uses two cores: the workers run half of the time, and wait for a core in the
    // other half.
    let shared = Sums {
        seconds: 1.0,
        batches: 20.0,
        samples: 640.0,
        waited: 0.99,
        blocked: 0.9,
        busy: 3.5,
        cpu: 2.0,
        delayed: 2.0,
        ..Sums::default()
    };
    let mut climb = climb();
    assert!((0..200).all(|_| climb.window(shared).is_none()));
}

#[test]
fn a_prefetch_depth_set_by_the_user_stays() {
    let load = Load { pause: 0.1, ..COMPUTES };
    let settings = Arc::new(Settings::new(4, 3, Bounds::exactly(5)));
    assert_eq!(settle(&mut Climb::new(&settings), &load, 200), (5, 0));
    assert!(Tuner::new(&settings).is_none());
}

#[test]
fn an_epoch_that_begins_at_once_reads_no_counters_again() {
    let settings = Arc::new(Settings::new(WORKERS, WORKERS, Bounds { least: 2, most: 16 }));
    let (tuner, counters) = (Tuner::new(&settings).unwrap(), Counters::new(1, 1, Vec::new()).unwrap());
    for (after, continues) in [(Duration::ZERO, true), (AT_ONCE, false)] {
        tuner.begin(&counters);
        tuner.end(&counters);
        let (_, ended) = tuner.state().ended.unwrap();
        // The time is in the future, so that a delay of this thread does not matter.
        let ahead = Instant::now() + Duration::from_secs(60);
        let at = if after.is_zero() { ahead } else { Instant::now().checked_sub(after).unwrap() };
        tuner.state().ended = Some((at, ended));
        tuner.begin(&counters);
        assert_eq!(tuner.state().from.unwrap().seconds == ended.seconds, continues);
    }
}
