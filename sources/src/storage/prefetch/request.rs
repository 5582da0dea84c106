//! The byte ranges of a dataset's samples, counters of requests, and the retry policy.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::machine::hash::fnv1a;
use crate::machine::temp_files::random;
use crate::model::Position;
use crate::model::{BatchIndex, Lookahead, NextUse, Object, Tier};
use crate::stats::{NetworkStats, Tally};

/// Maximum number of attempts per request. With the random pauses between attempts, requests
/// survive an outage of about 45 to 90 seconds.
pub(super) const MAX_ATTEMPTS: u32 = 12;
pub(super) const WARN_AFTER: u32 = 4;
/// Nominal pause after the first attempt. Each later pause is four times as long, up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Maps a sample to the index of its object and its byte range in that object.
type ByteRange = dyn Fn(u64) -> Option<(u32, Range<u64>)> + Send + Sync;

type IsReady = dyn Fn(BatchIndex) -> bool + Send + Sync;

pub(crate) struct SampleRanges {
    objects: Arc<[Object]>,
    byte_range: Box<ByteRange>,
    is_ready: Option<Box<IsReady>>,
}

impl SampleRanges {
    /// `byte_range` returns `None` for a sample that must not be prefetched.
    pub(crate) fn new(
        objects: Arc<[Object]>,
        byte_range: impl Fn(u64) -> Option<(u32, Range<u64>)> + Send + Sync + 'static,
    ) -> Self {
        SampleRanges { objects, byte_range: Box::new(byte_range), is_ready: None }
    }

    /// Defers planning the requests of a batch until `is_ready` returns true. `is_ready` must
    /// not block. When the result changes, the source calls
    /// [`Remote::replan`](super::Remote::replan).
    #[cfg(feature = "video")]
    pub(crate) fn with_deferred_planning(self, is_ready: impl Fn(BatchIndex) -> bool + Send + Sync + 'static) -> Self {
        SampleRanges { is_ready: Some(Box::new(is_ready)), ..self }
    }

    pub(super) fn are_ready(&self, batch: BatchIndex) -> bool {
        self.is_ready.as_ref().is_none_or(|is_ready| is_ready(batch))
    }

    pub(super) fn object_and_range(&self, sample: u64) -> Option<(u32, Range<u64>)> {
        (self.byte_range)(sample)
    }

    pub(super) fn object(&self, index: u32) -> &Object {
        &self.objects[index as usize]
    }

    /// Returns a hash of the object versions. Two datasets with equal hashes have the same objects,
    /// so their samples have the same indices.
    pub(super) fn hash_objects(&self) -> u64 {
        hash_objects(self.objects.iter())
    }
}

/// Converts an order of samples to an order of reads. The reads of sample `n` have the indices from
/// `n * reads_per_sample` to `(n + 1) * reads_per_sample - 1`.
pub(crate) fn order_of_reads(order: Lookahead, reads_per_sample: usize) -> Lookahead {
    let reads_per_sample = reads_per_sample as u64;
    let (sample_order, samples, bytes) = (order.clone(), order.clone(), order.budget_bytes());
    let reads = move |batch| {
        let samples = samples.samples(batch)?;
        Some(
            samples.into_iter().flat_map(|sample| sample * reads_per_sample..(sample + 1) * reads_per_sample).collect(),
        )
    };
    let next = move |epoch, read, first_batch| match order.next_use(
        read / reads_per_sample,
        BatchIndex { epoch, batch: first_batch },
        1,
    ) {
        NextUse::At(index) => Position::At(index.batch),
        NextUse::Later => Position::Absent,
        NextUse::Unknown => Position::Unknown,
    };
    Lookahead::new(bytes, move |epoch| sample_order.batch_count(epoch), reads).with_next(next)
}

/// Returns a hash of the versions of `objects`, which depends on their order.
pub(crate) fn hash_objects<'a>(objects: impl Iterator<Item = &'a Object>) -> u64 {
    let mut bytes = Vec::new();
    for object in objects {
        let hash =
            fnv1a(object.url.as_bytes()) ^ fnv1a(object.tag.as_deref().unwrap_or_default().as_bytes()).rotate_left(1);
        let server = object.server.as_deref().map_or(0, |server| fnv1a(server.as_bytes()).rotate_left(2));
        bytes.extend([hash ^ server, object.len].map(u64::to_le_bytes).concat());
    }
    fnv1a(&bytes)
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) used_bytes: AtomicU64,
    /// Numbers of reads and of bytes that each cache served: the in-memory cache, then the on-disk
    /// cache.
    pub(crate) cache_hits: [[AtomicU64; 2]; 2],
    pub(crate) cached: AtomicBool,
    pub(crate) times: Mutex<Times>,
}

/// Latencies of requests. A tally supports only one writer, hence the mutex.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) responses: Tally,
    pub(crate) time_to_first_byte: Tally,
}

impl std::fmt::Debug for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Times").finish_non_exhaustive()
    }
}

impl Counts {
    pub(super) fn record_cache_hit(&self, tier: Tier, len: usize) {
        let [reads, bytes] = &self.cache_hits[usize::from(tier == Tier::Disk)];
        reads.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Records a response. `latency` is the time to the last byte, and `first_byte_latency` the
    /// time to the first byte.
    pub(super) fn record_response(&self, latency: Duration, first_byte_latency: Duration, bytes: usize) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.responses.add(ns(latency), bytes);
        times.time_to_first_byte.add(ns(first_byte_latency), 0);
    }

    pub(super) fn stats(&self) -> NetworkStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let stats = |tally: &Tally| Tally::sum(std::iter::once(tally));
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let [[memory_hits, memory_bytes], [disk_hits, disk_bytes]] = &self.cache_hits;
        NetworkStats {
            requests: load(&self.requests),
            retries: load(&self.retries),
            hedges: load(&self.hedges),
            refusals: load(&self.refusals),
            received_bytes: load(&self.bytes),
            used_bytes: load(&self.used_bytes),
            responses: stats(&times.responses),
            time_to_first_byte: stats(&times.time_to_first_byte),
            memory_hits: load(memory_hits),
            memory_bytes: load(memory_bytes),
            disk_hits: load(disk_hits),
            disk_bytes: load(disk_bytes),
            has_cache: self.cached.load(Ordering::Relaxed),
        }
    }
}

/// Returns a random duration between half of the nominal pause and all of it, so that requests of
/// one or several processes that fail together are not retried together.
pub(super) fn retry_pause(attempt: u32) -> Duration {
    let nominal_pause = (FIRST_PAUSE * 4u32.saturating_pow(attempt - 1).min(1 << 20)).min(LONGEST_PAUSE);
    nominal_pause.mul_f64(0.5 + (random() >> 40) as f64 / f64::from(1 << 25))
}

/// Logs a retry. The user sees a warning after attempt [`WARN_AFTER`], because nothing else
/// explains why the loader is waiting.
pub(super) fn log_retry(attempt: u32, error: &Error) {
    if attempt == WARN_AFTER {
        tracing::warn!(
            "request failed {attempt} times; giving up after {MAX_ATTEMPTS} attempts, with pauses of up to 90 seconds \
             in total: {error}"
        );
    } else {
        tracing::debug!("retry after attempt {attempt}: {error}");
    }
}

pub(super) fn final_error(error: Error, object: &Object, range: Range<u64>, attempts: u32) -> Error {
    let note = match attempts {
        0 | 1 => String::new(),
        _ => format!("bytes {} to {}, after {attempts} attempts", range.start, range.end),
    };
    error.settled(&note).at_path(&object.url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warnings::Warnings;

    #[test]
    fn requests_that_fail_together_are_retried_at_different_times() {
        let mut pauses: Vec<_> = (0..100).map(|_| retry_pause(3)).collect();
        assert!(pauses.iter().all(|pause| (80..=160).contains(&pause.as_millis())), "{pauses:?}");
        pauses.sort_unstable();
        pauses.dedup();
        assert!(pauses.len() > 90, "{pauses:?}");
    }

    #[test]
    fn repeated_failures_of_a_request_are_logged_once() {
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || {
            (1..MAX_ATTEMPTS).for_each(|attempt| log_retry(attempt, &Error::in_source("connection refused")));
        });
        let warnings = warnings.0.lock().unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("request failed 4 times") && warnings[0].contains("connection refused"),
            "{warnings:?}"
        );
    }
}
