use std::sync::Arc;

use super::Order;
use super::permutation::{Permutation, Shuffled, epoch_key};
use super::rng::mix;
use crate::error::{Error, Result};

/// Several data sets, one behind the other, drawn from in proportions.
///
/// Of every 10,000 draws the proportions are kept exactly, within them the sources alternate at random. Each source is gone through in passes,
/// shuffled anew for each, that run on across the epochs: a small one comes several times an epoch, a large one needs several epochs, and none
/// skips or repeats a sample within a pass. Augmentation is by (seed, pass, sample). It takes no memory, and finds any position in constant time.
#[derive(Debug, Clone)]
pub struct Mixture {
    parts: Arc<[Part]>,
    draws: u64,
    seed: u64,
}

#[derive(Debug, Clone)]
struct Part {
    /// Of each `PERIOD` tickets it has those before `end`, `quota` of them.
    quota: u64,
    end: u64,
    /// Index of its first sample.
    first: u64,
    order: Shuffled,
}

/// Draws in which the proportions are exact.
const PERIOD: u64 = 10_000;

impl Mixture {
    /// Sources of so many samples each, in proportions that need not sum to anything. An epoch is as many draws as there are samples in all.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a proportion is negative, not finite, or so small beside the others that it rounds to no draw
    /// in 10,000, all are 0, or one that is not 0 belongs to an empty source.
    pub fn new(sources: &[(u64, f64)], seed: u64) -> Result<Self> {
        let proportions: Vec<f64> = sources.iter().map(|source| source.1).collect();
        let refused = |cause: String| Err(Error::config(format!("mixture: {cause}")));
        if let Some(part) = proportions.iter().position(|p| !p.is_finite() || *p < 0.0) {
            return refused(format!("proportion {part} is {}", proportions[part]));
        }
        let largest = proportions.iter().copied().fold(0.0, f64::max);
        let sum: f64 = proportions.iter().map(|p| p / largest).sum();
        if largest == 0.0 {
            return refused(format!("all {} proportions are 0", proportions.len()));
        }
        // Largest remainders, of equal ones the first: the quotas sum to the period.
        let exact: Vec<f64> = proportions.iter().map(|p| p / largest / sum * PERIOD as f64).collect();
        let mut quotas: Vec<u64> = exact.iter().map(|x| x.floor() as u64).collect();
        let mut by_remainder: Vec<usize> = (0..exact.len()).collect();
        by_remainder.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
        let left = PERIOD.saturating_sub(quotas.iter().sum()) as usize;
        by_remainder.into_iter().cycle().take(left).for_each(|part| quotas[part] += 1);

        let (mut parts, mut draws, mut end) = (Vec::new(), 0u64, 0);
        for (number, (&(len, proportion), quota)) in sources.iter().zip(quotas).enumerate() {
            if proportion > 0.0 && quota == 0 {
                return refused(format!("proportion {number}, {proportion}, is less than one draw in {PERIOD}"));
            }
            if quota > 0 && len == 0 {
                return refused(format!("source {number} has no samples, but the proportion {proportion}"));
            }
            end += quota;
            let order = Shuffled::new(len, mix(seed ^ mix(number as u64)));
            parts.push(Part { quota, end, first: draws, order });
            draws = match draws.checked_add(len) {
                Some(sum) => sum,
                None => return refused("more samples than can be counted".to_owned()),
            };
        }
        Ok(Mixture { parts: parts.into(), draws, seed })
    }

    /// The order with `draws` draws in an epoch. The epochs are cuts of one sequence: another number changes nothing but where they are.
    #[must_use]
    pub fn draws(mut self, draws: u64) -> Self {
        self.draws = draws;
        self
    }

    /// The source that a position draws from, the pass through it, and the place in the pass.
    fn draw(&self, epoch: u64, position: u64) -> (&Part, u64, u64) {
        // Wraps after 2^64 draws: no run gets there, and any answer is sound.
        let draw = epoch.wrapping_mul(self.draws).wrapping_add(position);
        let (period, place) = (draw / PERIOD, draw % PERIOD);
        let ticket = Permutation::new(PERIOD).apply(epoch_key(!self.seed, period), place);
        let part = &self.parts[self.parts.partition_point(|part| part.end <= ticket)];
        let turn = period * part.quota + ticket - (part.end - part.quota);
        let len = part.order.len(0);
        (part, turn / len, turn % len)
    }
}

impl Order for Mixture {
    fn len(&self, _epoch: u64) -> u64 {
        self.draws
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        let (part, pass, place) = self.draw(epoch, position);
        part.first + part.order.index(pass, place)
    }

    fn variant(&self, epoch: u64, position: u64) -> u64 {
        self.draw(epoch, position).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixture() -> Mixture {
        Mixture::new(&[(1000, 0.5), (70, 0.2), (0, 0.0), (50_000, 0.3)], 3).unwrap()
    }

    #[test]
    fn proportions_are_exact_in_each_period_and_about_right_in_a_batch() {
        let order = mixture().draws(60_000);
        let mut counts = [0u64; 4];
        let part = |sample: u64| match sample {
            0..1000 => 0,
            1000..1070 => 1,
            _ => 3,
        };
        let mut least = u64::MAX;
        for batch in 0..600 {
            let before = counts[0];
            (0..100).for_each(|i| counts[part(order.index(1, batch * 100 + i))] += 1);
            least = least.min(counts[0] - before);
            if batch % 100 == 99 {
                assert_eq!(counts, [5000, 2000, 0, 3000].map(|n| n * (batch / 100 + 1)));
            }
        }
        assert!((30..50).contains(&least), "a batch of 100 had {least} of the half that is the first source");
    }

    /// Over the whole sequence each source is gone through pass by pass, and the pass is the variant.
    #[test]
    fn every_sample_of_a_source_comes_once_in_each_pass_across_epochs() {
        let order = mixture().draws(7_777);
        let mut seen = std::collections::HashSet::new();
        let mut passes = [0; 4];
        for draw in 0..140_000 {
            let (epoch, position) = (draw / 7_777, draw % 7_777);
            let (sample, pass) = (order.index(epoch, position), order.variant(epoch, position));
            assert!(seen.insert((sample, pass)), "sample {sample} came twice in pass {pass}");
            let part = [0, 1000, 1070].iter().filter(|first| sample >= **first).count() - 1;
            passes[part] = passes[part].max(pass);
        }
        assert_eq!(passes, [70_000 / 1000 - 1, 28_000 / 70 - 1, 0, 0]);
        assert_eq!(seen.iter().filter(|(sample, _)| *sample < 1000).count(), 70_000);
        // Cut into other epochs it is the same sequence.
        let other = mixture().draws(1000);
        assert!((0..5000).all(|draw| other.index(draw / 1000, draw % 1000) == order.index(0, draw)));
    }

    #[test]
    fn proportions_that_cannot_be_are_refused() {
        let refused = |sources: &[(u64, f64)], words: &str| {
            let e = Mixture::new(sources, 0).unwrap_err().to_string();
            assert!(e.contains(words), "{e}");
        };
        refused(&[(1, 1.0), (2, f64::NAN)], "proportion 1 is NaN");
        refused(&[(1, 1.0), (2, -1.0)], "proportion 1 is -1");
        refused(&[(1, 0.0), (2, 0.0)], "all 2 proportions are 0");
        refused(&[], "all 0 proportions are 0");
        refused(&[(1, 1.0), (0, 1.0)], "source 1 has no samples");
        refused(&[(1, 1.0), (2, 1e-6)], "less than one draw in 10000");
        refused(&[(u64::MAX, 1.0), (2, 1.0)], "more samples than can be counted");
    }
}
