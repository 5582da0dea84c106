//! The verdict for a loader that reads its dataset from a store.

use warpfeed_sources::internal::ratio;

use super::NetworkStats;
use super::bottleneck::{Bottleneck, Judgment, percent};
use super::verdict::Evidence;

const MIN_REFUSED_FRACTION: f64 = 0.01;
/// Average size of a request in bytes below which the verdict recommends larger requests.
const SMALL_REQUEST_BYTES: f64 = 1e6;
/// A server with at least this median time to the first byte counts as slow or far away.
const FAR_SECONDS: f64 = 0.08;
/// Average number of requests in flight below which the verdict recommends more requests.
const FEW_REQUESTS: f64 = 16.0;

impl Evidence<'_> {
    pub(super) fn judge_network(&self, network: &NetworkStats) -> Judgment {
        let Evidence { stats, wait_text, .. } = self;
        let mut lines = vec![self.busy_workers_line(), wait_text.clone()];
        lines.extend(network.lines(stats.seconds));
        let mean_bytes = ratio(network.received_bytes as f64, network.requests as f64);
        let refused_fraction = ratio(network.refusals as f64, network.requests as f64);
        if refused_fraction >= MIN_REFUSED_FRACTION {
            lines.push(format!(
                "the server refused {}% of the requests: more prefixes (folders) in the bucket, `shuffle_window` or a cache would help",
                percent(refused_fraction).max(1)
            ));
        } else if mean_bytes < SMALL_REQUEST_BYTES {
            lines.push(format!(
                "a request has {:.0} KB on average: `shuffle_window` combines neighbors into requests of up to 4 MiB",
                mean_bytes / 1e3
            ));
        }
        if network.time_to_first_byte.p50_seconds >= FAR_SECONDS {
            lines.push(
                "the server is slow to answer or far away: a machine in the region of the store would help".into(),
            );
        }
        if let Some(rate) = network.hit_rate() {
            lines.push(format!("a larger cache would serve more than {}% of the bytes", percent(rate)));
        } else if !network.has_cache {
            lines.push("a local disk cache would serve later epochs".into());
        }
        // If few requests are in flight, the budget for reading ahead is probably the bottleneck.
        if ratio(network.responses.seconds, stats.seconds) < FEW_REQUESTS {
            let suggested_prefetch = 2 * stats.prefetch.max(2);
            lines.push(format!(
                "few requests are in flight: prefetch({suggested_prefetch}) or a higher memory_limit would allow more"
            ));
        }
        (Bottleneck::Network, "network-bound".into(), lines)
    }
}
