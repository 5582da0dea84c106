//! Records the number and the durations of entries, cheaply enough to be always on.
//!
//! Only one thread writes to a tally, so adding an entry costs a few plain loads and stores. The
//! buckets of the histogram become wider geometrically, with four buckets per power of two.
//! Quantiles between 256 ns and half an hour are therefore accurate to 12.5%, in constant memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use super::Since;

/// Exclusive upper bound of the first bucket, in ns. It must be a power of two.
const FIRST_BOUND: u64 = 256;
/// Number of powers of two above [`FIRST_BOUND`]. The last bucket begins at about half an hour.
const OCTAVES: usize = 33;
const BUCKETS: usize = 1 + 4 * OCTAVES;

fn bucket(ns: u64) -> usize {
    if ns < FIRST_BOUND {
        return 0;
    }
    let octave = ns.ilog2();
    let quarter = (ns >> (octave - 2)) & 3;
    (1 + 4 * (octave - FIRST_BOUND.ilog2()) as usize + quarter as usize).min(BUCKETS - 1)
}

/// Returns the lower bound of a bucket, in ns.
fn lower_bound(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(i) => (4 + i as u64 % 4) << (FIRST_BOUND.ilog2() as usize + i / 4 - 2),
    }
}

/// Count, sums and histogram of entries. One thread adds entries, and any thread may read them.
///
/// Adding an entry takes four loads and four stores, without a lock or an atomic read-modify-write
/// operation.
pub struct Tally {
    count: AtomicU64,
    ns: AtomicU64,
    bytes: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Tally {
    fn default() -> Self {
        Tally { count: 0.into(), ns: 0.into(), bytes: 0.into(), buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

/// A counter that any thread may read.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Adds one. Only one thread may change a counter that this method changes, because the
    /// addition is not atomic.
    #[inline]
    pub fn bump(&self) {
        bump(&self.0, 1);
    }
}

fn bump(sum: &AtomicU64, n: u64) {
    sum.store(sum.load(Relaxed) + n, Relaxed);
}

impl Tally {
    /// Adds an entry of `bytes` bytes that took `ns` nanoseconds.
    #[inline]
    pub fn add(&self, ns: u64, bytes: usize) {
        self.add_each(1, ns, bytes);
    }

    /// Adds `count` entries (at least one) that took `ns` nanoseconds and have `bytes` bytes in
    /// total. Each entry is recorded with the mean time.
    #[inline]
    pub fn add_each(&self, count: u64, ns: u64, bytes: usize) {
        bump(&self.count, count);
        bump(&self.bytes, bytes as u64);
        bump(&self.buckets[bucket(ns / count)], count);
        self.add_time(ns);
    }

    /// Adds time to the total without counting an entry.
    pub fn add_time(&self, ns: u64) {
        bump(&self.ns, ns);
    }

    /// Returns the total time of all entries and all calls of `add_time`, in ns.
    pub fn ns(&self) -> u64 {
        self.ns.load(Relaxed)
    }

    /// Returns the mean number of bytes per entry, or `None` if there are no entries.
    pub fn mean_bytes(&self) -> Option<u64> {
        self.bytes.load(Relaxed).checked_div(self.count.load(Relaxed))
    }

    /// Returns the sum of the tallies of several threads.
    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Tally>) -> StageStats {
        let mut counts = [0; BUCKETS];
        let (mut count, mut ns, mut bytes) = (0, 0, 0);
        for tally in tallies {
            count += tally.count.load(Relaxed);
            ns += tally.ns.load(Relaxed);
            bytes += tally.bytes.load(Relaxed);
            counts.iter_mut().zip(&tally.buckets).for_each(|(sum, n)| *sum += n.load(Relaxed));
        }
        let histogram = (0..BUCKETS).filter(|&i| counts[i] > 0).map(|i| [lower_bound(i), counts[i]]).collect();
        StageStats::new(count, ns as f64 * 1e-9, bytes, histogram)
    }
}

/// Returns `a / b`, or 0 if `b` is 0.
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The number of entries that a stage has processed, with their times and bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StageStats {
    /// Number of entries. An entry is a sample in the stages of workers and readers, a request in
    /// network statistics, and a batch in all other stages.
    pub count: u64,
    /// Seconds spent in the stage, summed over all threads.
    pub seconds: f64,
    /// Number of bytes that the stage produced, if any.
    pub bytes: u64,
    /// Median time per entry in seconds, accurate to 12.5% from 256 ns to half an hour.
    pub p50_seconds: f64,
    /// 99th percentile of the time per entry in seconds, as accurate as the median.
    pub p99_seconds: f64,
    /// The non-empty buckets of the histogram. Each is given as its lower bound in ns and its
    /// number of entries. There are four buckets per power of two from 256 ns to half an hour, so
    /// the middle of a bucket is within 12.5% of every time in it. The first bucket contains all
    /// shorter times, and the last one all longer times.
    pub histogram: Vec<[u64; 2]>,
}

impl StageStats {
    fn new(count: u64, seconds: f64, bytes: u64, histogram: Vec<[u64; 2]>) -> Self {
        let mut stats = StageStats { count, seconds, bytes, histogram, ..Default::default() };
        (stats.p50_seconds, stats.p99_seconds) = (stats.quantile(0.5), stats.quantile(0.99));
        stats
    }

    /// Returns the mean number of seconds per entry, or 0 if there are no entries.
    pub fn mean_seconds(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.seconds / self.count as f64 }
    }

    /// Returns the quantile `q` (from 0 to 1) of the times, in seconds. The estimate is the middle
    /// of the bucket that contains the quantile. Returns 0 if there are no entries.
    pub fn quantile(&self, q: f64) -> f64 {
        let total: u64 = self.histogram.iter().map(|b| b[1]).sum();
        let rank = (q * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bin = self.histogram.iter().find(|b| {
            seen += b[1];
            seen >= rank
        });
        bin.map_or(0.0, |&[from, _]| (from + lower_bound(bucket(from) + 1)) as f64 / 2.0 * 1e-9)
    }

    /// Adds the statistics of two stages.
    #[doc(hidden)]
    pub fn plus(&self, other: &StageStats) -> StageStats {
        let mut histogram_sum = std::collections::BTreeMap::new();
        for [lower_bound, n] in self.histogram.iter().chain(&other.histogram) {
            *histogram_sum.entry(*lower_bound).or_insert(0) += n;
        }
        let histogram = histogram_sum.into_iter().map(|(lower_bound, n)| [lower_bound, n]).collect();
        let (count, bytes) = (self.count + other.count, self.bytes + other.bytes);
        StageStats::new(count, self.seconds + other.seconds, bytes, histogram)
    }
}

impl Since for StageStats {
    fn since(&self, earlier: &Self) -> Self {
        let before = |lower_bound: u64| earlier.histogram.iter().find(|b| b[0] == lower_bound).map_or(0, |b| b[1]);
        let buckets = self.histogram.iter().map(|&[lower_bound, n]| [lower_bound, n.since(&before(lower_bound))]);
        StageStats::new(
            self.count.since(&earlier.count),
            self.seconds.since(&earlier.seconds),
            self.bytes.since(&earlier.bytes),
            buckets.filter(|b| b[1] > 0).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket() {
        for ns in (0..200_000).chain((18..44).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + (1 << (e - 1))])) {
            let i = bucket(ns);
            assert!(lower_bound(i) <= ns, "{ns}");
            assert!(i == BUCKETS - 1 || ns < lower_bound(i + 1), "{ns}");
        }
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let tally = Tally::default();
        let times: Vec<u64> = (1..=10_000).map(|i| i * i).collect();
        times.iter().for_each(|&ns| tally.add(ns, 3));
        let stats = Tally::sum([&tally].into_iter());
        assert_eq!((stats.count, stats.bytes), (10_000, 30_000));
        for q in [0.1, 0.5, 0.9, 0.99] {
            let (exact, actual) = (times[(q * 10_000.0) as usize - 1] as f64 * 1e-9, stats.quantile(q));
            assert!((actual / exact - 1.0).abs() < 0.126, "{q}: {actual} for {exact}");
        }
        assert_eq!((stats.p50_seconds, stats.p99_seconds), (stats.quantile(0.5), stats.quantile(0.99)));
        let more = {
            tally.add(1_000_000_000, 4);
            Tally::sum([&tally].into_iter()).since(&stats)
        };
        assert_eq!((more.count, more.bytes), (1, 4));
        assert!((more.p50_seconds - 1.0).abs() < 0.126 && (more.seconds - 1.0).abs() < 1e-9, "{more:?}");
    }
}
