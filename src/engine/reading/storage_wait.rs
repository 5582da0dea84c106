//! Detects whether reads wait for the storage, which decides whether readers or workers read.
//!
//! A worker that waits for a disk leaves its core idle, so separate threads read (`readers.rs`). If
//! reading only copies memory, passing samples through a reader costs time without any benefit.
//!
//! A read counts as waiting if, according to the operating system, its thread blocked or a device
//! had to serve a page fault. A preempted thread does not count as waiting, but a custom source
//! that sleeps does. If the system does not report waits, a read that takes at least [`LONG`]
//! counts as waiting.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::trace::{ThreadUsage, nanos};

/// Fraction of time that workers may spend waiting before readers take over.
const WORTH_IT: f64 = 0.05;
/// Minimum number of parts with a wait, so that one slow sample does not start readers.
const SEVERAL: u32 = 3;
/// Number of parts after which the weight of earlier observations is halved.
const MEMORY: u32 = 32;
/// Number of parts without a wait after which readers stop reading. A part with a wait reduces the
/// count by [`AGAINST`].
const QUIET: u32 = 64;
/// Number of parts without a wait that a part with a wait offsets.
const AGAINST: u32 = 8;
/// Minimum duration, in ns, of a read that counts as waiting if the system does not report waits.
const LONG: u64 = 200_000;

/// Decides whether readers or workers read, based on how long reads wait.
pub(crate) struct Waits {
    on: AtomicBool,
    /// Whether readers are permanently disabled.
    never: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Number of parts that workers read.
    parts: u32,
    /// Number of these parts with a wait.
    waiting: u32,
    /// Total time that workers waited while reading, in ns.
    waited_ns: u64,
    /// Total time that workers spent reading, in ns.
    ns: u64,
    /// Number of parts that readers read without waiting.
    quiet: u32,
}

impl Waits {
    pub(crate) fn new() -> Self {
        Waits { on: AtomicBool::new(false), never: AtomicBool::new(false), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nothing panics while holding it")
    }

    /// Returns whether readers read in place of workers.
    pub(crate) fn are_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Disables readers permanently.
    pub(crate) fn never(&self) {
        self.never.store(true, Relaxed);
        self.on.store(false, Relaxed);
    }

    /// Records that a worker read a part in `ns`, including `waited_ns` of waiting.
    pub(crate) fn worker_saw(&self, waited_ns: u64, ns: u64) {
        let mut seen = self.seen();
        seen.parts += 1;
        seen.waiting += u32::from(waited_ns > 0);
        seen.waited_ns += waited_ns;
        seen.ns += ns;
        if seen.waiting >= SEVERAL && seen.waited_ns as f64 >= WORTH_IT * seen.ns as f64 && !self.never.load(Relaxed) {
            *seen = Seen::default();
            drop(seen);
            if !self.on.swap(true, Relaxed) {
                tracing::debug!("reads wait for the storage: readers take over");
            }
        } else if seen.parts >= MEMORY {
            let Seen { parts, waiting, waited_ns, ns, .. } = *seen;
            *seen = Seen { parts: parts / 2, waiting: waiting / 2, waited_ns: waited_ns / 2, ns: ns / 2, ..*seen };
        }
    }

    /// Records that a reader read a part, and whether the reader waited.
    pub(crate) fn reader_saw(&self, waited: bool) {
        let mut seen = self.seen();
        seen.quiet = if waited { seen.quiet.saturating_sub(AGAINST) } else { seen.quiet + 1 };
        if seen.quiet >= QUIET {
            *seen = Seen::default();
            drop(seen);
            if self.on.swap(false, Relaxed) {
                tracing::debug!("reads no longer wait: workers read");
            }
        }
    }
}

/// Measures how long the calling thread waits for storage.
pub(crate) struct Watch {
    since: Instant,
    usage: Option<ThreadUsage>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Watch { since: Instant::now(), usage: ThreadUsage::now() }
    }

    /// Returns how long the thread has waited since the last call, in ns. `reads` is the number of
    /// samples that the thread has read in that time.
    pub(crate) fn waited(&mut self, reads: usize) -> u64 {
        let before = std::mem::replace(self, Watch::new());
        let ns = nanos(self.since, before.since);
        match (before.usage, self.usage) {
            (Some(before), Some(now)) if now.waits > before.waits => {
                ns.saturating_sub(now.cpu_ns - before.cpu_ns).max(1)
            }
            (Some(_), Some(_)) => 0,
            _ => Some(ns).filter(|ns| reads > 0 && *ns >= LONG * reads as u64).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    #[test]
    fn several_parts_that_wait_turn_readers_on_and_one_does_not() {
        let waits = Waits::new();
        waits.worker_saw(900_000 * US, 1_000_000 * US);
        assert!(!waits.are_on(), "a single slow sample");
        let waits = Waits::new();
        for _ in 0..3 {
            assert!(!waits.are_on());
            waits.worker_saw(100 * US, 600 * US);
        }
        assert!(waits.are_on(), "within a few parts");
    }

    #[test]
    fn waits_too_short_to_matter_turn_nothing_on() {
        let waits = Waits::new();
        for _ in 0..1000 {
            waits.worker_saw(10 * US, 600 * US);
        }
        assert!(!waits.are_on());
        for _ in 0..40 {
            waits.worker_saw(300 * US, 900 * US);
        }
        assert!(waits.are_on(), "earlier observations are forgotten");
    }

    #[test]
    fn readers_rest_when_reads_no_longer_wait() {
        let waits = Waits::new();
        (0..3).for_each(|_| waits.worker_saw(US, US));
        for _ in 0..100 {
            waits.reader_saw(true);
            (0..8).for_each(|_| waits.reader_saw(false));
        }
        assert!(waits.are_on(), "one of nine parts waits");
        (0..QUIET).for_each(|_| waits.reader_saw(false));
        assert!(!waits.are_on());
        (0..3).for_each(|_| waits.worker_saw(US, US));
        assert!(waits.are_on(), "readers start again");
    }

    #[test]
    fn unavailable_readers_are_never_on() {
        let waits = Waits::new();
        (0..3).for_each(|_| waits.worker_saw(US, US));
        waits.never();
        (0..100).for_each(|_| waits.worker_saw(US, US));
        assert!(!waits.are_on());
    }

    #[test]
    fn a_thread_that_sleeps_waits_and_one_that_computes_does_not() {
        let mut watch = Watch::new();
        std::thread::sleep(std::time::Duration::from_millis(4));
        assert!(watch.waited(1) >= 3_000_000);
        let begun = Instant::now();
        while begun.elapsed().as_micros() < 150 {}
        assert_eq!(watch.waited(1), 0);
    }
}
