use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crossbeam::utils::CachePadded;

/// A stage of a worker's way through a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Read,
    Decode,
    /// Crop, resize, flip, colour, the user's transforms.
    Transform,
    /// Normalise, cast and write into the slot.
    Write,
}

impl Stage {
    pub(crate) const ALL: [Stage; 4] = [Stage::Read, Stage::Decode, Stage::Transform, Stage::Write];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Decode => "decode",
            Stage::Transform => "transform",
            Stage::Write => "write",
        }
    }
}

/// One worker's sums; a cache line of its own each, so that counting costs no traffic between cores.
#[derive(Default)]
pub(crate) struct WorkerCounters {
    busy_ns: [AtomicU64; 4],
    samples: AtomicU64,
    bytes: AtomicU64,
    /// What it is at: sample + 1, or 0 when it waits for work.
    sample: AtomicU64,
    stage: AtomicU8,
}

/// Sums over the life of a loader.
pub(crate) struct Counters {
    workers: Box<[CachePadded<WorkerCounters>]>,
    opened: Instant,
    waited_ns: AtomicU64,
    batches: AtomicU64,
    delivered: AtomicU64,
    retries: AtomicU64,
}

impl Counters {
    pub(crate) fn new(workers: usize) -> Self {
        Counters {
            workers: (0..workers).map(|_| CachePadded::default()).collect(),
            opened: Instant::now(),
            waited_ns: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        }
    }

    pub(crate) fn worker(&self, index: usize) -> &WorkerCounters {
        &self.workers[index]
    }

    /// The consumer got a batch of `samples` after waiting since `since`.
    pub(crate) fn delivered(&self, samples: usize, since: Instant) {
        self.waited_ns.fetch_add(since.elapsed().as_nanos() as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        self.delivered.fetch_add(samples as u64, Relaxed);
    }

    /// A sample is read again after a transient error.
    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// What each worker that is not idle is at: `worker 3 in decode of sample 18231`.
    pub(crate) fn activity(&self) -> Vec<String> {
        let at = |(i, w): (usize, &CachePadded<WorkerCounters>)| {
            let sample = w.sample.load(Relaxed).checked_sub(1)?;
            let stage = Stage::ALL[usize::from(w.stage.load(Relaxed)) % 4].name();
            Some(format!("worker {i} in {stage} of sample {sample}"))
        };
        self.workers.iter().enumerate().filter_map(at).collect()
    }

    pub(crate) fn stats(&self) -> super::Stats {
        let sum = |f: &dyn Fn(&WorkerCounters) -> u64| self.workers.iter().map(|w| f(w)).sum::<u64>();
        let busy = |stage: Stage| sum(&|w| w.busy_ns[stage as usize].load(Relaxed)) as f64 * 1e-9;
        super::Stats {
            workers: self.workers.len(),
            seconds: self.opened.elapsed().as_secs_f64(),
            batches: self.batches.load(Relaxed),
            samples: self.delivered.load(Relaxed),
            prepared: sum(&|w| w.samples.load(Relaxed)),
            bytes_read: sum(&|w| w.bytes.load(Relaxed)),
            retries: self.retries.load(Relaxed),
            waited_seconds: self.waited_ns.load(Relaxed) as f64 * 1e-9,
            read_seconds: busy(Stage::Read),
            decode_seconds: busy(Stage::Decode),
            transform_seconds: busy(Stage::Transform),
            write_seconds: busy(Stage::Write),
        }
    }
}

impl WorkerCounters {
    /// Notes that the worker enters `stage` of `sample`.
    pub(crate) fn enter(&self, stage: Stage, sample: u64) {
        self.sample.store(sample + 1, Relaxed);
        self.stage.store(stage as u8, Relaxed);
    }

    /// Adds the time since `since` to `stage`, and returns the time now.
    pub(crate) fn leave(&self, stage: Stage, since: Instant) -> Instant {
        let now = Instant::now();
        // Only the worker itself adds to its sums, so that a load and a store do; others read.
        let sum = &self.busy_ns[stage as usize];
        sum.store(sum.load(Relaxed) + now.duration_since(since).as_nanos() as u64, Relaxed);
        now
    }

    /// Adds a sample of `bytes` encoded bytes.
    pub(crate) fn sample(&self, bytes: usize) {
        self.samples.store(self.samples.load(Relaxed) + 1, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes as u64, Relaxed);
    }

    pub(crate) fn idle(&self) {
        self.sample.store(0, Relaxed);
    }
}
