//! Decides whether readers or workers read samples, by how long reads block on storage.
//!
//! A worker that waits for a disk leaves its core idle, so separate threads should read
//! (`readers.rs`). If reading only copies memory, a reader would cost time and gain nothing.
//!
//! On Linux, a read counts as blocked if its thread gave up its core voluntarily, or if a page
//! fault required a read from a device. Linux counts both events per thread. Preemption alone does
//! not count, but sleeping in a custom source does. On other systems, reads that take at least
//! [`LONG_READ_NS`] on average count as blocked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::trace::{ThreadUsage, nanos};

/// Readers take over if workers are blocked for at least this fraction of the time in which they
/// fill parts.
const MIN_BLOCKED_FRACTION: f64 = 0.05;
/// Readers take over only after reads blocked in this many recent parts, so that one slow sample is
/// not enough.
const MIN_BLOCKED_PARTS: u32 = 3;
/// All observations are halved when their number of parts reaches this value: after 32 parts at
/// first, and then after every 16 parts.
const HALF_LIFE_PARTS: u32 = 32;
/// Workers take over again once the count of parts without a blocked read reaches this value. Each
/// part with a blocked read lowers the count by [`BLOCK_PENALTY`], but not below 0.
const MAX_UNBLOCKED_PARTS: u32 = 64;
const BLOCK_PENALTY: u32 = 8;
/// On systems that do not report blocked threads, reads count as blocked if they take at least this
/// many ns on average.
const LONG_READ_NS: u64 = 200_000;

pub(crate) struct ReaderSwitch {
    readers_enabled: AtomicBool,
    readers_disabled: AtomicBool,
    observations: Mutex<Observations>,
}

#[derive(Default)]
struct Observations {
    /// Parts that workers filled without readers.
    parts: u32,
    blocked_parts: u32,
    /// Time that workers were blocked while reading, in ns.
    blocked_ns: u64,
    /// Time that workers spent filling these parts, including decoding, in ns.
    fill_ns: u64,
    /// Parts that readers read without blocking, minus a [penalty](BLOCK_PENALTY) per blocked part;
    /// at least 0.
    unblocked_parts: u32,
}

impl ReaderSwitch {
    pub(crate) fn new() -> Self {
        ReaderSwitch {
            readers_enabled: AtomicBool::new(false),
            readers_disabled: AtomicBool::new(false),
            observations: Mutex::default(),
        }
    }

    fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn readers_enabled(&self) -> bool {
        self.readers_enabled.load(Relaxed)
    }

    pub(crate) fn disable(&self) {
        self.readers_disabled.store(true, Relaxed);
        self.readers_enabled.store(false, Relaxed);
    }

    /// Records that a worker filled a part without readers in `fill_ns`, of which it was blocked on
    /// storage for `blocked_ns`.
    pub(crate) fn record_worker_part(&self, blocked_ns: u64, fill_ns: u64) {
        let mut observations = self.observations();
        observations.parts += 1;
        observations.blocked_parts += u32::from(blocked_ns > 0);
        observations.blocked_ns += blocked_ns;
        observations.fill_ns += fill_ns;
        if observations.blocked_parts >= MIN_BLOCKED_PARTS
            && observations.blocked_ns as f64 >= MIN_BLOCKED_FRACTION * observations.fill_ns as f64
            && !self.readers_disabled.load(Relaxed)
        {
            *observations = Observations::default();
            drop(observations);
            if !self.readers_enabled.swap(true, Relaxed) {
                tracing::debug!("reads block on storage; switching to reader threads");
            }
        } else if observations.parts >= HALF_LIFE_PARTS {
            let Observations { parts, blocked_parts, blocked_ns, fill_ns, .. } = *observations;
            *observations = Observations {
                parts: parts / 2,
                blocked_parts: blocked_parts / 2,
                blocked_ns: blocked_ns / 2,
                fill_ns: fill_ns / 2,
                ..*observations
            };
        }
    }

    pub(crate) fn record_reader_part(&self, was_blocked: bool) {
        let mut observations = self.observations();
        observations.unblocked_parts = if was_blocked {
            observations.unblocked_parts.saturating_sub(BLOCK_PENALTY)
        } else {
            observations.unblocked_parts + 1
        };
        if observations.unblocked_parts >= MAX_UNBLOCKED_PARTS {
            *observations = Observations::default();
            drop(observations);
            if self.readers_enabled.swap(false, Relaxed) {
                tracing::debug!("reads no longer block; the workers read directly again");
            }
        }
    }
}

/// Measures how long the calling thread is blocked, usually on storage.
pub(crate) struct BlockTimer {
    start: Instant,
    usage: Option<ThreadUsage>,
}

impl BlockTimer {
    pub(crate) fn new() -> Self {
        BlockTimer { start: Instant::now(), usage: ThreadUsage::now() }
    }

    /// Returns how long the thread was blocked since the last call, or since `new`, in ns. On
    /// Linux, this is 0 if the thread did not block, and otherwise all time that it did not run,
    /// which includes waits for a core. On other systems, it is the whole time or 0, depending on
    /// the mean time per read. `read_count` is the number of samples that the thread has read in
    /// that time.
    pub(crate) fn take_blocked_ns(&mut self, read_count: usize) -> u64 {
        let previous = std::mem::replace(self, BlockTimer::new());
        let ns = nanos(self.start, previous.start);
        match (previous.usage, self.usage) {
            (Some(previous), Some(now)) if now.waits > previous.waits => {
                ns.saturating_sub(now.cpu_ns - previous.cpu_ns).max(1)
            }
            (Some(_), Some(_)) => 0,
            _ => Some(ns).filter(|ns| read_count > 0 && *ns >= LONG_READ_NS * read_count as u64).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    #[test]
    fn readers_start_after_reads_blocked_in_several_parts() {
        let reader_switch = ReaderSwitch::new();
        reader_switch.record_worker_part(900_000 * US, 1_000_000 * US);
        assert!(!reader_switch.readers_enabled(), "a single slow sample does not start readers");
        let reader_switch = ReaderSwitch::new();
        for _ in 0..3 {
            assert!(!reader_switch.readers_enabled());
            reader_switch.record_worker_part(100 * US, 600 * US);
        }
        assert!(reader_switch.readers_enabled(), "readers start after a few parts");
    }

    #[test]
    fn short_waits_do_not_start_readers() {
        let reader_switch = ReaderSwitch::new();
        for _ in 0..1000 {
            reader_switch.record_worker_part(10 * US, 600 * US);
        }
        assert!(!reader_switch.readers_enabled());
        for _ in 0..40 {
            reader_switch.record_worker_part(300 * US, 900 * US);
        }
        assert!(reader_switch.readers_enabled(), "earlier observations are forgotten");
    }

    #[test]
    fn readers_stop_when_reads_no_longer_block() {
        let reader_switch = ReaderSwitch::new();
        (0..3).for_each(|_| reader_switch.record_worker_part(US, US));
        for _ in 0..100 {
            reader_switch.record_reader_part(true);
            (0..8).for_each(|_| reader_switch.record_reader_part(false));
        }
        assert!(reader_switch.readers_enabled(), "readers stay active if reads block in one of nine parts");
        (0..MAX_UNBLOCKED_PARTS).for_each(|_| reader_switch.record_reader_part(false));
        assert!(!reader_switch.readers_enabled());
        (0..3).for_each(|_| reader_switch.record_worker_part(US, US));
        assert!(reader_switch.readers_enabled(), "readers start again");
    }

    #[test]
    fn disabled_readers_do_not_start() {
        let reader_switch = ReaderSwitch::new();
        (0..3).for_each(|_| reader_switch.record_worker_part(US, US));
        reader_switch.disable();
        (0..100).for_each(|_| reader_switch.record_worker_part(US, US));
        assert!(!reader_switch.readers_enabled());
    }

    #[test]
    fn sleeping_counts_as_blocked_but_computing_does_not() {
        let mut timer = BlockTimer::new();
        std::thread::sleep(std::time::Duration::from_millis(4));
        assert!(timer.take_blocked_ns(1) >= 3_000_000);
        let start = Instant::now();
        while start.elapsed().as_micros() < 150 {}
        assert_eq!(timer.take_blocked_ns(1), 0);
    }
}
