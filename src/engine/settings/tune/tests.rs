//! Tests the hill climber with a model of a loader.

use super::*;
use crate::engine::settings::Bounds;
use crate::sampler::Rng;

struct LoaderModel {
    cores: usize,
    cpu_seconds_per_sample: f64,
    /// Samples per second that the storage delivers for each prefetched batch.
    reads_per_batch: f64,
    /// Maximum throughput of the storage, in samples per second.
    max_storage_rate: f64,
    /// Duration of the consumer's long step, in seconds. One of every [`PERIOD`] steps is long, and
    /// the others take no time.
    long_step_seconds: f64,
}

const PERIOD: f64 = 12.0;
const BATCH: f64 = 32.0;
const WORKERS: usize = 4;

const CPU_BOUND: LoaderModel = LoaderModel {
    cores: WORKERS,
    cpu_seconds_per_sample: 1e-3,
    reads_per_batch: f64::INFINITY,
    max_storage_rate: f64::INFINITY,
    long_step_seconds: 0.0,
};

impl LoaderModel {
    /// Average counters of a window of one second.
    fn window(&self, prefetch: usize) -> Sums {
        let computed = WORKERS as f64 / self.cpu_seconds_per_sample;
        let rate = computed.min(self.reads_per_batch * prefetch as f64).min(self.max_storage_rate);
        let batch = BATCH / rate;
        // During the long step, workers fill every slot. Short steps first drain those batches.
        let ahead = (Settings::slots_for(prefetch) as f64 - 1.0).min(self.long_step_seconds / batch);
        let waits = ((PERIOD - ahead).max(0.0) * batch).max(0.0);
        let period = if self.long_step_seconds == 0.0 { PERIOD * batch } else { self.long_step_seconds + waits };
        let rate = PERIOD * BATCH / period;
        let slot_wait_seconds = if self.long_step_seconds == 0.0 {
            0.9
        } else {
            (self.long_step_seconds - ahead * batch).max(0.0) / period
        };
        Sums {
            seconds: 1.0,
            batches: rate / BATCH,
            samples: rate,
            wait_seconds: if self.long_step_seconds == 0.0 { 0.99 } else { waits / period },
            stall_seconds: 0.0,
            straggler_wait_seconds: 0.0,
            slot_wait_seconds,
            busy_seconds: rate * self.cpu_seconds_per_sample,
            cpu_seconds: (rate * self.cpu_seconds_per_sample).min(self.cores as f64),
            delayed_seconds: 0.0,
        }
    }
}

/// Returns the final prefetch depth, and the number of changes in the second half.
fn settle(climber: &mut HillClimber, load: &LoaderModel, windows: usize) -> (usize, usize) {
    let mut late_changes = 0;
    for i in 0..windows {
        let window = load.window(climber.prefetch);
        if climber.add_window(window).is_some() && i >= windows / 2 {
            late_changes += 1;
        }
    }
    (climber.prefetch, late_changes)
}

fn climber() -> HillClimber {
    HillClimber::new(&Settings::new(WORKERS, WORKERS, Bounds { min: 2, max: 16 }))
}

fn best(load: &LoaderModel) -> f64 {
    (1..=16).map(|prefetch| load.window(prefetch).samples).fold(0.0, f64::max)
}

#[test]
fn a_loader_limited_by_cores_keeps_its_prefetch_depth() {
    assert_eq!(settle(&mut climber(), &CPU_BOUND, 400), (2, 0));
}

#[test]
fn a_bursty_consumer_gets_a_larger_prefetch_depth() {
    let load = LoaderModel { long_step_seconds: 0.1, ..CPU_BOUND };
    let (prefetch, late_changes) = settle(&mut climber(), &load, 400);
    assert_eq!(prefetch, 16);
    assert!(late_changes <= 8, "{late_changes} changes in 200 windows: trials become less frequent");
    assert_eq!(load.window(prefetch).samples, best(&load));
}

#[test]
fn slow_reads_raise_prefetch_until_storage_is_saturated() {
    let load = LoaderModel { reads_per_batch: 100.0, max_storage_rate: 700.0, ..CPU_BOUND };
    let (prefetch, late_changes) = settle(&mut climber(), &load, 400);
    assert_eq!(prefetch, 8, "a depth of 7 already saturates the storage");
    assert!(late_changes <= 8, "{late_changes}");
}

#[test]
fn prefetch_does_not_change_if_the_consumer_never_waits() {
    let calm = Sums {
        seconds: 1.0,
        batches: 20.0,
        samples: 640.0,
        busy_seconds: 2.0,
        slot_wait_seconds: 0.5,
        ..Sums::default()
    };
    let mut climber = climber();
    assert!((0..200).all(|_| climber.add_window(calm).is_none()));
}

#[test]
fn load_of_other_programs_does_not_raise_prefetch() {
    // Other programs use two of the four cores, so each worker waits for a core about half of the
    // time.
    let shared = Sums {
        seconds: 1.0,
        batches: 20.0,
        samples: 640.0,
        wait_seconds: 0.99,
        slot_wait_seconds: 0.9,
        busy_seconds: 3.5,
        cpu_seconds: 2.0,
        delayed_seconds: 2.0,
        ..Sums::default()
    };
    let mut climber = climber();
    assert!((0..200).all(|_| climber.add_window(shared).is_none()));
}

/// Simulates a loader in which a few samples take far longer than a batch. A slow sample occupies
/// one worker, while the other workers fill later batches as long as slots are free.
struct UnevenModel {
    /// Time in which all workers together fill a batch without a slow sample.
    batch_seconds: f64,
    /// Time of one worker per slow sample.
    slow_seconds: f64,
    /// Average number of batches between two slow samples.
    slow_interval: f64,
    step_seconds: f64,
    rng: Rng,
    /// When each batch became full, and when the consumer received it.
    full_times: Vec<f64>,
    delivery_times: Vec<f64>,
    /// When the last batch received its slot, and when the workers finished its usual samples.
    last_begin: f64,
    last_work_end: f64,
    sums: Sums,
}

const MANY_WORKERS: usize = 16;

impl UnevenModel {
    fn new(seed: u64, [batch_seconds, slow_seconds, slow_interval, step_seconds]: [f64; 4]) -> Self {
        let (full_times, delivery_times, sums) = (Vec::new(), Vec::new(), Sums::default());
        UnevenModel {
            batch_seconds,
            slow_seconds,
            slow_interval,
            step_seconds,
            rng: Rng::new(seed, 0, 0),
            full_times,
            delivery_times,
            last_begin: 0.0,
            last_work_end: 0.0,
            sums,
        }
    }

    fn make(&mut self, slots: usize) {
        let free = self.full_times.len().checked_sub(slots).map_or(0.0, |before| self.delivery_times[before]);
        self.sums.slot_wait_seconds += (free - self.last_begin).max(0.0);
        self.last_begin = self.last_begin.max(free);
        self.last_work_end = self.last_work_end.max(self.last_begin) + self.batch_seconds;
        let slow = self.rng.chance(1.0 / self.slow_interval);
        let last = self.last_work_end + self.batch_seconds / 4.0 * self.rng.unit();
        let work = self.batch_seconds * MANY_WORKERS as f64 + if slow { self.slow_seconds } else { 0.0 };
        self.full_times.push(if slow { last.max(self.last_begin + self.slow_seconds) } else { last });
        self.sums.busy_seconds += work;
        self.sums.cpu_seconds += work;
    }

    fn deliver(&mut self, slots: usize) {
        let (next, ahead) = (self.delivery_times.len(), slots - 2);
        while self.full_times.len() <= next + ahead {
            self.make(slots);
        }
        let requested =
            self.delivery_times.last().copied().unwrap_or(0.0) + self.step_seconds * (0.5 + self.rng.unit());
        let others = self.full_times[next + 1..=next + ahead].iter().copied().fold(requested, f64::max);
        let received = requested.max(self.full_times[next]);
        self.sums.wait_seconds += received - requested;
        self.sums.straggler_wait_seconds += (received - others).max(0.0);
        self.sums.batches += 1.0;
        self.sums.samples += BATCH;
        self.delivery_times.push(received);
    }

    fn now(&self) -> f64 {
        self.delivery_times.last().copied().unwrap_or(0.0)
    }

    fn window(&mut self, slots: usize) -> Sums {
        let since = self.now();
        self.sums = Sums::default();
        while self.now() - since < WINDOW_SECONDS || self.sums.batches < WINDOW_BATCHES {
            self.deliver(slots);
        }
        Sums { seconds: self.now() - since, ..self.sums }
    }

    /// Lets the tuner choose the depth for `seconds`. Returns the depth and the number of changes.
    fn tune(mut self, seconds: f64) -> (usize, usize) {
        let mut climber = HillClimber::new(&Settings::new(MANY_WORKERS, MANY_WORKERS, Bounds { min: 2, max: 16 }));
        let mut changes = 0;
        while self.now() < seconds {
            let window = self.window(Settings::slots_for(climber.prefetch));
            if climber.add_window(window).is_some() {
                changes += 1;
                let slots = Settings::slots_for(climber.prefetch);
                (0..slots).for_each(|_| self.deliver(slots));
            }
        }
        (climber.prefetch, changes)
    }

    /// Batches per second at a fixed depth.
    fn rate(mut self, prefetch: usize) -> f64 {
        (0..4000).for_each(|_| self.deliver(Settings::slots_for(prefetch)));
        4000.0 / self.now()
    }
}

#[test]
fn rare_slow_samples_raise_prefetch_within_seconds() {
    // Batches of 1.4 to 13 ms, and samples of 100 to 300 ms.
    for load in [
        [0.0014, 0.1, 8.4, 0.0],
        [0.0014, 0.1, 8.4, 0.002],
        [0.0014, 0.1, 80.0, 0.0],
        [0.005, 0.3, 10.0, 0.0],
        [0.013, 0.25, 8.0, 0.005],
    ] {
        let [shallow, deep] = [2, 16].map(|prefetch| UnevenModel::new(9, load).rate(prefetch));
        assert!(deep > 1.1 * shallow, "{load:?}: {shallow:.0} and {deep:.0} batches per second");
        for seed in 0..10 {
            assert_eq!(UnevenModel::new(seed, load).tune(4.0), (16, 3), "{load:?}, seed {seed}");
        }
    }
}

#[test]
fn even_samples_and_steps_do_not_raise_prefetch() {
    for load in [
        [0.02, 0.0, 3.0, 0.0],
        [0.02, 0.02, 3.0, 0.0],
        [0.02, 0.03, 2.0, 0.018],
        [0.1, 0.0, 3.0, 0.0],
        [0.0014, 0.002, 4.0, 0.0],
        // The consumer is slower than the loader, even with the slowest samples.
        [0.0014, 0.1, 80.0, 0.12],
    ] {
        for seed in 0..5 {
            assert_eq!(UnevenModel::new(seed, load).tune(30.0), (2, 0), "{load:?}, seed {seed}");
        }
    }
}

#[test]
fn a_prefetch_depth_set_by_the_user_does_not_change() {
    let load = LoaderModel { long_step_seconds: 0.1, ..CPU_BOUND };
    let settings = Arc::new(Settings::new(4, 3, Bounds::exactly(5)));
    assert_eq!(settle(&mut HillClimber::new(&settings), &load, 200), (5, 0));
    assert!(Tuner::new(&settings).is_none());
}

#[test]
fn an_epoch_that_begins_immediately_reuses_the_counters() {
    let settings = Arc::new(Settings::new(WORKERS, WORKERS, Bounds { min: 2, max: 16 }));
    let (tuner, counters) = (Tuner::new(&settings).unwrap(), Counters::new(1, 1, Vec::new()).unwrap());
    for (after, continues) in [(Duration::ZERO, true), (MAX_EPOCH_GAP, false)] {
        tuner.begin(&counters);
        tuner.end(&counters);
        let (_, ended) = tuner.state().last_end.unwrap();
        // A time in the future, so that a delay of this thread does not matter.
        let ahead = Instant::now() + Duration::from_secs(60);
        let time = if after.is_zero() { ahead } else { Instant::now().checked_sub(after).unwrap() };
        tuner.state().last_end = Some((time, ended));
        tuner.begin(&counters);
        assert_eq!(tuner.state().start_sums.unwrap().seconds == ended.seconds, continues);
    }
}
