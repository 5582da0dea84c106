//! Scratch memory of the workers: sizes and admission.
//!
//! Each worker owns a fixed share, enough for eight typical photographs. An image that needs more
//! takes turns on memory that all workers share, in the order of the requests. An image that needs
//! more than all of it is admitted when the shared memory is unused. A worker never holds shared
//! memory while it waits, so every holder can finish.

use std::sync::{Condvar, Mutex, MutexGuard};

/// Bytes of a worker's own share if memory is not scarce. Half of it is for images that are
/// decoded together: eight of 0.7 megapixels. A quarter is for encoded bytes, and a quarter for
/// memory that decoders keep.
const OWN: usize = 32 << 20;
/// Bytes of shared memory per core. An image of 24 megapixels takes 72 MB, and a progressive
/// JPEG of that size twice as much.
const SHARED_EACH: usize = 128 << 20;
/// Bytes for samples that are read ahead if memory is not scarce. This holds 500 typical
/// photographs, twice as many as are being read at a time.
const AHEAD: usize = 128 << 20;

/// Scratch memory that workers and readers may take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScratchPlan {
    pub(crate) workers: usize,
    /// Memory that a worker needs for any image: one image of the batch, and scratch for mixing.
    pub(crate) fixed: usize,
    /// A worker's own share in addition to that.
    pub(crate) own: usize,
    /// Memory that all workers share.
    pub(crate) shared: usize,
    /// Memory of samples that readers have read ahead.
    pub(crate) ahead: usize,
    /// Samples that the source fetches ahead itself.
    pub(crate) source: usize,
    /// Memory of the user's transforms.
    pub(crate) transforms: usize,
}

impl ScratchPlan {
    /// Largest useful plan for `workers` workers on `cores` cores.
    pub(crate) fn ample(workers: usize, cores: usize, fixed: usize) -> Self {
        let shared = cores.min(workers).saturating_mul(SHARED_EACH);
        ScratchPlan { workers, fixed, own: OWN, shared, ahead: AHEAD, source: 0, transforms: 0 }
    }

    /// Returns the plan without reading ahead.
    pub(crate) fn without_readers(self) -> Self {
        ScratchPlan { ahead: 0, source: 0, ..self }
    }

    /// Returns the plan for a source that wants to fetch `bytes` ahead.
    pub(crate) fn with_source(self, bytes: usize) -> Self {
        ScratchPlan { source: bytes, ..self }
    }

    /// Returns the plan with `bytes` for the user's transforms.
    pub(crate) fn with_transforms(self, bytes: usize) -> Self {
        ScratchPlan { transforms: bytes, ..self }
    }

    /// Bytes that are needed in any case.
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

    /// Shrinks the plan to `bytes`, but not below the need of workers and transforms.
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

/// Parts of a worker's own share, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Pixels of images that are decoded together.
    pub(crate) decode: usize,
    /// Encoded bytes of the current samples.
    pub(crate) encoded: usize,
    /// Memory that decoders keep between images.
    pub(crate) kept: usize,
}

impl Share {
    /// Bytes of the buffer of a sample with `bytes` encoded bytes. It may have grown to twice its
    /// content.
    pub(crate) fn buffer(bytes: usize) -> usize {
        bytes.saturating_mul(2)
    }

    /// Bytes of that buffer that a worker must be admitted for: all of them if they exceed its
    /// share.
    pub(crate) fn admitted(&self, bytes: usize) -> usize {
        let buffer = Self::buffer(bytes);
        if buffer > self.encoded { buffer } else { 0 }
    }
}

/// The memory that workers share.
pub(crate) struct Scratch {
    plan: ScratchPlan,
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    taken: usize,
    /// Requests that wait have the numbers `first..last`.
    first: u64,
    last: u64,
    /// The most bytes that [`Scratch::take`] gave at a time.
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

    /// The most bytes that one request has waited for since the last call.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn most_taken(&self) -> usize {
        std::mem::take(&mut self.line().most)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("nothing panics while holding it")
    }

    /// Takes `bytes` of the shared memory if they are free and no request waits.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Hold<'_>> {
        let mut line = self.line();
        let fits = line.taken.saturating_add(bytes) <= self.plan.shared;
        if line.first < line.last || !fits {
            return None;
        }
        line.taken += bytes;
        Some(Hold { scratch: self, bytes })
    }

    /// Takes `bytes` of the shared memory. Waits until they are free, or until all of it is free.
    /// The calling thread must hold none.
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
        // There may be room for the next request too.
        self.changed.notify_all();
        Hold { scratch: self, bytes }
    }
}

/// Shared memory that a worker holds until it drops this.
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
                        assert!(all <= 100 || all == bytes, "{all} bytes are held, {bytes} of them here");
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
        assert!(scratch.try_take(10).is_none(), "there is room, but a request waits");
        drop(first);
        waits.join().unwrap();
        let all = scratch.try_take(100);
        assert!(all.is_some() && scratch.try_take(1).is_none());
        drop(all);
        assert!(scratch.try_take(101).is_none(), "only a request that waits may exceed the memory");
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
