//! Suggests a full shuffle or a `shuffle_window` for tar shards in object storage. The suggestion
//! depends on the number, the price and the latency of the requests, and on whether the server
//! refused requests.

use std::path::Path;

use serde_json::{Value, json};
use warpfeed::sampler::{Sampler, Shuffled};
use warpfeed::trace::Bottleneck;
use warpfeed::{Stats, Verdict};

/// Price of a GET request to S3 in us-east-1, in dollars. The prices of Google and Azure differ
/// from it by less than a quarter.
const DOLLARS_PER_REQUEST: f64 = 0.0004 / 1000.0;
/// Maximum acceptable cost of the requests per process and epoch, in dollars.
const MAX_DOLLARS: f64 = 1.0;
/// Bytes that a loader's prefetcher schedules per round: half of its default budget, minus some
/// bytes for the gaps between samples. A windowed shuffle reads blocks of adjacent samples. If its
/// window has at most this size, a block usually is one request.
const ROUND_BYTES: u64 = 112 << 20;
const WINDOW_BLOCKS: u64 = 64;
const MAX_REQUEST_BYTES: u64 = 4 << 20;
/// A server is slow if the median time to the first byte is at least this many seconds.
const SLOW_SECONDS: f64 = 0.02;
/// Above this size in bytes, larger requests do not increase the throughput.
const LARGE_REQUEST_BYTES: f64 = 1e6;

pub(super) struct Requests {
    full_requests: u64,
    windowed_requests: u64,
    window: usize,
    /// Whether the server probably charges for requests.
    is_paid: bool,
    /// Whether the latency of the requests limited the loader.
    is_slow: bool,
    has_refusals: bool,
}

impl Requests {
    /// Estimates the requests from the statistics of a loader on the dataset at `path`, with a mean
    /// of `sample_bytes` bytes per sample. Returns `None` if the loader sent no requests, as for a
    /// local dataset. Also returns `None` if the dataset does not consist of tar shards, because
    /// the estimate assumes adjacent samples, several of which one request can fetch.
    pub(super) fn estimate(
        path: &Path,
        kind: &str,
        samples: usize,
        sample_bytes: u64,
        stats: &Stats,
        verdict: &Verdict,
    ) -> Option<Self> {
        let network = stats.network.as_ref().filter(|network| network.requests > 0 && kind == "tar")?;
        let (samples, sample_bytes) = (samples as u64, sample_bytes.max(1));
        let block_samples = (ROUND_BYTES / sample_bytes / WINDOW_BLOCKS).clamp(1, samples.max(1));
        let scheme = path.to_str()?.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        let request_bytes = network.received_bytes as f64 / network.requests as f64;
        Some(Requests {
            full_requests: estimate_requests(&Shuffled::new(samples, 1), sample_bytes),
            windowed_requests: samples.div_ceil(block_samples)
                * block_samples.div_ceil((MAX_REQUEST_BYTES / sample_bytes).max(1)),
            window: (block_samples * WINDOW_BLOCKS) as usize,
            is_paid: !matches!(&*scheme, "http" | "https" | "hf") && std::env::var_os("AWS_ENDPOINT_URL").is_none(),
            is_slow: verdict.bottleneck == Bottleneck::Network
                && network.time_to_first_byte.p50_seconds >= SLOW_SECONDS
                && request_bytes < LARGE_REQUEST_BYTES,
            has_refusals: network.refusals > 0,
        })
    }

    /// Returns the suggested shuffle window in samples, or `None` if a full shuffle is suggested.
    pub(super) fn suggested_window(&self) -> Option<usize> {
        let halves_requests = self.windowed_requests * 2 <= self.full_requests;
        (halves_requests
            && (self.is_slow
                || self.has_refusals
                || self.is_paid && self.full_requests as f64 * DOLLARS_PER_REQUEST > MAX_DOLLARS))
            .then_some(self.window)
    }

    pub(super) fn summary_lines(&self) -> [String; 2] {
        let dollars = |requests: u64| format!("${:.4}", requests as f64 * DOLLARS_PER_REQUEST);
        let whose =
            if self.is_paid { "at S3's price" } else { "at S3's price; other servers may charge less or nothing" };
        let numbers = format!(
            "requests        per epoch and process: {} with a full shuffle ({} {whose}), {} with shuffle_window({}) ({})",
            self.full_requests,
            dollars(self.full_requests),
            self.windowed_requests,
            self.window,
            dollars(self.windowed_requests)
        );
        let choice = match self.suggested_window() {
            Some(_) if self.has_refusals => {
                "shuffle_window: the server refused requests, and reading in blocks needs fewer of them"
            }
            Some(_) if self.is_slow => "shuffle_window: the loader waits for many small requests to a slow server",
            Some(_) => "shuffle_window: requests cost money here",
            None if self.has_refusals => {
                "full shuffle: the server refused requests, but a window would not halve their number"
            }
            None => "full shuffle: a window would not save much money or time",
        };
        [numbers, choice.to_owned()]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "full_shuffle": self.full_requests, "full_shuffle_dollars": self.full_requests as f64 * DOLLARS_PER_REQUEST,
            "windowed": self.windowed_requests, "windowed_dollars": self.windowed_requests as f64 * DOLLARS_PER_REQUEST,
            "window": self.window, "paid": self.is_paid,
            "suggested": if self.suggested_window().is_some() { "shuffle_window" } else { "shuffle" },
        })
    }
}

/// Estimates the number of requests per epoch for samples of `sample_bytes` bytes that are adjacent
/// in one object.
fn estimate_requests(order: &dyn Sampler, sample_bytes: u64) -> u64 {
    let len = order.len(0);
    let round_samples = (ROUND_BYTES / sample_bytes).clamp(1, len.max(1));
    let max_samples = (MAX_REQUEST_BYTES / sample_bytes).max(1);
    // A few rounds are representative of the epoch.
    let (mut requests, mut sampled_count) = (0, 0);
    for begin in (0..len).step_by(round_samples as usize).take(8) {
        let mut samples: Vec<u64> =
            (begin..(begin + round_samples).min(len)).map(|position| order.index(0, position)).collect();
        samples.sort_unstable();
        requests +=
            samples.chunk_by(|a, b| a + 1 == *b).map(|run| (run.len() as u64).div_ceil(max_samples)).sum::<u64>();
        sampled_count += samples.len() as u64;
    }
    (requests as f64 * len as f64 / sampled_count.max(1) as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use warpfeed::trace::NetworkStats;

    use super::*;

    fn estimate(path: &str, samples: usize, change: impl Fn(&mut NetworkStats)) -> Requests {
        let mut network = NetworkStats::default();
        (network.requests, network.received_bytes) = (1_000, 110_000_000);
        network.time_to_first_byte.p50_seconds = 0.005;
        change(&mut network);
        let mut stats = Stats::default();
        (stats.workers, stats.cores, stats.seconds, stats.waited_seconds) = (4, 4, 1.0, 1.0);
        (stats.samples, stats.prepared_samples, stats.batches) = (1_000, 1_000, 4);
        (stats.read.count, stats.read.seconds) = (1_000, 4.0);
        stats.network = Some(network);
        let verdict = stats.verdict();
        assert_eq!(verdict.bottleneck, Bottleneck::Network, "{verdict}");
        Requests::estimate(Path::new(path), "tar", samples, 110_000, &stats, &verdict).unwrap()
    }

    #[test]
    fn a_full_shuffle_is_suggested_unless_requests_are_a_problem() {
        let imagenet = estimate("s3://bucket/train", 1_281_167, |_| ());
        // A window consists of 64 blocks of 16 samples, with one request per block. In the full
        // shuffle, a few samples are adjacent by chance.
        assert!(
            (1_279_000..=1_281_167).contains(&imagenet.full_requests) && imagenet.window == 1_024,
            "{}",
            imagenet.full_requests
        );
        assert!((75_000..85_000).contains(&imagenet.windowed_requests), "{}", imagenet.windowed_requests);
        assert_eq!(imagenet.suggested_window(), None);
        let [numbers, choice] = imagenet.summary_lines();
        assert!(
            numbers.contains("($0.512") && numbers.contains("at S3's price") && choice.starts_with("full shuffle"),
            "{numbers} {choice}"
        );

        let large = estimate("s3://bucket/train", 10_000_000, |_| ());
        assert!(large.suggested_window() == Some(1_024) && large.summary_lines()[1].contains("cost money"));
        let web = estimate("https://host/train.tar", 10_000_000, |_| ());
        assert!(web.suggested_window().is_none() && web.summary_lines()[0].contains("may charge less or nothing"));
        let far = estimate("https://host/train.tar", 10_000, |network| network.time_to_first_byte.p50_seconds = 0.2);
        assert!(far.suggested_window() == Some(1_024) && far.summary_lines()[1].contains("slow server"));
        let refused = estimate("s3://bucket/train", 10_000, |network| network.refusals = 3);
        assert!(refused.suggested_window() == Some(1_024) && refused.summary_lines()[1].contains("refused"));
        // All samples fit into one round, so adjacent samples share requests.
        let tiny = estimate("s3://bucket/train", 500, |network| network.refusals = 3);
        assert!(tiny.suggested_window().is_none() && tiny.full_requests < 50, "{}", tiny.full_requests);
        assert!(
            tiny.summary_lines()[1].starts_with("full shuffle: the server refused requests"),
            "{}",
            tiny.summary_lines()[1]
        );
        assert_eq!(refused.json()["suggested"], "shuffle_window");
    }

    #[test]
    fn local_datasets_and_remote_folders_get_no_suggestion() {
        let stats = Stats::default();
        assert!(Requests::estimate(Path::new("x.tar"), "tar", 9, 9, &stats, &stats.verdict()).is_none());
        let mut network = NetworkStats::default();
        network.requests = 5;
        let mut stats = Stats::default();
        stats.network = Some(network);
        assert!(Requests::estimate(Path::new("s3://b/x"), "folder", 9, 9, &stats, &stats.verdict()).is_none());
    }
}
