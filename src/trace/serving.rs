//! What limits a decoder. Nobody trains on its batches, so its rules are fewer than a loader's.

use super::stats::ratio;
use super::verdict::{LEAST_BATCHES, Limit, SATURATED, STALLED, STREAM_SATURATED};
use super::{Stage, Stats};

/// A request waits for a free batch for this share of the time or more: the batches are held.
const HELD: f64 = 0.1;

/// The limit and the evidence. For the share `waited` of the time somebody waited for an answer, and
/// for the share `busy` workers worked.
pub(super) fn judge(stats: &Stats, waited: f64, busy: f64) -> (Limit, String) {
    if stats.batches < LEAST_BATCHES {
        let text = format!("too early to say: {} requests, at least {LEAST_BATCHES} are needed", stats.batches);
        return (Limit::Unclear, text);
    }
    let under_way = format!(
        "requests of {:.1} pictures waited for an answer {:.0} % of the time",
        ratio(stats.samples as f64, stats.batches as f64),
        100.0 * waited
    );
    if waited < STALLED {
        let text = format!(
            "not limited: {under_way}, {:.1} of {} workers are busy; the decoder takes more requests",
            stats.busy_workers(),
            stats.workers
        );
        return (Limit::Step, text);
    }
    if let Some(decode) = stats.device_decode.as_ref().filter(|s| ratio(s.seconds, stats.seconds) >= STREAM_SATURATED) {
        let text = format!(
            "bound by decoding on the device: it takes {:.0} % of the device's time, {:.2} ms a request; {under_way}; DecodeOn::Auto lets \
             the workers help",
            100.0 * ratio(decode.seconds, stats.seconds),
            1e3 * decode.mean_seconds()
        );
        return (Limit::DeviceDecode, text);
    }
    if busy >= SATURATED {
        return work_bound(stats, &under_way);
    }
    let blocked = ratio(stats.slot.seconds, stats.seconds);
    if blocked >= HELD {
        let text = format!(
            "bound by batches that are held: {under_way}, and for {:.0} % of it no batch was free; drop batches sooner, copy what is kept, or \
             raise prefetch above {}",
            100.0 * blocked,
            stats.prefetch
        );
        return (Limit::Slots, text);
    }
    let text = format!(
        "no single cause: {under_way}, {:.1} of {} workers are busy; larger requests, or more of them at a time, use more workers",
        stats.busy_workers(),
        stats.workers
    );
    (Limit::Unclear, text)
}

/// The workers are busy: with what?
fn work_bound(stats: &Stats, under_way: &str) -> (Limit, String) {
    let stages = stats.stages();
    let (which, stage) = stages.iter().max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds)).expect("there are stages");
    let evidence = format!(
        "{:.1} of {} workers are busy, {:.0} % of that with {which} ({:.0} us a picture); {under_way}",
        stats.busy_workers(),
        stats.workers,
        100.0 * ratio(stage.seconds, stats.worked_seconds()),
        1e6 * stage.mean_seconds()
    );
    if stats.workers < stats.processors {
        let text = format!("bound by too few workers: {evidence}; this process has {} processors", stats.processors);
        return (Limit::Workers, text);
    }
    match which {
        Stage::Read => (Limit::Read, format!("read-bound: {evidence}; smaller files would lift it")),
        Stage::Decode if stats.copy.is_some() && stats.decoded_on_device == 0 => (
            Limit::Decode,
            format!("decode-bound: {evidence}; JPEGs can be decoded on the device: .decode_on(DecodeOn::Auto)"),
        ),
        Stage::Decode => {
            (Limit::Decode, format!("decode-bound: {evidence}; more processors would lift it, or smaller pictures"))
        }
        Stage::Transform => (Limit::Transform, format!("transform-bound: {evidence}; smaller pictures would lift it")),
        Stage::Write => (Limit::Memory, format!("memory-bound: {evidence}; u8 batches are a quarter of f32's bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::StageStats;
    use super::*;

    fn stage(count: u64, seconds: f64) -> StageStats {
        StageStats { count, seconds, ..StageStats::default() }
    }

    /// Ten seconds of a decoder with 4 workers.
    fn decoder() -> Stats {
        Stats {
            on_request: true,
            workers: 4,
            processors: 4,
            prefetch: 3,
            seconds: 10.0,
            batches: 100,
            samples: 400,
            prepared: 400,
            waited_seconds: 4.0,
            decode: stage(400, 4.0),
            wait: stage(100, 4.0),
            step: stage(100, 6.0),
            ..Stats::default()
        }
    }

    #[test]
    fn the_verdict_of_a_decoder_speaks_of_requests() {
        let cases = [
            (Limit::Unclear, Stats { batches: 3, ..decoder() }, "too early to say: 3 requests"),
            (Limit::Step, Stats { waited_seconds: 0.1, ..decoder() }, "not limited: requests of 4.0 pictures"),
            (Limit::DeviceDecode, Stats { device_decode: Some(stage(100, 9.0)), ..decoder() }, "90.00 ms a request"),
            (Limit::Decode, Stats { decode: stage(400, 36.0), ..decoder() }, "decode-bound: 3.6 of 4 workers"),
            (Limit::Workers, Stats { decode: stage(400, 36.0), processors: 8, ..decoder() }, "has 8 processors"),
            (Limit::Slots, Stats { slot: stage(100, 3.0), ..decoder() }, "for 30 % of it no batch was free"),
            (Limit::Unclear, decoder(), "requests of 4.0 pictures waited for an answer 40 % of the time"),
        ];
        for (limit, stats, words) in cases {
            let verdict = stats.verdict();
            assert_eq!(verdict.limit, limit, "{verdict}");
            assert!(verdict.text.contains(words), "{words:?} is not in {:?}", verdict.text);
            for word in ["step", "Loader::trace", "epoch", "warpfeed pack"] {
                assert!(!verdict.text.contains(word), "{word:?} in {:?}", verdict.text);
            }
        }
    }
}
