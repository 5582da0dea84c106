//! Decides whether reader threads or the workers read samples, depending on how long reads block on
//! storage.
//!
//! A worker that waits for a disk leaves its core idle, so separate threads should read
//! (`readers.rs`). If reading only copies memory, a reader would cost time and gain nothing.
//!
//! A read blocks if its thread was blocked, or if a page fault required a read from a device. The
//! operating system reports both. Preemption does not count, but sleeping in a custom source does.
//! If the system does not report blocked threads, a read that takes at least [`LONG_READ_NS`]
//! counts as blocked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::trace::{ThreadUsage, nanos};

/// Minimum fraction of reading time that workers are blocked before readers take over.
const WAIT_FRACTION: f64 = 0.05;
/// Minimum number of parts with blocked reads before readers take over, so that one slow sample
/// does not start readers.
const MIN_WAITING_PARTS: u32 = 3;
/// Number of parts after which the weight of earlier observations is halved.
const MEMORY_PARTS: u32 = 32;
/// Number of parts without a blocked read after which workers take over again. Each part with a
/// blocked read lowers the count by [`WAIT_PENALTY`].
const QUIET_PARTS: u32 = 64;
const WAIT_PENALTY: u32 = 8;
/// Minimum duration of a blocked read in ns if the system does not report blocked threads.
const LONG_READ_NS: u64 = 200_000;

/// The current choice between readers and workers, and the observations behind it.
pub(crate) struct Waits {
    readers_enabled: AtomicBool,
    readers_disabled: AtomicBool,
    observations: Mutex<Observations>,
}

#[derive(Default)]
struct Observations {
    /// Parts that workers read.
    parts: u32,
    /// Parts in which a read blocked.
    waiting: u32,
    /// Time that workers were blocked while reading, in ns.
    waited_ns: u64,
    /// Time that workers spent reading, in ns.
    ns: u64,
    /// Parts that readers read without blocking, minus a [penalty](WAIT_PENALTY) for each part in
    /// which a read blocked.
    quiet: u32,
}

impl Waits {
    pub(crate) fn new() -> Self {
        Waits {
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

    /// Records that a worker spent `ns` reading a part, including `waited_ns` blocked on storage.
    pub(crate) fn record_worker(&self, waited_ns: u64, ns: u64) {
        let mut observations = self.observations();
        observations.parts += 1;
        observations.waiting += u32::from(waited_ns > 0);
        observations.waited_ns += waited_ns;
        observations.ns += ns;
        if observations.waiting >= MIN_WAITING_PARTS
            && observations.waited_ns as f64 >= WAIT_FRACTION * observations.ns as f64
            && !self.readers_disabled.load(Relaxed)
        {
            *observations = Observations::default();
            drop(observations);
            if !self.readers_enabled.swap(true, Relaxed) {
                tracing::debug!("reads block on storage; switching to reader threads");
            }
        } else if observations.parts >= MEMORY_PARTS {
            let Observations { parts, waiting, waited_ns, ns, .. } = *observations;
            *observations = Observations {
                parts: parts / 2,
                waiting: waiting / 2,
                waited_ns: waited_ns / 2,
                ns: ns / 2,
                ..*observations
            };
        }
    }

    /// Records that a reader read a part, and whether a read blocked.
    pub(crate) fn record_reader(&self, waited: bool) {
        let mut observations = self.observations();
        observations.quiet =
            if waited { observations.quiet.saturating_sub(WAIT_PENALTY) } else { observations.quiet + 1 };
        if observations.quiet >= QUIET_PARTS {
            *observations = Observations::default();
            drop(observations);
            if self.readers_enabled.swap(false, Relaxed) {
                tracing::debug!("reads no longer block; the workers read directly again");
            }
        }
    }
}

/// Measures how long the calling thread is blocked on storage.
pub(crate) struct Watch {
    since: Instant,
    usage: Option<ThreadUsage>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Watch { since: Instant::now(), usage: ThreadUsage::now() }
    }

    /// Returns how long the thread was blocked since the last call, or since `new`, in ns. `reads`
    /// is the number of samples that it has read in that time.
    pub(crate) fn waited(&mut self, reads: usize) -> u64 {
        let before = std::mem::replace(self, Watch::new());
        let ns = nanos(self.since, before.since);
        match (before.usage, self.usage) {
            (Some(before), Some(now)) if now.waits > before.waits => {
                ns.saturating_sub(now.cpu_ns - before.cpu_ns).max(1)
            }
            (Some(_), Some(_)) => 0,
            _ => Some(ns).filter(|ns| reads > 0 && *ns >= LONG_READ_NS * reads as u64).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    #[test]
    fn readers_start_after_reads_blocked_in_several_parts() {
        let waits = Waits::new();
        waits.record_worker(900_000 * US, 1_000_000 * US);
        assert!(!waits.readers_enabled(), "a single slow sample does not start readers");
        let waits = Waits::new();
        for _ in 0..3 {
            assert!(!waits.readers_enabled());
            waits.record_worker(100 * US, 600 * US);
        }
        assert!(waits.readers_enabled(), "readers start after a few parts");
    }

    #[test]
    fn short_waits_do_not_start_readers() {
        let waits = Waits::new();
        for _ in 0..1000 {
            waits.record_worker(10 * US, 600 * US);
        }
        assert!(!waits.readers_enabled());
        for _ in 0..40 {
            waits.record_worker(300 * US, 900 * US);
        }
        assert!(waits.readers_enabled(), "earlier observations are forgotten");
    }

    #[test]
    fn readers_stop_when_reads_no_longer_block() {
        let waits = Waits::new();
        (0..3).for_each(|_| waits.record_worker(US, US));
        for _ in 0..100 {
            waits.record_reader(true);
            (0..8).for_each(|_| waits.record_reader(false));
        }
        assert!(waits.readers_enabled(), "readers stay active if reads block in one of nine parts");
        (0..QUIET_PARTS).for_each(|_| waits.record_reader(false));
        assert!(!waits.readers_enabled());
        (0..3).for_each(|_| waits.record_worker(US, US));
        assert!(waits.readers_enabled(), "readers start again");
    }

    #[test]
    fn disabled_readers_do_not_start() {
        let waits = Waits::new();
        (0..3).for_each(|_| waits.record_worker(US, US));
        waits.disable();
        (0..100).for_each(|_| waits.record_worker(US, US));
        assert!(!waits.readers_enabled());
    }

    #[test]
    fn sleeping_counts_as_blocked_but_computing_does_not() {
        let mut watch = Watch::new();
        std::thread::sleep(std::time::Duration::from_millis(4));
        assert!(watch.waited(1) >= 3_000_000);
        let begun = Instant::now();
        while begun.elapsed().as_micros() < 150 {}
        assert_eq!(watch.waited(1), 0);
    }
}
