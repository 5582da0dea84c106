//! The verdict on a loader whose dataset is in a store.

use warpfeed_sources::internal::ratio;

use super::NetworkStats;
use super::bottleneck::{Bottleneck, Judgment, percent};
use super::verdict::Evidence;

/// Minimum share of refused requests at which the store's limit of requests is named.
const REFUSED: f64 = 0.01;
/// Average bytes of a request below which larger requests are advised.
const SMALL_REQUEST: f64 = 1e6;
/// Median seconds to the first byte from which the distance is named.
const FAR: f64 = 0.08;
/// Average number of requests in flight below which more are advised.
const FEW_REQUESTS: f64 = 16.0;

impl Evidence<'_> {
    /// Judges a loader that waits for its store.
    pub(super) fn network_bound(&self, network: &NetworkStats) -> Judgment {
        let Evidence { stats, waits, .. } = self;
        let mut lines = vec![self.busy_workers(), waits.clone()];
        lines.extend(network.lines(stats.seconds));
        let each = ratio(network.bytes as f64, network.requests as f64);
        let refused = ratio(network.refusals as f64, network.requests as f64);
        if refused >= REFUSED {
            lines.push(format!(
                "the server refused {} % of the requests: more prefixes (folders) in the bucket, `shuffle_window` or a cache would help",
                percent(refused).max(1)
            ));
        } else if each < SMALL_REQUEST {
            lines.push(format!(
                "a request has {:.0} KB on average: `shuffle_window` reads neighbors together, in requests of up to 4 MiB",
                each / 1e3
            ));
        }
        if network.first_bytes.p50_seconds >= FAR {
            lines.push(
                "the server is slow to answer or far away: a machine in the region of the store would help".into(),
            );
        }
        lines.push(match network.hit_rate() {
            None => "a cache in a folder of this machine would answer later epochs".into(),
            Some(rate) => format!("a larger cache would answer more than {} % of the bytes", percent(rate)),
        });
        // Few requests in flight mean that the bytes ahead are the limit.
        if ratio(network.answers.seconds, stats.seconds) < FEW_REQUESTS {
            let more = 2 * stats.prefetch.max(2);
            lines.push(format!(
                "few requests are in flight: prefetch({more}) or a higher memory_limit would ask for more"
            ));
        }
        (Bottleneck::Network, "network-bound".into(), lines)
    }
}
