//! Whether reading waits: what decides who reads.
//!
//! A worker that waits for a disk leaves its processor idle. Then threads of their own read
//! (`readers.rs`). Where reading is a copy from memory, or none at all, the way over such a thread
//! would cost something and give nothing.
//!
//! A wait is what the system calls one: the thread gave its processor away, or a page fault went to
//! a medium. So a thread that is merely crowded out by others does not count as waiting, and a
//! source of the user's that sleeps does. Where the system does not say, a read that takes
//! [`LONG`] is one that waits.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::trace::{ThreadUsage, nanos};

/// Share of their time that workers may wait before others read for them.
const WORTH_IT: f64 = 0.05;
/// Parts that must have waited, so that one slow sample moves nothing.
const SEVERAL: u32 = 3;
/// Parts after which what was seen counts for half.
const MEMORY: u32 = 32;
/// Parts without a wait after which readers rest. A part with one counts against [`AGAINST`] of
/// those.
const QUIET: u32 = 64;
const AGAINST: u32 = 8;
/// The time in ns that a sample's read takes at least if it waits, where the system does not say.
const LONG: u64 = 200_000;

/// Whether readers are to read, told by what workers and readers saw.
pub(crate) struct Waits {
    on: AtomicBool,
    /// Readers cannot be had.
    never: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Of parts that workers read: how many, how many of them waited, and their time in ns.
    parts: u32,
    waiting: u32,
    waited_ns: u64,
    ns: u64,
    /// Of parts that readers read: those without a wait.
    quiet: u32,
}

impl Waits {
    pub(crate) fn new() -> Self {
        Waits { on: AtomicBool::new(false), never: AtomicBool::new(false), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nothing panics while holding it")
    }

    /// Whether readers are to read.
    pub(crate) fn are_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Workers read for good.
    pub(crate) fn never(&self) {
        self.never.store(true, Relaxed);
        self.on.store(false, Relaxed);
    }

    /// A worker read a part itself, and waited for `waited_ns` of the `ns` that it had the part.
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
                tracing::debug!("reading waits: threads of its own read ahead");
            }
        } else if seen.parts >= MEMORY {
            let Seen { parts, waiting, waited_ns, ns, .. } = *seen;
            *seen = Seen { parts: parts / 2, waiting: waiting / 2, waited_ns: waited_ns / 2, ns: ns / 2, ..*seen };
        }
    }

    /// A reader read a part, and waited for it or not.
    pub(crate) fn reader_saw(&self, waited: bool) {
        let mut seen = self.seen();
        seen.quiet = if waited { seen.quiet.saturating_sub(AGAINST) } else { seen.quiet + 1 };
        if seen.quiet >= QUIET {
            *seen = Seen::default();
            drop(seen);
            if self.on.swap(false, Relaxed) {
                tracing::debug!("reading does not wait any more: workers read");
            }
        }
    }
}

/// A stretch of a thread's work, and how much of it the thread waited.
pub(crate) struct Watch {
    since: Instant,
    usage: Option<ThreadUsage>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Watch { since: Instant::now(), usage: ThreadUsage::now() }
    }

    /// The time in ns that the thread waited since this was made or asked last, in which it read
    /// `reads` samples; 0 if it did not wait.
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
        assert!(waits.are_on(), "what was before is forgotten");
    }

    #[test]
    fn readers_rest_when_reads_wait_no_more() {
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
        assert!(waits.are_on(), "and they come back");
    }

    #[test]
    fn where_readers_cannot_be_had_they_are_never_on() {
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
