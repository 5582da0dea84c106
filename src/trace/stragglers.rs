//! Finds the slow samples that batches wait for.

use warpfeed_sources::internal::ratio;

use super::Straggler;
use super::bottleneck::{Bottleneck, Judgment, percent};
use super::counters::STRAGGLERS;
use super::verdict::Evidence;

/// Minimum size of a large sample, as a multiple of the average size. A large sample is slow
/// because of its size.
const LARGE: f64 = 4.0;

impl Evidence<'_> {
    /// Returns the time of a typical sample, in seconds.
    fn usual(&self) -> f64 {
        let ahead = self.stats.ahead.as_ref().map_or(0.0, |ahead| ahead.p50_seconds);
        ahead + self.stats.stages().map(|(_, stage)| stage.p50_seconds).sum::<f64>()
    }

    /// Returns the samples that are so slow that a batch waits for them, each with the excess of
    /// its time over the typical time, in seconds. If `together` is true, returns only samples that
    /// are not large and were slow at the same moment as another sample. If it is false, returns
    /// all other slow samples.
    pub(super) fn slow(&self, together: bool) -> Vec<(&Straggler, f64)> {
        let (stats, usual) = (self.stats, self.usual());
        let batch = usual * ratio(stats.samples as f64, stats.batches as f64) / stats.workers.max(1) as f64;
        let slow: Vec<_> =
            stats.slowest.iter().filter(|s| s.seconds > 10.0 * usual && s.seconds > 2.0 * batch).collect();
        let meets = |a: &Straggler, b: &Straggler| {
            a.sample != b.sample && (a.at_seconds - b.at_seconds).abs() < 0.1 * a.seconds.min(b.seconds)
        };
        let blamed = |a: &Straggler| self.is_large(a) || !slow.iter().any(|b| meets(a, b));
        let chosen = slow.iter().filter(|a| blamed(a) != together);
        chosen.map(|s| (*s, s.total_seconds - s.times as f64 * usual)).collect()
    }

    fn usual_bytes(&self) -> f64 {
        ratio(self.stats.bytes_read as f64, self.stats.prepared as f64)
    }

    /// Returns whether the size of a sample explains why it is slow.
    fn is_large(&self, straggler: &Straggler) -> bool {
        straggler.bytes > 0 && straggler.bytes as f64 > LARGE * self.usual_bytes()
    }

    pub(super) fn stragglers(&self) -> Option<Judgment> {
        let (stats, slow) = (self.stats, self.slow(false));
        let (first, max_excess) = slow.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let sum = |include_all: bool| {
            slow.iter().filter(|(straggler, _)| include_all || self.is_large(straggler)).map(|(_, s)| s).sum::<f64>()
        };
        let (excess, large) = (sum(true), sum(false));
        let late = stats.behind.seconds.min(stats.waited_seconds);
        // Subtract waits for a core, because they make samples appear slow.
        let explained = f64::max(f64::max(excess, late) - stats.delayed_seconds, late * large / excess);
        (explained >= 0.5 * self.waited * stats.seconds).then(|| self.straggled(&slow, first, max_excess))
    }

    /// Returns the verdict for slow samples. `first` is the sample with the greatest excess,
    /// `max_excess`.
    fn straggled(&self, slow: &[(&Straggler, f64)], first: &Straggler, max_excess: f64) -> Judgment {
        let (stats, large) = (self.stats, self.is_large(first));
        let (ms, usual) = (1e3 * first.seconds, 1e3 * self.usual());
        // Samples with an excess of less than a tenth of the greatest one do not count.
        let count = slow.iter().filter(|(_, seconds)| *seconds >= 0.1 * max_excess).count();
        let (headline, them) = match count {
            1 => ("limited by 1 slow sample".into(), "it"),
            STRAGGLERS.. => ("limited by rare slow samples".into(), "them (`stats.slowest`)"),
            _ => (format!("limited by {count} slow samples"), "them (`stats.slowest`)"),
        };
        let megabytes = |bytes: f64| format!("{:.2} MB", bytes / 1e6);
        let size = if large { format!(" of {}", megabytes(first.bytes as f64)) } else { String::new() };
        let usual_size = if large { format!("has {} and ", megabytes(self.usual_bytes())) } else { String::new() };
        let mut lines = vec![
            format!(
                "{}{size} takes {ms:.1} ms, most of it in {}; a typical sample {usual_size}takes {usual:.2} ms, and the batch waits \
                 for the slow one",
                first.name(),
                first.stage
            ),
            self.waits.clone(),
        ];
        if stats.behind.seconds > 0.0 {
            let late = percent(ratio(stats.behind.seconds, stats.waited_seconds));
            lines.push(format!(
                "during {late} % of the wait, all batches prefetched after the missing one were \
                                complete"
            ));
        }
        let change = if large { "shrink large images with `warpfeed pack --max-side`," } else { "re-encode or" };
        lines.push(format!("{change} drop {them}, or raise prefetch above {}", stats.prefetch));
        (Bottleneck::Straggler, headline, lines)
    }
}
