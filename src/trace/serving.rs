//! What limits a decoder. Nobody trains on its batches, so its rules are fewer than a loader's.

use super::limit::{Judgement, LEAST_BATCHES, Limit, SATURATED, STALLED, STREAM_SATURATED, percent};
use super::stats::ratio;
use super::{Stage, Stats};

/// A request waits for a free batch for this share of the time or more: the batches are held.
const HELD: f64 = 0.1;

/// The limit in a few words, and the lines behind it. For the share `waited` of the time somebody
/// waited for an answer, and for the share `busy` workers worked.
pub(super) fn judge(stats: &Stats, waited: f64, busy: f64) -> Judgement {
    if stats.batches < LEAST_BATCHES {
        let so_far = format!("{} requests so far, at least {LEAST_BATCHES} are needed", stats.batches);
        return (Limit::Unclear, "too early to say".into(), vec![so_far]);
    }
    let pictures = ratio(stats.samples as f64, stats.batches as f64);
    let waits = format!("requests of {pictures:.1} pictures waited for an answer {} % of the time", percent(waited));
    let workers =
        format!("{:.1} of {} workers are busy", stats.busy_workers().min(stats.workers as f64), stats.workers);
    if waited < STALLED {
        return (Limit::Step, "not limited: the decoder takes more requests".into(), vec![waits, workers]);
    }
    if let Some(decode) = stats.device_decode.as_ref().filter(|s| ratio(s.seconds, stats.seconds) >= STREAM_SATURATED) {
        let share = percent(ratio(decode.seconds, stats.seconds));
        let lines = vec![
            format!("decoding takes {share} % of the device's time, {:.2} ms a request", 1e3 * decode.mean_seconds()),
            waits,
            "DecodeOn::Auto lets the workers help".into(),
        ];
        return (Limit::DeviceDecode, "device-decode-bound".into(), lines);
    }
    if busy >= SATURATED {
        return work_bound(stats, workers, waits);
    }
    let blocked = ratio(stats.slot.seconds, stats.seconds);
    if blocked >= HELD {
        let lines = vec![
            waits,
            format!("no batch was free for {} % of the time", percent(blocked)),
            format!("drop batches sooner, copy what you keep, or raise prefetch above {}", stats.prefetch),
        ];
        return (Limit::Slots, "limited by batches that the program holds".into(), lines);
    }
    let advice = "larger requests, or more of them at a time, use more workers".into();
    (Limit::Unclear, "no single cause".into(), vec![waits, workers, advice])
}

/// The workers are busy. The stage that takes most of their time is the limit.
fn work_bound(stats: &Stats, workers: String, waits: String) -> Judgement {
    let stages = stats.stages();
    let (which, stage) = stages.iter().max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds)).expect("there are stages");
    let share = percent(ratio(stage.seconds, stats.worked_seconds()));
    let evidence =
        format!("{workers}, {share} % of that with {which} ({:.0} us a picture)", 1e6 * stage.mean_seconds());
    let (limit, headline, advice) = match which {
        _ if stats.workers < stats.processors => {
            let advice = format!("this process has {} processors: raise workers", stats.processors);
            return (Limit::Workers, "limited by the number of workers".into(), vec![evidence, waits, advice]);
        }
        Stage::Read => (Limit::Read, "read-bound", "smaller files would lift it"),
        Stage::Decode if stats.copy.is_some() && stats.decoded_on_device == 0 => {
            (Limit::Decode, "decode-bound", "the device can decode JPEGs: .decode_on(DecodeOn::Auto)")
        }
        Stage::Decode => (Limit::Decode, "decode-bound", "more processors would lift it, or smaller pictures"),
        Stage::Transform => (Limit::Transform, "transform-bound", "smaller pictures would lift it"),
        Stage::Write => (Limit::Memory, "memory-bound", "u8 batches are a quarter of f32's bytes"),
    };
    (limit, headline.into(), vec![evidence, waits, advice.into()])
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
            (Limit::Unclear, Stats { batches: 3, ..decoder() }, "too early to say\n- 3 requests"),
            (Limit::Step, Stats { waited_seconds: 0.1, ..decoder() }, "requests of 4.0 pictures"),
            (Limit::DeviceDecode, Stats { device_decode: Some(stage(100, 9.0)), ..decoder() }, "90.00 ms a request"),
            (Limit::Decode, Stats { decode: stage(400, 36.0), ..decoder() }, "decode-bound\n- 3.6 of 4 workers"),
            (Limit::Workers, Stats { decode: stage(400, 36.0), processors: 8, ..decoder() }, "has 8 processors"),
            (Limit::Slots, Stats { slot: stage(100, 3.0), ..decoder() }, "no batch was free for 30 % of the time"),
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
