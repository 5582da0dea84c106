//! Scratch memory of the workers.
//!
//! Each worker owns a share (`worker_bytes`), enough for eight typical photographs if memory is not
//! scarce. A larger image uses shared memory, which is granted in the order of the requests. An
//! image that needs more than all shared memory waits until no other image uses any. A worker never
//! waits while it holds shared memory, so every holder can finish.

use std::sync::{Condvar, Mutex, MutexGuard};

/// A worker's own share in bytes, if memory is not scarce. Half of it holds images that are decoded
/// together: eight 0.7-megapixel images. A quarter holds encoded bytes, and a quarter is memory
/// that decoders keep from image to image.
const WORKER_BYTES: usize = 32 << 20;
/// Shared memory per core in bytes. A 24-megapixel image needs 72 MB, and a progressive JPEG of
/// that size needs twice as much.
const SHARED_BYTES_PER_CORE: usize = 128 << 20;
/// Memory for samples that are read ahead, in bytes, if memory is not scarce. This is enough for
/// 1,200 photographs of 110 KB, more than twice as many as
/// [`MAX_READERS`](crate::engine::state::MAX_READERS) threads read at the same time.
const READ_AHEAD_BYTES: usize = 128 << 20;

/// Division of the scratch memory among workers and readers, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScratchPlan {
    pub(crate) workers: usize,
    /// Memory that each worker always needs: one output image, and scratch memory for effects,
    /// pasted objects and mixing.
    pub(crate) fixed_bytes: usize,
    /// A worker's own share, in addition to `fixed_bytes`.
    pub(crate) worker_bytes: usize,
    pub(crate) shared_bytes: usize,
    pub(crate) readahead_bytes: usize,
    /// Memory for samples that the source prefetches.
    pub(crate) source_bytes: usize,
    pub(crate) transform_bytes: usize,
    pub(crate) cache_bytes: usize,
}

impl ScratchPlan {
    pub(crate) fn ample(workers: usize, cores: usize, fixed_bytes: usize) -> Self {
        let shared_bytes = cores.min(workers).saturating_mul(SHARED_BYTES_PER_CORE);
        ScratchPlan {
            workers,
            fixed_bytes,
            worker_bytes: WORKER_BYTES,
            shared_bytes,
            readahead_bytes: READ_AHEAD_BYTES,
            source_bytes: 0,
            transform_bytes: 0,
            cache_bytes: 0,
        }
    }

    pub(crate) fn without_readers(self) -> Self {
        ScratchPlan { readahead_bytes: 0, source_bytes: 0, ..self }
    }

    pub(crate) fn with_source(self, bytes: usize) -> Self {
        ScratchPlan { source_bytes: bytes, ..self }
    }

    pub(crate) fn with_transforms(self, bytes: usize) -> Self {
        ScratchPlan { transform_bytes: bytes, ..self }
    }

    pub(crate) fn with_cache(self, bytes: usize) -> Self {
        ScratchPlan { cache_bytes: bytes, ..self }
    }

    /// Returns the memory without which workers and transforms cannot run, plus the cache.
    pub(crate) fn min_bytes(&self) -> usize {
        self.workers
            .saturating_mul(self.fixed_bytes)
            .saturating_add(self.transform_bytes)
            .saturating_add(self.cache_bytes)
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.workers
            .saturating_mul(self.worker_bytes)
            .saturating_add(self.min_bytes())
            .saturating_add(self.shared_bytes)
            .saturating_add(self.readahead_bytes)
            .saturating_add(self.source_bytes)
    }

    /// Shrinks the plan to at most `bytes`, but not below its [minimum](ScratchPlan::min_bytes).
    pub(crate) fn shrink_to(self, bytes: usize) -> Self {
        if self.total_bytes() <= bytes {
            return self;
        }
        let remaining = bytes.saturating_sub(self.min_bytes());
        let (readahead_bytes, source_bytes) =
            (self.readahead_bytes.min(remaining / 8), self.source_bytes.min(remaining / 4));
        let remaining = remaining - readahead_bytes - source_bytes;
        let worker_bytes = self.worker_bytes.min(remaining / 2 / self.workers);
        ScratchPlan {
            worker_bytes,
            shared_bytes: self.shared_bytes.min(remaining - worker_bytes * self.workers),
            readahead_bytes,
            source_bytes,
            ..self
        }
    }
}

/// Division of a worker's own share, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Memory for the pixels of images that are decoded together, and for the decoders' working
    /// memory.
    pub(crate) decode_bytes: usize,
    /// Memory for the encoded bytes of the current samples.
    pub(crate) encoded_bytes: usize,
    /// Memory that decoders keep from image to image.
    pub(crate) retained_bytes: usize,
}

impl Share {
    /// Returns the maximum buffer capacity for a sample of `sample_bytes` encoded bytes. A growing
    /// buffer may have twice the capacity of its content.
    pub(crate) fn max_buffer_bytes(sample_bytes: usize) -> usize {
        sample_bytes.saturating_mul(2)
    }

    /// Returns how many bytes of shared memory the buffer of a sample needs, or 0 if the buffer
    /// fits into the worker's own share.
    pub(crate) fn excess_buffer_bytes(&self, sample_bytes: usize) -> usize {
        let buffer_bytes = Self::max_buffer_bytes(sample_bytes);
        if buffer_bytes > self.encoded_bytes { buffer_bytes } else { 0 }
    }
}

/// The memory that all workers share.
pub(crate) struct Scratch {
    plan: ScratchPlan,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes_in_use: usize,
    /// Waiting requests have the numbers `first_waiting..next_number`.
    first_waiting: u64,
    next_number: u64,
    #[cfg(test)]
    largest_grant: usize,
}

impl Queue {
    fn admits(&self, bytes: usize, limit: usize) -> bool {
        self.bytes_in_use == 0 || self.bytes_in_use.saturating_add(bytes) <= limit
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
            decode_bytes: self.plan.worker_bytes / 2,
            encoded_bytes: self.plan.worker_bytes / 4,
            retained_bytes: self.plan.worker_bytes / 4,
        }
    }

    /// Returns the largest number of bytes that one call of [`Scratch::take`] granted since the
    /// last call of this function.
    #[cfg(all(test, feature = "_device"))]
    pub(crate) fn take_largest_grant(&self) -> usize {
        std::mem::take(&mut self.queue().largest_grant)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while holding this lock")
    }

    /// Takes shared memory if it is available and no other request is waiting.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<SharedMemory<'_>> {
        let mut queue = self.queue();
        let fits = queue.bytes_in_use.saturating_add(bytes) <= self.plan.shared_bytes;
        if queue.first_waiting < queue.next_number || !fits {
            return None;
        }
        queue.bytes_in_use += bytes;
        Some(SharedMemory { scratch: self, bytes })
    }

    /// Takes shared memory. Blocks until all earlier requests have been granted and `bytes` are
    /// available or, if `bytes` exceeds the total, until no shared memory is in use. The calling
    /// thread must not hold any shared memory.
    pub(crate) fn take(&self, bytes: usize) -> SharedMemory<'_> {
        let mut queue = self.queue();
        let number = queue.next_number;
        queue.next_number += 1;
        while queue.first_waiting != number || !queue.admits(bytes, self.plan.shared_bytes) {
            queue = self.changed.wait(queue).expect("no code panics while holding this lock");
        }
        queue.first_waiting += 1;
        queue.bytes_in_use = queue.bytes_in_use.saturating_add(bytes);
        #[cfg(test)]
        {
            queue.largest_grant = queue.largest_grant.max(bytes);
        }
        drop(queue);
        self.changed.notify_all();
        SharedMemory { scratch: self, bytes }
    }
}

pub(crate) struct SharedMemory<'a> {
    scratch: &'a Scratch,
    bytes: usize,
}

impl Drop for SharedMemory<'_> {
    fn drop(&mut self) {
        let mut queue = self.scratch.queue();
        queue.bytes_in_use = queue.bytes_in_use.saturating_sub(self.bytes);
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

    fn scratch(shared_bytes: usize) -> Scratch {
        Scratch::new(ScratchPlan {
            workers: 1,
            fixed_bytes: 0,
            worker_bytes: 0,
            shared_bytes,
            readahead_bytes: 0,
            source_bytes: 0,
            transform_bytes: 0,
            cache_bytes: 0,
        })
    }

    #[test]
    fn only_a_request_that_runs_alone_exceeds_the_memory() {
        let scratch = Arc::new(scratch(100));
        let bytes_in_use = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (scratch, bytes_in_use) = (scratch.clone(), bytes_in_use.clone());
                thread::spawn(move || {
                    for round in 0..200 {
                        let bytes = if (i + round) % 11 == 0 { 250 } else { 10 + 13 * (i + round) % 60 };
                        let shared_memory = scratch.take(bytes);
                        let total_bytes = bytes_in_use.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(
                            total_bytes <= 100 || total_bytes == bytes,
                            "{total_bytes} bytes are in use, {bytes} by this thread"
                        );
                        bytes_in_use.fetch_sub(bytes, Ordering::SeqCst);
                        drop(shared_memory);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let queue = scratch.queue();
        assert_eq!((queue.bytes_in_use, queue.first_waiting, queue.next_number), (0, 1600, 1600));
    }

    #[test]
    fn a_small_request_does_not_overtake_a_large_one() {
        let scratch = Arc::new(scratch(100));
        let first = scratch.take(60);
        let waiter = {
            let scratch = scratch.clone();
            thread::spawn(move || drop(scratch.take(90)))
        };
        while scratch.queue().next_number < 2 {
            thread::yield_now();
        }
        assert!(scratch.try_take(10).is_none(), "memory is available, but another request is waiting");
        drop(first);
        waiter.join().unwrap();
        let everything = scratch.try_take(100);
        assert!(everything.is_some() && scratch.try_take(1).is_none());
        drop(everything);
        assert!(scratch.try_take(101).is_none(), "only a blocking request may exceed the memory");
    }

    #[test]
    fn a_plan_stays_within_its_limit() {
        let ample = ScratchPlan::ample(64, 2, 1000);
        assert_eq!((ample.worker_bytes, ample.shared_bytes), (WORKER_BYTES, 2 * SHARED_BYTES_PER_CORE));
        assert_eq!(ample.shrink_to(ample.total_bytes()), ample);
        for bytes in [0, 500, 2000, 64_000, 65_000, 1 << 20, 1 << 28, ample.total_bytes() - 1] {
            let plan = ample.shrink_to(bytes);
            assert!(plan.total_bytes() <= bytes.max(64 * 1000), "{plan:?} within {bytes}");
            assert_eq!(plan.workers, 64);
        }
        let plan = ample.shrink_to(1 << 30);
        assert!(
            plan.worker_bytes > 4 << 20 && plan.shared_bytes >= 256 << 20 && plan.readahead_bytes >= 32 << 20,
            "{plan:?}"
        );
        assert_eq!(ScratchPlan::ample(3, 8, 0).shrink_to(0).total_bytes(), 0);
        let plan = ample.with_source(1 << 40).shrink_to(1 << 30);
        assert!(plan.total_bytes() <= 1 << 30 && plan.source_bytes > 200 << 20, "{plan:?}");
        assert_eq!(ample.with_source(1 << 20).shrink_to(1 << 40).source_bytes, 1 << 20);
    }
}
