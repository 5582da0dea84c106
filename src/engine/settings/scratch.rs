//! Scratch memory of the workers.
//!
//! Each worker owns a share (`per_worker`), enough for eight typical photographs. A larger image
//! uses shared memory, which is granted in the order of the requests. An image that needs more than
//! all shared memory waits until no other image uses any. A worker never waits while it holds
//! shared memory, so every holder can finish.

use std::sync::{Condvar, Mutex, MutexGuard};

/// A worker's own share in bytes, if memory is not scarce. Half of it holds images that are decoded
/// together: eight 0.7-megapixel images. A quarter holds encoded bytes, and a quarter is memory
/// that decoders keep from image to image.
const OWN: usize = 32 << 20;
/// Shared memory per core in bytes. A 24-megapixel image needs 72 MB, and a progressive JPEG of
/// that size needs twice as much.
const SHARED_PER_CORE: usize = 128 << 20;
/// Memory for samples that are read ahead, in bytes, if memory is not scarce. It holds 1,200
/// photographs of 110 KB, more than twice as many as
/// [`MAX_READERS`](crate::engine::state::MAX_READERS) threads read at the same time.
const AHEAD: usize = 128 << 20;

/// Division of the scratch memory among workers and readers, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScratchPlan {
    pub(crate) workers: usize,
    /// Memory that each worker always needs: one output image, and scratch memory for mixing.
    pub(crate) fixed: usize,
    /// A worker's own share, in addition to `fixed`.
    pub(crate) per_worker: usize,
    pub(crate) shared: usize,
    /// Memory for samples that reader threads read ahead.
    pub(crate) ahead: usize,
    /// Memory for samples that the source prefetches.
    pub(crate) source: usize,
    /// Memory for the user's transforms.
    pub(crate) transforms: usize,
    /// Memory for the cache of decoded images.
    pub(crate) cache: usize,
}

impl ScratchPlan {
    /// Returns the plan if memory is not scarce.
    pub(crate) fn ample(workers: usize, cores: usize, fixed: usize) -> Self {
        let shared = cores.min(workers).saturating_mul(SHARED_PER_CORE);
        ScratchPlan { workers, fixed, per_worker: OWN, shared, ahead: AHEAD, source: 0, transforms: 0, cache: 0 }
    }

    pub(crate) fn without_readers(self) -> Self {
        ScratchPlan { ahead: 0, source: 0, ..self }
    }

    pub(crate) fn with_source(self, bytes: usize) -> Self {
        ScratchPlan { source: bytes, ..self }
    }

    pub(crate) fn with_transforms(self, bytes: usize) -> Self {
        ScratchPlan { transforms: bytes, ..self }
    }

    pub(crate) fn with_cache(self, bytes: usize) -> Self {
        ScratchPlan { cache: bytes, ..self }
    }

    /// Returns the minimum: the memory without which workers and transforms cannot run, plus the
    /// cache.
    pub(crate) fn needed(&self) -> usize {
        self.workers.saturating_mul(self.fixed).saturating_add(self.transforms).saturating_add(self.cache)
    }

    pub(crate) fn total(&self) -> usize {
        self.workers
            .saturating_mul(self.per_worker)
            .saturating_add(self.needed())
            .saturating_add(self.shared)
            .saturating_add(self.ahead)
            .saturating_add(self.source)
    }

    /// Returns the plan shrunk to `bytes` bytes, but not below what is
    /// [needed](ScratchPlan::needed).
    pub(crate) fn within(self, bytes: usize) -> Self {
        if self.total() <= bytes {
            return self;
        }
        let remaining = bytes.saturating_sub(self.needed());
        let (ahead, source) = (self.ahead.min(remaining / 8), self.source.min(remaining / 4));
        let remaining = remaining - ahead - source;
        let per_worker = self.per_worker.min(remaining / 2 / self.workers);
        ScratchPlan {
            per_worker,
            shared: self.shared.min(remaining - per_worker * self.workers),
            ahead,
            source,
            ..self
        }
    }
}

/// Division of a worker's own share, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Memory for the pixels of images that are decoded together.
    pub(crate) decode: usize,
    /// Memory for the encoded bytes of the current samples.
    pub(crate) encoded: usize,
    /// Memory that decoders keep from image to image.
    pub(crate) retained: usize,
}

impl Share {
    /// Returns the maximum buffer capacity for a sample of `bytes` encoded bytes. A growing buffer
    /// may have twice the capacity of its content.
    pub(crate) fn buffer(bytes: usize) -> usize {
        bytes.saturating_mul(2)
    }

    /// Returns how much shared memory the buffer of a sample needs: none if it fits into
    /// [`encoded`](Share::encoded), otherwise the size of the whole buffer.
    pub(crate) fn excess_buffer(&self, bytes: usize) -> usize {
        let buffer = Self::buffer(bytes);
        if buffer > self.encoded { buffer } else { 0 }
    }
}

/// The memory that all workers share, and the queue of requests for it.
pub(crate) struct Scratch {
    plan: ScratchPlan,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    in_use: usize,
    /// Waiting requests have the numbers `first..last`.
    first: u64,
    last: u64,
    /// Largest number of bytes that [`Scratch::take`] granted since the last reset.
    #[cfg(test)]
    largest: usize,
}

impl Queue {
    fn admits(&self, bytes: usize, limit: usize) -> bool {
        self.in_use == 0 || self.in_use.saturating_add(bytes) <= limit
    }
}

impl Scratch {
    pub(crate) fn new(plan: ScratchPlan) -> Self {
        Scratch { plan, queue: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn plan(&self) -> ScratchPlan {
        self.plan
    }

    pub(crate) fn share(&self) -> Share {
        Share {
            decode: self.plan.per_worker / 2,
            encoded: self.plan.per_worker / 4,
            retained: self.plan.per_worker / 4,
        }
    }

    /// Returns the largest number of bytes that [`Scratch::take`] granted since the last call.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn reset_largest(&self) -> usize {
        std::mem::take(&mut self.queue().largest)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while holding this lock")
    }

    /// Takes shared memory if it is available and no other request is waiting.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<SharedMemory<'_>> {
        let mut queue = self.queue();
        let fits = queue.in_use.saturating_add(bytes) <= self.plan.shared;
        if queue.first < queue.last || !fits {
            return None;
        }
        queue.in_use += bytes;
        Some(SharedMemory { scratch: self, bytes })
    }

    /// Takes shared memory. Blocks until `bytes` are available or, if `bytes` exceeds the total,
    /// until no shared memory is in use. The calling thread must not hold any shared memory.
    pub(crate) fn take(&self, bytes: usize) -> SharedMemory<'_> {
        let mut queue = self.queue();
        let number = queue.last;
        queue.last += 1;
        while queue.first != number || !queue.admits(bytes, self.plan.shared) {
            queue = self.changed.wait(queue).expect("no code panics while holding this lock");
        }
        queue.first += 1;
        queue.in_use = queue.in_use.saturating_add(bytes);
        #[cfg(test)]
        {
            queue.largest = queue.largest.max(bytes);
        }
        drop(queue);
        self.changed.notify_all();
        SharedMemory { scratch: self, bytes }
    }
}

/// Shared memory of one worker, released on drop.
pub(crate) struct SharedMemory<'a> {
    scratch: &'a Scratch,
    bytes: usize,
}

impl Drop for SharedMemory<'_> {
    fn drop(&mut self) {
        let mut queue = self.scratch.queue();
        queue.in_use = queue.in_use.saturating_sub(self.bytes);
        drop(queue);
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
        Scratch::new(ScratchPlan {
            workers: 1,
            fixed: 0,
            per_worker: 0,
            shared,
            ahead: 0,
            source: 0,
            transforms: 0,
            cache: 0,
        })
    }

    #[test]
    fn only_a_request_that_runs_alone_exceeds_the_memory() {
        let scratch = Arc::new(scratch(100));
        let in_use = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (scratch, in_use) = (scratch.clone(), in_use.clone());
                thread::spawn(move || {
                    for round in 0..200 {
                        let bytes = if (i + round) % 11 == 0 { 250 } else { 10 + 13 * (i + round) % 60 };
                        let hold = scratch.take(bytes);
                        let total = in_use.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(total <= 100 || total == bytes, "{total} bytes are in use, {bytes} by this thread");
                        in_use.fetch_sub(bytes, Ordering::SeqCst);
                        drop(hold);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let queue = scratch.queue();
        assert_eq!((queue.in_use, queue.first, queue.last), (0, 1600, 1600));
    }

    #[test]
    fn a_small_request_does_not_overtake_a_large_one() {
        let scratch = Arc::new(scratch(100));
        let first = scratch.take(60);
        let waits = {
            let scratch = scratch.clone();
            thread::spawn(move || drop(scratch.take(90)))
        };
        while scratch.queue().last < 2 {
            thread::yield_now();
        }
        assert!(scratch.try_take(10).is_none(), "memory is available, but another request is waiting");
        drop(first);
        waits.join().unwrap();
        let everything = scratch.try_take(100);
        assert!(everything.is_some() && scratch.try_take(1).is_none());
        drop(everything);
        assert!(scratch.try_take(101).is_none(), "only a blocking request may exceed the memory");
    }

    #[test]
    fn a_plan_stays_within_its_limit() {
        let ample = ScratchPlan::ample(64, 2, 1000);
        assert_eq!((ample.per_worker, ample.shared), (OWN, 2 * SHARED_PER_CORE));
        assert_eq!(ample.within(ample.total()), ample);
        for bytes in [0, 500, 2000, 64_000, 65_000, 1 << 20, 1 << 28, ample.total() - 1] {
            let plan = ample.within(bytes);
            assert!(plan.total() <= bytes.max(64 * 1000), "{plan:?} within {bytes}");
            assert_eq!(plan.workers, 64);
        }
        let plan = ample.within(1 << 30);
        assert!(plan.per_worker > 4 << 20 && plan.shared >= 256 << 20 && plan.ahead >= 32 << 20, "{plan:?}");
        assert_eq!(ScratchPlan::ample(3, 8, 0).within(0).total(), 0);
        let plan = ample.with_source(1 << 40).within(1 << 30);
        assert!(plan.total() <= 1 << 30 && plan.source > 200 << 20, "{plan:?}");
        assert_eq!(ample.with_source(1 << 20).within(1 << 40).source, 1 << 20);
    }
}
