use super::Order;
use super::rng::mix;

/// Every sample once in each epoch, shuffled anew for each.
///
/// A keyed permutation instead of a shuffled list: a balanced Feistel network over the smallest even number of bits that holds `len`
/// (Luby and Rackoff, 1988), walked until it lands inside (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains",
/// 2002; fewer than four steps on average). It takes no memory, and position 10^12 costs what position 0 costs.
#[derive(Debug, Clone, Copy)]
pub struct Shuffled {
    len: u64,
    seed: u64,
    half_bits: u32,
}

/// Four rounds make a Feistel network indistinguishable from random to an attacker; the rest is margin for halves of few bits.
const ROUNDS: u64 = 8;

impl Shuffled {
    /// The order of a source of `len` samples under `seed`.
    pub fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Shuffled { len, seed, half_bits: bits.div_ceil(2).max(1) }
    }

    fn permute(&self, key: u64, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let f = mix(right ^ mix(key.wrapping_add(round))) & mask;
            (left, right) = (right, left ^ f);
        }
        left << self.half_bits | right
    }
}

impl Order for Shuffled {
    fn len(&self, _epoch: u64) -> u64 {
        self.len
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        // Each (seed, epoch) starts its rounds at an unrelated place, so that the round keys of two epochs do not overlap.
        let key = mix(self.seed ^ mix(epoch ^ 0x5851_f42d_4c95_7f2d));
        let mut value = self.permute(key, position);
        while value >= self.len {
            value = self.permute(key, value);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_comes_exactly_once() {
        for len in (1..200).chain([255, 256, 257, 1000, 4096, 5000]) {
            let order = Shuffled::new(len, 42);
            let mut seen = vec![false; len as usize];
            for position in 0..len {
                let index = order.index(3, position) as usize;
                assert!(!std::mem::replace(&mut seen[index], true), "len {len}: sample {index} came twice");
            }
        }
    }

    #[test]
    fn seeds_and_epochs_give_other_orders() {
        let order = |seed, epoch| (0..1000).map(|p| Shuffled::new(1000, seed).index(epoch, p)).collect::<Vec<_>>();
        assert_eq!(order(1, 1), order(1, 1));
        for (seed, epoch) in [(1, 2), (2, 1), (2, 2)] {
            let same = order(1, 1).iter().zip(order(seed, epoch)).filter(|(a, b)| **a == *b).count();
            assert!(same < 10, "{same} of 1000 samples kept their place; about 1 is expected");
        }
    }

    /// Each (position, index) pair is equally likely over epochs: a chi-square test of the whole table.
    #[test]
    fn places_are_uniform_over_epochs() {
        let (len, epochs) = (16u64, 20_000u64);
        let order = Shuffled::new(len, 7);
        let mut counts = vec![0u32; (len * len) as usize];
        for epoch in 0..epochs {
            for position in 0..len {
                counts[(position * len + order.index(epoch, position)) as usize] += 1;
            }
        }
        let expected = epochs as f64 / len as f64;
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        // (16 - 1)^2 = 225 degrees of freedom: mean 225, deviation 21; five deviations.
        assert!((118.0..331.0).contains(&chi2), "chi-square {chi2:.0}");
    }

    /// Whether two neighbours stay in order is a fair coin, and a shuffled run has no trend.
    #[test]
    fn neighbours_and_trend_are_random() {
        let len = 100_000;
        let order = Shuffled::new(len, 9);
        let values: Vec<f64> = (0..len).map(|p| order.index(0, p) as f64 / len as f64).collect();
        let rising = values.windows(2).filter(|w| w[0] < w[1]).count() as f64 / (len - 1) as f64;
        assert!((rising - 0.5).abs() < 0.005, "share of rising neighbours {rising}");
        let mean = |f: &dyn Fn(usize) -> f64| (0..values.len()).map(f).sum::<f64>() / len as f64;
        let serial = mean(&|i| (values[i] - 0.5) * (values[(i + 1) % values.len()] - 0.5)) * 12.0;
        let trend = mean(&|i| (values[i] - 0.5) * (i as f64 / len as f64 - 0.5)) * 12.0;
        assert!(serial.abs() < 0.015 && trend.abs() < 0.015, "serial correlation {serial:.4}, trend {trend:.4}");
    }

    #[test]
    fn a_huge_source_is_no_dearer() {
        let order = Shuffled::new(1 << 40, 1);
        let picked: std::collections::HashSet<u64> = (0..1000).map(|p| order.index(0, p << 29)).collect();
        assert_eq!(picked.len(), 1000);
        assert!(picked.iter().all(|&index| index < 1 << 40));
    }
}
