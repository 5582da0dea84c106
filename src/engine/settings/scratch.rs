//! Scratch memory of the workers: sizes and admission.
//!
//! Each worker owns a fixed share, enough for eight typical photographs. An image that needs more
//! uses memory that is shared by all workers and granted in request order. An image that needs more
//! than all of the shared memory is admitted when no other image uses the shared memory. A worker
//! never holds shared memory while it waits, so every holder can finish.

use std::sync::{Condvar, Mutex, MutexGuard};

/// Size of a worker's own share if memory is not scarce. Half of it is for images that are decoded
/// together: eight images of 0.7 megapixels. A quarter is for encoded bytes, and a quarter is for
/// memory that decoders reuse.
const OWN: usize = 32 << 20;
/// Size of the shared memory per core. An image of 24 megapixels needs 72 MB, and a progressive
/// JPEG of that size twice as much.
const SHARED_EACH: usize = 128 << 20;
/// Size of the read-ahead budget if memory is not scarce. The budget holds 500 typical photographs,
/// twice as many as are read at once.
const AHEAD: usize = 128 << 20;

/// Maximum scratch memory of workers and readers, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScratchPlan {
    pub(crate) workers: usize,
    /// Memory that each worker always needs: one image of the batch, and scratch memory for mixing.
    pub(crate) fixed: usize,
    /// A worker's own share, in addition to `fixed`.
    pub(crate) own: usize,
    /// Memory that all workers share.
    pub(crate) shared: usize,
    /// Memory for samples that readers read ahead.
    pub(crate) ahead: usize,
    /// Memory for samples that the source itself prefetches.
    pub(crate) source: usize,
    /// Memory for the user's transforms.
    pub(crate) transforms: usize,
}

impl ScratchPlan {
    /// Returns the largest useful plan for `workers` workers on `cores` cores.
    pub(crate) fn ample(workers: usize, cores: usize, fixed: usize) -> Self {
        let shared = cores.min(workers).saturating_mul(SHARED_EACH);
        ScratchPlan { workers, fixed, own: OWN, shared, ahead: AHEAD, source: 0, transforms: 0 }
    }

    /// Returns the plan without a read-ahead budget.
    pub(crate) fn without_readers(self) -> Self {
        ScratchPlan { ahead: 0, source: 0, ..self }
    }

    /// Returns the plan for a source that prefetches up to `bytes`.
    pub(crate) fn with_source(self, bytes: usize) -> Self {
        ScratchPlan { source: bytes, ..self }
    }

    /// Returns the plan with `bytes` for the user's transforms.
    pub(crate) fn with_transforms(self, bytes: usize) -> Self {
        ScratchPlan { transforms: bytes, ..self }
    }

    /// Returns the minimum memory that workers and transforms need, in bytes.
    pub(crate) fn needed(&self) -> usize {
        self.workers.saturating_mul(self.fixed).saturating_add(self.transforms)
    }

    pub(crate) fn total(&self) -> usize {
        self.workers
            .saturating_mul(self.own)
            .saturating_add(self.needed())
            .saturating_add(self.shared)
            .saturating_add(self.ahead)
            .saturating_add(self.source)
    }

    /// Shrinks the plan to `bytes`, but not below the [minimum](ScratchPlan::needed).
    pub(crate) fn within(self, bytes: usize) -> Self {
        if self.total() <= bytes {
            return self;
        }
        let left = bytes.saturating_sub(self.needed());
        let (ahead, source) = (self.ahead.min(left / 8), self.source.min(left / 4));
        let left = left - ahead - source;
        let own = self.own.min(left / 2 / self.workers);
        ScratchPlan { own, shared: self.shared.min(left - own * self.workers), ahead, source, ..self }
    }
}

/// How a worker's own share is divided, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Pixels of images that are decoded together.
    pub(crate) decode: usize,
    /// Encoded bytes of the current samples.
    pub(crate) encoded: usize,
    /// Memory that decoders reuse from image to image.
    pub(crate) kept: usize,
}

impl Share {
    /// Returns the maximum capacity of the buffer for a sample of `bytes` encoded bytes. A growing
    /// buffer may have twice the capacity of its content.
    pub(crate) fn buffer(bytes: usize) -> usize {
        bytes.saturating_mul(2)
    }

    /// Returns how much of that capacity requires admission: all of it if it exceeds the share,
    /// otherwise 0.
    pub(crate) fn admitted(&self, bytes: usize) -> usize {
        let buffer = Self::buffer(bytes);
        if buffer > self.encoded { buffer } else { 0 }
    }
}

/// The memory that workers share, and the queue of requests for that memory.
pub(crate) struct Scratch {
    plan: ScratchPlan,
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    taken: usize,
    /// Number of the oldest waiting request. The waiting requests are `first..last`.
    first: u64,
    last: u64,
    /// Largest amount granted by [`Scratch::take`].
    #[cfg(test)]
    most: usize,
}

impl Line {
    fn admits(&self, bytes: usize, all: usize) -> bool {
        self.taken == 0 || self.taken.saturating_add(bytes) <= all
    }
}

impl Scratch {
    pub(crate) fn new(plan: ScratchPlan) -> Self {
        Scratch { plan, line: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn plan(&self) -> ScratchPlan {
        self.plan
    }

    pub(crate) fn share(&self) -> Share {
        Share { decode: self.plan.own / 2, encoded: self.plan.own / 4, kept: self.plan.own / 4 }
    }

    /// Returns the largest amount that was granted by [`Scratch::take`] since the last call.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn most_taken(&self) -> usize {
        std::mem::take(&mut self.line().most)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("nothing panics while holding it")
    }

    /// Takes `bytes` of the shared memory if they are available and no other request is waiting.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Hold<'_>> {
        let mut line = self.line();
        let fits = line.taken.saturating_add(bytes) <= self.plan.shared;
        if line.first < line.last || !fits {
            return None;
        }
        line.taken += bytes;
        Some(Hold { scratch: self, bytes })
    }

    /// Takes `bytes` of the shared memory. Blocks until they are available or, if `bytes` exceeds
    /// the total, until none of the shared memory is in use. The calling thread must not hold any
    /// shared memory.
    pub(crate) fn take(&self, bytes: usize) -> Hold<'_> {
        let mut line = self.line();
        let number = line.last;
        line.last += 1;
        while line.first != number || !line.admits(bytes, self.plan.shared) {
            line = self.changed.wait(line).expect("nothing panics while holding it");
        }
        line.first += 1;
        line.taken = line.taken.saturating_add(bytes);
        #[cfg(test)]
        {
            line.most = line.most.max(bytes);
        }
        drop(line);
        // The next request may fit as well.
        self.changed.notify_all();
        Hold { scratch: self, bytes }
    }
}

/// Shared memory that a worker holds. Dropping this value releases the memory.
pub(crate) struct Hold<'a> {
    scratch: &'a Scratch,
    bytes: usize,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut line = self.scratch.line();
        line.taken = line.taken.saturating_sub(self.bytes);
        drop(line);
        self.scratch.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn scratch(shared: usize) -> Scratch {
        Scratch::new(ScratchPlan { workers: 1, fixed: 0, own: 0, shared, ahead: 0, source: 0, transforms: 0 })
    }

    #[test]
    fn requests_stay_within_the_memory_unless_one_is_alone() {
        let scratch = Arc::new(scratch(100));
        let taken = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (scratch, taken) = (scratch.clone(), taken.clone());
                thread::spawn(move || {
                    for round in 0..200 {
                        let bytes = if (i + round) % 11 == 0 { 250 } else { 10 + 13 * (i + round) % 60 };
                        let hold = scratch.take(bytes);
                        let all = taken.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(all <= 100 || all == bytes, "{all} bytes are in use, {bytes} by this thread");
                        taken.fetch_sub(bytes, Ordering::SeqCst);
                        drop(hold);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let line = scratch.line();
        assert_eq!((line.taken, line.first, line.last), (0, 1600, 1600));
    }

    #[test]
    fn a_small_request_does_not_overtake_a_large_one() {
        let scratch = Arc::new(scratch(100));
        let first = scratch.take(60);
        let waits = {
            let scratch = scratch.clone();
            thread::spawn(move || drop(scratch.take(90)))
        };
        while scratch.line().last < 2 {
            thread::yield_now();
        }
        assert!(scratch.try_take(10).is_none(), "memory is available, but another request is waiting");
        drop(first);
        waits.join().unwrap();
        let all = scratch.try_take(100);
        assert!(all.is_some() && scratch.try_take(1).is_none());
        drop(all);
        assert!(scratch.try_take(101).is_none(), "only a blocking request may exceed the memory");
    }

    #[test]
    fn a_plan_stays_within_its_limit() {
        let ample = ScratchPlan::ample(64, 2, 1000);
        assert_eq!((ample.own, ample.shared), (OWN, 2 * SHARED_EACH));
        assert_eq!(ample.within(ample.total()), ample);
        for bytes in [0, 500, 2000, 64_000, 65_000, 1 << 20, 1 << 28, ample.total() - 1] {
            let plan = ample.within(bytes);
            assert!(plan.total() <= bytes.max(64 * 1000), "{plan:?} within {bytes}");
            assert_eq!(plan.workers, 64);
        }
        let plan = ample.within(1 << 30);
        assert!(plan.own > 4 << 20 && plan.shared >= 256 << 20 && plan.ahead >= 32 << 20, "{plan:?}");
        assert_eq!(ScratchPlan::ample(3, 8, 0).within(0).total(), 0);
        let plan = ample.with_source(1 << 40).within(1 << 30);
        assert!(plan.total() <= 1 << 30 && plan.source > 200 << 20, "{plan:?}");
        assert_eq!(ample.with_source(1 << 20).within(1 << 40).source, 1 << 20);
    }
}
