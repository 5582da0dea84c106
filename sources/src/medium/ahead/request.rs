//! What all requests share: the parts of a dataset, counts, and the rules for trying again.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::machine::hash::fnv1a;
use crate::model::Position;
use crate::model::{BatchIndex, Lookahead, NextUse, Object, Tier};
use crate::stats::{NetworkStats, Tally};

/// Attempts of a request, and the pauses between them, each four times as long as the one before.
/// Together they bridge an outage of a minute and a half.
pub(super) const ATTEMPTS: u32 = 12;
/// The attempt after which a warning is logged.
pub(super) const TOLD: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Finds the number of a sample's object, and the range in it.
type Find = dyn Fn(u64) -> Option<(u32, Range<u64>)> + Send + Sync;

/// The objects of a dataset, and the part that each sample needs.
pub(crate) struct Parts {
    objects: Arc<[Object]>,
    find: Box<Find>,
}

impl Parts {
    /// `find` returns the number of the object of a sample, and the range in it. `None` for a
    /// sample that is not read ahead.
    pub(crate) fn new(
        objects: Arc<[Object]>,
        find: impl Fn(u64) -> Option<(u32, Range<u64>)> + Send + Sync + 'static,
    ) -> Self {
        Parts { objects, find: Box::new(find) }
    }

    pub(super) fn part(&self, sample: u64) -> Option<(u32, Range<u64>)> {
        (self.find)(sample)
    }

    pub(super) fn object(&self, number: u32) -> &Object {
        &self.objects[number as usize]
    }

    /// A hash of the versions of all objects, by which samples have the same number everywhere.
    pub(super) fn identity(&self) -> u64 {
        identity(self.objects.iter())
    }
}

/// The order of reads in which each sample of `order` is `width` reads: the first of sample `n` has
/// the number `n * width`.
pub(crate) fn wide(order: Lookahead, width: usize) -> Lookahead {
    let width = width as u64;
    let (all, samples, bytes) = (order.clone(), order.clone(), order.bytes());
    let reads = move |place| {
        let samples = samples.samples(place)?;
        Some(samples.into_iter().flat_map(|sample| sample * width..(sample + 1) * width).collect())
    };
    let next = move |epoch, read, from| match order.next_use(read / width, BatchIndex { epoch, batch: from }, 1) {
        NextUse::At(place) => Position::At(place.batch),
        NextUse::Later => Position::Absent,
        NextUse::Unknown => Position::Unknown,
    };
    Lookahead::new(bytes, move |epoch| all.batches(epoch), reads).with_next(next)
}

/// A hash of the versions of `objects`, in this order.
pub(crate) fn identity<'a>(objects: impl Iterator<Item = &'a Object>) -> u64 {
    let mut bytes = Vec::new();
    for object in objects {
        let hash =
            fnv1a(object.url.as_bytes()) ^ fnv1a(object.tag.as_deref().unwrap_or_default().as_bytes()).rotate_left(1);
        let server = object.server.as_deref().map_or(0, |server| fnv1a(server.as_bytes()).rotate_left(2));
        bytes.extend([hash ^ server, object.len].map(u64::to_le_bytes).concat());
    }
    fnv1a(&bytes)
}

/// Counts of requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) refusals: AtomicU64,
    /// Bytes of samples that were read.
    pub(crate) used: AtomicU64,
    /// Reads and bytes that a cache answered from memory, and from its folder.
    pub(crate) kept: [[AtomicU64; 2]; 2],
    /// Whether a store keeps anything.
    pub(crate) cached: AtomicBool,
    pub(crate) times: Mutex<Times>,
}

/// Times of answers. A tally has one writer, hence the lock.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) answers: Tally,
    pub(crate) first_bytes: Tally,
}

impl std::fmt::Debug for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Times").finish_non_exhaustive()
    }
}

impl Counts {
    /// Counts a read of `len` bytes that were kept in `tier`.
    pub(super) fn kept(&self, tier: Tier, len: usize) {
        let [reads, bytes] = &self.kept[usize::from(tier == Tier::Folder)];
        reads.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Counts an answer of `bytes` bytes after `took`, whose first byte came after `first`.
    pub(super) fn answered(&self, took: Duration, first: Duration, bytes: usize) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.answers.add(ns(took), bytes);
        times.first_bytes.add(ns(first), 0);
    }

    pub(super) fn stats(&self) -> NetworkStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let one = |tally: &Tally| Tally::sum(std::iter::once(tally));
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let [[memory_hits, memory_bytes], [folder_hits, folder_bytes]] = &self.kept;
        NetworkStats {
            requests: of(&self.requests),
            retries: of(&self.retries),
            hedges: of(&self.hedges),
            refusals: of(&self.refusals),
            bytes: of(&self.bytes),
            used_bytes: of(&self.used),
            answers: one(&times.answers),
            first_bytes: one(&times.first_bytes),
            memory_hits: of(memory_hits),
            memory_bytes: of(memory_bytes),
            folder_hits: of(folder_hits),
            folder_bytes: of(folder_bytes),
            cached: self.cached.load(Ordering::Relaxed),
        }
    }
}

/// Pause after attempt `attempt`, between half and all of its length. Requests that fail together
/// are not repeated together.
pub(super) fn pause(attempt: u32, salt: u64) -> Duration {
    let full = (PAUSE * 4u32.saturating_pow(attempt - 1).min(1 << 20)).min(LONGEST_PAUSE);
    let random = (salt ^ u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    full.mul_f64(0.5 + random as f64 / f64::from(1 << 25))
}

/// Logs that a request is repeated. The user hears of it after a second, long before the last
/// attempt, because nothing else says why the loader waits.
pub(super) fn repeats(attempt: u32, error: &Error) {
    if attempt == TOLD {
        tracing::warn!("no answer after {attempt} attempts; up to {ATTEMPTS} take about a minute and a half: {error}");
    } else {
        tracing::debug!("read again after attempt {attempt}: {error}");
    }
}

/// The final error of a request for `range` of `object`.
pub(super) fn given_up(error: Error, object: &Object, range: Range<u64>, attempts: u32) -> Error {
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
    fn a_request_that_fails_again_and_again_is_told_once() {
        let told = Warnings::default();
        tracing::subscriber::with_default(told.clone(), || {
            (1..ATTEMPTS).for_each(|attempt| repeats(attempt, &Error::in_source("connection refused")));
        });
        let told = told.0.lock().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("no answer after 4 attempts") && told[0].contains("connection refused"), "{told:?}");
    }
}
