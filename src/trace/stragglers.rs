//! Finds the slow samples that batches wait for.

use warpfeed_sources::internal::ratio;

use super::Straggler;
use super::bottleneck::{Bottleneck, Judgment, percent};
use super::counters::MAX_STRAGGLERS;
use super::verdict::Evidence;

/// A slow sample is slow because of its size if it is larger than this multiple of the average.
const LARGE_RATIO: f64 = 4.0;

impl Evidence<'_> {
    fn typical_seconds(&self) -> f64 {
        let ahead = self.stats.readahead.as_ref().map_or(0.0, |ahead| ahead.p50_seconds);
        ahead + self.stats.stages().map(|(_, stage)| stage.p50_seconds).sum::<f64>()
    }

    /// Returns the samples that are so slow that a batch waits for them, each with the total excess
    /// of its times over the typical time, in seconds. If `are_simultaneous` is true, returns only
    /// samples that are not large and were slow at the same moment as another sample. If it is
    /// false, returns all other slow samples.
    pub(super) fn slow_samples(&self, are_simultaneous: bool) -> Vec<(&Straggler, f64)> {
        let (stats, typical_seconds) = (self.stats, self.typical_seconds());
        let batch_seconds =
            typical_seconds * ratio(stats.samples as f64, stats.batches as f64) / stats.workers.max(1) as f64;
        let slow_samples: Vec<_> = stats
            .slowest
            .iter()
            .filter(|s| s.seconds > 10.0 * typical_seconds && s.seconds > 2.0 * batch_seconds)
            .collect();
        let overlaps = |a: &Straggler, b: &Straggler| {
            a.sample != b.sample && (a.at_seconds - b.at_seconds).abs() < 0.1 * a.seconds.min(b.seconds)
        };
        let is_at_fault = |a: &Straggler| self.is_large(a) || !slow_samples.iter().any(|b| overlaps(a, b));
        let chosen_samples = slow_samples.iter().filter(|a| is_at_fault(a) != are_simultaneous);
        chosen_samples.map(|s| (*s, s.total_seconds - s.times as f64 * typical_seconds)).collect()
    }

    fn mean_bytes(&self) -> f64 {
        ratio(self.stats.bytes_read as f64, self.stats.prepared_samples as f64)
    }

    fn is_large(&self, straggler: &Straggler) -> bool {
        straggler.bytes > 0 && straggler.bytes as f64 > LARGE_RATIO * self.mean_bytes()
    }

    pub(super) fn judge_stragglers(&self) -> Option<Judgment> {
        let (stats, slow_samples) = (self.stats, self.slow_samples(false));
        let (worst, max_excess) = slow_samples.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let sum = |include_all: bool| {
            slow_samples
                .iter()
                .filter(|(straggler, _)| include_all || self.is_large(straggler))
                .map(|(_, s)| s)
                .sum::<f64>()
        };
        let (excess, large_excess) = (sum(true), sum(false));
        let late_seconds = stats.straggler_wait.seconds.min(stats.waited_seconds);
        // Subtract waits for a core, because they make samples appear slow.
        let explained_seconds =
            f64::max(f64::max(excess, late_seconds) - stats.delayed_seconds, late_seconds * large_excess / excess);
        (explained_seconds >= 0.5 * self.wait_fraction * stats.seconds)
            .then(|| self.straggler_judgment(&slow_samples, worst, max_excess))
    }

    /// `worst` is the sample with the greatest excess, `max_excess`.
    fn straggler_judgment(&self, slow_samples: &[(&Straggler, f64)], worst: &Straggler, max_excess: f64) -> Judgment {
        let (stats, is_large) = (self.stats, self.is_large(worst));
        let (ms, typical_ms) = (1e3 * worst.seconds, 1e3 * self.typical_seconds());
        // Samples with an excess of less than a tenth of the greatest one do not count.
        let count = slow_samples.iter().filter(|(_, seconds)| *seconds >= 0.1 * max_excess).count();
        let (headline, pronoun) = match count {
            1 => ("limited by 1 slow sample".into(), "it"),
            MAX_STRAGGLERS.. => ("limited by rare slow samples".into(), "them (`stats.slowest`)"),
            _ => (format!("limited by {count} slow samples"), "them (`stats.slowest`)"),
        };
        let megabytes = |bytes: f64| format!("{:.2} MB", bytes / 1e6);
        let size_text = if is_large { format!(" of {}", megabytes(worst.bytes as f64)) } else { String::new() };
        let mean_size_text =
            if is_large { format!("has {} and ", megabytes(self.mean_bytes())) } else { String::new() };
        let mut lines = vec![
            format!(
                "{}{size_text} takes {ms:.1} ms, most of it in {}; a typical sample {mean_size_text}takes {typical_ms:.2} ms, and the batch waits \
                 for the slow one",
                worst.name(),
                worst.stage
            ),
            self.wait_text.clone(),
        ];
        if stats.straggler_wait.seconds > 0.0 {
            let late_percent = percent(ratio(stats.straggler_wait.seconds, stats.waited_seconds));
            lines.push(format!(
                "during {late_percent}% of the wait, all batches prefetched after the missing one were \
                                complete"
            ));
        }
        let advice = if is_large { "shrink large images with `warpfeed pack --max-side`," } else { "re-encode or" };
        lines.push(format!("{advice} drop {pronoun}, or raise prefetch above {}", stats.prefetch));
        (Bottleneck::Straggler, headline, lines)
    }
}
