use super::*;

/// A loader as arithmetic: what `workers` and `prefetch` give, told as the counters would.
struct Load {
    processors: usize,
    /// Seconds that a sample waits and computes.
    waits: f64,
    computes: f64,
    /// Samples a second that storage gives at most.
    storage: f64,
    /// Seconds of the consumer's long step, one in [`PERIOD`]; the others take none.
    pause: f64,
}

const PERIOD: f64 = 12.0;
const BATCH: f64 = 32.0;

const COMPUTES: Load = Load { processors: 4, waits: 0.0, computes: 1e-3, storage: f64::INFINITY, pause: 0.0 };

impl Load {
    /// Samples a second that come out of the workers.
    fn made(&self, workers: usize) -> f64 {
        let each = workers as f64 / (self.waits + self.computes);
        each.min(self.processors as f64 / self.costs(workers)).min(self.storage)
    }

    /// Processor time of a sample: threads that change places on a processor cost something.
    fn costs(&self, workers: usize) -> f64 {
        self.computes * (1.0 + 0.002 * workers.saturating_sub(self.processors) as f64)
    }

    /// A window of a second in which everything is as on average.
    fn window(&self, workers: usize, prefetch: usize) -> Sums {
        let made = self.made(workers);
        let batch = BATCH / made;
        // In the long step all slots fill up; the others then take those, and wait for the rest.
        let ahead = (Settings::slots_for(prefetch) as f64 - 1.0).min(self.pause / batch);
        let waits = ((PERIOD - ahead).max(0.0) * batch).max(0.0);
        let period = if self.pause == 0.0 { PERIOD * batch } else { self.pause + waits };
        let rate = PERIOD * BATCH / period;
        let blocked = if self.pause == 0.0 { 0.9 } else { (self.pause - ahead * batch).max(0.0) / period };
        let busy = (workers as f64 * rate / made).min(workers as f64);
        Sums {
            seconds: 1.0,
            batches: rate / BATCH,
            samples: rate,
            waited: if self.pause == 0.0 { 0.99 } else { waits / period },
            stalled: 0.0,
            blocked,
            busy,
            cpu: (rate * self.costs(workers)).min(self.processors as f64),
            delayed: 0.0,
        }
    }
}

/// What is in use after `windows`, and how often it changed in the last half of them.
fn settle(climb: &mut Climb, load: &Load, windows: usize) -> (usize, usize, usize) {
    let mut late = 0;
    for i in 0..windows {
        let window = load.window(climb.workers.0, climb.prefetch.0);
        if climb.window(window).is_some() && i >= windows / 2 {
            late += 1;
        }
    }
    (climb.workers.0, climb.prefetch.0, late)
}

fn climb(processors: usize) -> Climb {
    let workers = Bounds { least: processors, most: 32 };
    Climb::new(&Settings::new(processors, workers, Bounds { least: 2, most: 16 }))
}

fn best(load: &Load) -> f64 {
    let all = (1..=32).flat_map(|workers| (1..=16).map(move |prefetch| (workers, prefetch)));
    all.map(|(workers, prefetch)| load.window(workers, prefetch).samples).fold(0.0, f64::max)
}

#[test]
fn work_that_computes_is_left_at_one_worker_a_processor() {
    assert_eq!(settle(&mut climb(4), &COMPUTES, 400), (4, 2, 0));
}

#[test]
fn work_that_waits_gets_the_workers_it_needs_and_stays_there() {
    for (waits, computes) in [(10e-3, 0.01e-3), (4e-3, 1e-3), (1e-3, 1e-3), (0.3e-3, 1e-3)] {
        let load = Load { waits, computes, ..COMPUTES };
        let mut climb = climb(4);
        let (workers, prefetch, late) = settle(&mut climb, &load, 400);
        let rate = load.window(workers, prefetch).samples;
        assert!(rate >= 0.95 * best(&load), "{waits} {computes}: {rate} with {workers} of {}", best(&load));
        assert!(late <= 8, "{late} changes in 200 windows: tries get rarer");
    }
}

#[test]
fn storage_that_gives_no_more_ends_the_climb() {
    let load = Load { waits: 10e-3, computes: 0.1e-3, storage: 1000.0, ..COMPUTES };
    let (workers, _, late) = settle(&mut climb(4), &load, 400);
    assert!((10..=20).contains(&workers), "{workers} workers where 11 are enough");
    assert!(late <= 8, "{late}");
}

#[test]
fn a_bursty_consumer_gets_batches_ahead() {
    let load = Load { pause: 0.1, ..COMPUTES };
    let (workers, prefetch, late) = settle(&mut climb(4), &load, 400);
    assert_eq!((workers, prefetch), (4, 16));
    assert!(late <= 8, "{late}");
    assert_eq!(load.window(workers, prefetch).samples, best(&load));
}

#[test]
fn a_consumer_that_does_not_wait_changes_nothing() {
    let calm = Sums { seconds: 1.0, batches: 20.0, samples: 640.0, busy: 4.0, blocked: 0.5, ..Sums::default() };
    let mut climb = climb(4);
    assert!((0..200).all(|_| climb.window(calm).is_none()));
}

#[test]
fn processors_that_other_programs_use_are_no_reason_for_more_workers() {
    // Two processors' worth of another program: the workers run half of the time, and are ready in
    // the other half.
    let beside = Sums {
        seconds: 1.0,
        batches: 20.0,
        samples: 640.0,
        waited: 0.99,
        blocked: 0.9,
        busy: 4.0,
        cpu: 2.0,
        delayed: 2.0,
        ..Sums::default()
    };
    let mut alone = climb(4);
    assert!((0..200).all(|_| alone.window(beside).is_none()));
    // Workers beyond the processors go.
    let mut many = climb(4);
    many.workers.0 = 16;
    let crowded = |workers: usize| Sums { busy: workers as f64, delayed: workers as f64 - 2.0, ..beside };
    for _ in 0..200 {
        many.window(crowded(many.workers.0));
    }
    assert_eq!((many.workers.0, many.prefetch.0), (4, 2));
}

#[test]
fn a_try_that_stays_leaves_the_other_number_its_rest() {
    let mut climb = climb(4);
    let waiting = Load { waits: 10e-3, computes: 0.01e-3, ..COMPUTES };
    climb.window(waiting.window(4, 2)).expect("all workers wait, which one window shows");
    climb.rests[Knob::Prefetch as usize] = Rest { left: 100, next: 128 };
    while climb.workers.0 < 16 {
        climb.window(waiting.window(climb.workers.0, climb.prefetch.0));
    }
    assert!(climb.rests[Knob::Prefetch as usize].left > 90, "{:?}", climb.rests);
}

#[test]
fn once_nothing_waits_any_more_workers_beyond_the_processors_go() {
    let waiting = Load { waits: 10e-3, computes: 0.5e-3, ..COMPUTES };
    let mut climb = climb(4);
    assert_eq!(settle(&mut climb, &waiting, 200).0, 32);
    // The second epoch comes from the page cache.
    let computing = Load { waits: 0.0, ..waiting };
    assert_eq!(settle(&mut climb, &computing, 200).0, 4);
}

#[test]
fn what_the_user_set_is_no_matter_of_trying() {
    let load = Load { waits: 10e-3, pause: 0.1, ..COMPUTES };
    let mut climb = Climb::new(&Settings::new(4, Bounds::exactly(3), Bounds::exactly(5)));
    assert_eq!(settle(&mut climb, &load, 200), (3, 5, 0));
    let settings = Arc::new(Settings::new(4, Bounds::exactly(3), Bounds::exactly(5)));
    assert!(Tuner::new(&settings).is_none());
}
