//! The rules that find the bottleneck of a decoder, which has no steps and no epochs.

use warpfeed_sources::internal::ratio;

use super::bottleneck::{
    Bottleneck, Judgment, MIN_BATCHES, MIN_BUSY_FRACTION, MIN_STALL_FRACTION, MIN_STREAM_FRACTION, percent,
};
use super::verdict::Evidence;
use crate::error::counted;

/// If no batch is free for at least this fraction of the time, the batches that the program holds
/// are the bottleneck.
const MIN_BLOCKED_FRACTION: f64 = 0.1;

impl Evidence<'_> {
    pub(super) fn judge_requests(&self) -> Judgment {
        let Evidence { stats, wait_fraction, busy_fraction, .. } = *self;
        if stats.batches < MIN_BATCHES {
            let count_text =
                format!("{} so far; at least {MIN_BATCHES} are needed", counted(stats.batches, "request", "requests"));
            return (Bottleneck::Unclear, "too early to say".into(), vec![count_text]);
        }
        let (wait_text, worker_line) = (self.wait_text.clone(), self.busy_workers_line());
        if wait_fraction < MIN_STALL_FRACTION {
            return (
                Bottleneck::Step,
                "not limited: the decoder can take more requests".into(),
                vec![wait_text, worker_line],
            );
        }
        let decode = stats.device_decode.as_ref();
        if let Some(decode) = decode.filter(|s| ratio(s.seconds, stats.seconds) >= MIN_STREAM_FRACTION) {
            let lines = vec![self.device_decode_line(decode), wait_text, "DecodeOn::Auto lets the workers help".into()];
            return (Bottleneck::DeviceDecode, "device-decode-bound".into(), lines);
        }
        if busy_fraction >= MIN_BUSY_FRACTION {
            return self.judge_work();
        }
        let blocked_fraction = ratio(stats.slot_wait.seconds, stats.seconds);
        if blocked_fraction >= MIN_BLOCKED_FRACTION {
            let lines = vec![
                wait_text,
                format!("no batch was free for {}% of the time", percent(blocked_fraction)),
                format!(
                    "drop batches sooner, copy the data that you store, or raise max_in_flight above {}",
                    stats.prefetch
                ),
            ];
            return (Bottleneck::Slots, "limited by batches that the program holds".into(), lines);
        }
        let advice = "larger requests, or more concurrent ones, would use more workers".into();
        (Bottleneck::Unclear, "no single cause".into(), vec![wait_text, worker_line, advice])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StageStats, Stats};
    use super::*;

    fn stage(count: u64, seconds: f64) -> StageStats {
        let mut stage = StageStats::default();
        (stage.count, stage.seconds) = (count, seconds);
        stage
    }

    /// Ten seconds of a decoder with 4 workers.
    fn decoder() -> Stats {
        Stats {
            on_request: true,
            workers: 4,
            cores: 4,
            prefetch: 3,
            seconds: 10.0,
            batches: 100,
            samples: 400,
            prepared_samples: 400,
            waited_seconds: 4.0,
            decode: stage(400, 4.0),
            wait: stage(100, 4.0),
            step: stage(100, 6.0),
            ..Stats::default()
        }
    }

    #[test]
    fn the_verdict_of_a_decoder_refers_to_requests() {
        let cases = [
            (Bottleneck::Unclear, Stats { batches: 3, ..decoder() }, "too early to say\n- 3 requests"),
            (Bottleneck::Step, Stats { waited_seconds: 0.1, ..decoder() }, "requests of 4.0 images"),
            (
                Bottleneck::DeviceDecode,
                Stats { device_decode: Some(stage(100, 9.0)), ..decoder() },
                "90.00 ms per request",
            ),
            (Bottleneck::Decode, Stats { decode: stage(400, 36.0), ..decoder() }, "decode-bound\n- 3.6 of 4 workers"),
            (
                Bottleneck::Workers,
                Stats { decode: stage(400, 36.0), cores: 8, ..decoder() },
                "workers(8), one per core",
            ),
            (
                Bottleneck::Slots,
                Stats { slot_wait: stage(100, 3.0), ..decoder() },
                "no batch was free for 30% of the time",
            ),
            (Bottleneck::Unclear, decoder(), "requests of 4.0 images waited for a response 40% of the time"),
        ];
        for (limit, stats, words) in cases {
            let verdict = stats.verdict();
            assert_eq!(verdict.bottleneck, limit, "{verdict}");
            assert!(verdict.text.contains(words), "{words:?} is not in {:?}", verdict.text);
            for word in ["step", "Loader::trace", "epoch", "warpfeed pack"] {
                assert!(!verdict.text.contains(word), "{word:?} in {:?}", verdict.text);
            }
        }
    }
}
