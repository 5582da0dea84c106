//! [`NetworkStats`]: counters of the requests that a source sends to a store.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Since, StageStats, ratio};

/// Counters of requests to object stores and of cache hits since the source was opened. They
/// include the requests of all loaders that share the source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NetworkStats {
    /// Number of requests, including retries, hedges and listings.
    pub requests: u64,
    /// Number of retries after an error.
    pub retries: u64,
    /// Number of duplicate requests that were sent because the original response was late
    /// (hedging).
    pub hedges: u64,
    /// Number of requests that the server refused because of overload (HTTP status 503 or 429).
    pub refusals: u64,
    /// Number of bytes received.
    pub received_bytes: u64,
    /// Number of received bytes that reads of samples have returned.
    pub used_bytes: u64,
    /// Time to the last byte of each successful prefetch request, and the bytes received.
    pub responses: StageStats,
    /// Time to the first byte of the same requests.
    pub time_to_first_byte: StageStats,
    /// Number of reads served from the in-memory cache.
    pub memory_hits: u64,
    /// Number of bytes that the reads in [`memory_hits`](NetworkStats::memory_hits) returned.
    pub memory_bytes: u64,
    /// Number of reads served from the on-disk cache.
    pub disk_hits: u64,
    /// Number of bytes that the reads in [`disk_hits`](NetworkStats::disk_hits) returned.
    pub disk_bytes: u64,
    /// Whether the store has a cache.
    pub has_cache: bool,
}

/// Computes the difference of all counters. `has_cache` is a flag, so it keeps the value of `self`.
impl Since for NetworkStats {
    fn since(&self, earlier: &Self) -> Self {
        macro_rules! grown {
            ($($field:ident),*) => { NetworkStats { $($field: self.$field.since(&earlier.$field),)* has_cache: self.has_cache } };
        }
        grown!(
            requests,
            retries,
            hedges,
            refusals,
            received_bytes,
            used_bytes,
            responses,
            time_to_first_byte,
            memory_hits,
            memory_bytes,
            disk_hits,
            disk_bytes
        )
    }
}

impl NetworkStats {
    /// Returns the fraction, from 0 to 1, of the samples' bytes that came from the cache. Returns
    /// `None` without a cache, or if nothing has been read yet.
    pub fn hit_rate(&self) -> Option<f64> {
        let hits = self.memory_bytes + self.disk_bytes;
        (self.has_cache && hits + self.used_bytes > 0).then(|| ratio(hits as f64, (hits + self.used_bytes) as f64))
    }

    /// Adds the counters of two sources.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        NetworkStats {
            requests: self.requests + other.requests,
            retries: self.retries + other.retries,
            hedges: self.hedges + other.hedges,
            refusals: self.refusals + other.refusals,
            received_bytes: self.received_bytes + other.received_bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            responses: self.responses.plus(&other.responses),
            time_to_first_byte: self.time_to_first_byte.plus(&other.time_to_first_byte),
            memory_hits: self.memory_hits + other.memory_hits,
            memory_bytes: self.memory_bytes + other.memory_bytes,
            disk_hits: self.disk_hits + other.disk_hits,
            disk_bytes: self.disk_bytes + other.disk_bytes,
            has_cache: self.has_cache || other.has_cache,
        }
    }

    /// Returns the names and values of the counters for a trace of `seconds` seconds.
    #[doc(hidden)]
    pub fn counters(&self, seconds: f64) -> Vec<(&'static str, Value)> {
        let each = |bytes: u64| ratio(bytes as f64, seconds) / 1e6;
        let mut counters = vec![
            ("network, MB/s", json!({ "arrived": each(self.received_bytes), "used": each(self.used_bytes) })),
            ("requests/s", json!({ "sent": ratio(self.requests as f64, seconds) })),
            ("mean requests in flight", json!({ "in flight": ratio(self.responses.seconds, seconds) })),
            ("retried requests", json!({ "retried": self.retries, "hedged": self.hedges, "refused": self.refusals })),
            (
                "time to first byte, ms",
                json!({ "p50": 1e3 * self.time_to_first_byte.p50_seconds, "p99": 1e3 * self.time_to_first_byte.p99_seconds }),
            ),
        ];
        if self.has_cache {
            let cache = json!({ "memory": each(self.memory_bytes), "folder": each(self.disk_bytes) });
            counters.push(("cache, MB/s", cache));
            counters.push(("cache, % of the bytes", json!({ "hits": 100.0 * self.hit_rate().unwrap_or(0.0) })));
        }
        counters
    }

    /// Formats a summary of an interval of `seconds` seconds, one string per line.
    #[doc(hidden)]
    pub fn lines(&self, seconds: f64) -> Vec<String> {
        let mut lines = vec![format!(
            "{:.1} MB/s in {:.0} requests/s, {:.1} in flight on average; first byte after {:.0} ms (p99 {:.0} ms)",
            ratio(self.received_bytes as f64, seconds) / 1e6,
            ratio(self.requests as f64, seconds),
            ratio(self.responses.seconds, seconds),
            1e3 * self.time_to_first_byte.p50_seconds,
            1e3 * self.time_to_first_byte.p99_seconds
        )];
        lines.push(format!(
            "{} requests: {} retried, {} hedged, {} refused",
            self.requests, self.retries, self.hedges, self.refusals
        ));
        let percent = |part: u64, total: u64| 100.0 * ratio(part as f64, total as f64).min(1.0);
        let mut used = format!("{:.1}% of the received bytes were read", percent(self.used_bytes, self.received_bytes));
        if let Some(rate) = self.hit_rate() {
            let total = self.memory_bytes + self.disk_bytes + self.used_bytes;
            used += &format!(
                "; {:.1}% of the samples' bytes came from the cache (memory {:.1}%, folder {:.1}%)",
                100.0 * rate,
                percent(self.memory_bytes, total),
                percent(self.disk_bytes, total)
            );
        }
        lines.push(used);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Tally;

    #[test]
    fn intervals_add_up_to_the_whole_run() {
        let times = |times: &[u64]| {
            let tally = Tally::default();
            times.iter().for_each(|&ns| tally.add(ns, 10));
            Tally::sum(std::iter::once(&tally))
        };
        let first = NetworkStats {
            requests: 3,
            received_bytes: 30,
            used_bytes: 20,
            responses: times(&[1_000, 2_000_000]),
            disk_bytes: 10,
            disk_hits: 1,
            has_cache: true,
            ..NetworkStats::default()
        };
        let second = NetworkStats {
            requests: 2,
            retries: 1,
            received_bytes: 5,
            responses: times(&[1_000, 7]),
            ..NetworkStats::default()
        };
        let both = first.plus(&second);
        assert_eq!((both.requests, both.retries, both.received_bytes, both.has_cache), (5, 1, 35, true));
        assert_eq!(both.responses, times(&[1_000, 2_000_000, 1_000, 7]));
        let rest = both.since(&first);
        assert_eq!((rest.requests, rest.retries, rest.received_bytes, rest.used_bytes), (2, 1, 5, 0));
        assert_eq!((rest.responses.count, rest.responses.histogram.len()), (2, 2));
        assert_eq!((first.hit_rate(), second.hit_rate()), (Some(1.0 / 3.0), None));
    }
}
