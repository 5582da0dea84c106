//! Shuffles with keyed permutations, which need no memory per sample.

use std::array;
use std::ops::Range;

use super::rng::mix;
use super::{Occurrence, Position, Sampler};

/// A sampler that shuffles all samples, differently in each epoch. Every sample occurs once per
/// epoch.
///
/// Instead of a shuffled list, the sampler uses a keyed permutation: a balanced Feistel network
/// (Luby and Rackoff, 1988) over the smallest even number of bits, at least two, that can represent
/// `len` values.
/// The network is applied until the result is less than `len` (cycle walking: Black and Rogaway,
/// "Ciphers with arbitrary finite domains", 2002), fewer than four times on average. The sampler
/// needs no memory per sample, and finding the sample at position 10^12 takes no longer on average
/// than at position 0.
#[derive(Debug, Clone, Copy)]
pub struct Shuffled {
    permutation: Permutation,
    seed: u64,
}

impl Shuffled {
    /// Creates the sampler for a source of `len` samples, with seed `seed`.
    pub fn new(len: u64, seed: u64) -> Self {
        Shuffled { permutation: Permutation::new(len), seed }
    }
}

impl Sampler for Shuffled {
    fn len(&self, _epoch: u64) -> u64 {
        self.permutation.len
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.permutation.apply(epoch_key(self.seed, epoch), position)
    }

    fn for_each(&self, epoch: u64, positions: Range<u64>, visit: &mut dyn FnMut(Occurrence)) {
        self.permutation.for_each(epoch_key(self.seed, epoch), positions, |index| {
            visit(Occurrence { index, variant: epoch });
        });
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        if index >= self.permutation.len {
            return Position::Absent;
        }
        Position::not_before(self.permutation.invert(epoch_key(self.seed, epoch), index), from)
    }
}

/// Returns the key for an epoch. The round keys of the network are hashes of consecutive numbers
/// that start at this key. Hashing (seed, epoch) spreads the keys, so that the round keys of
/// different epochs are unlikely to overlap.
pub(super) fn epoch_key(seed: u64, epoch: u64) -> u64 {
    mix(seed ^ mix(epoch ^ 0x5851_f42d_4c95_7f2d))
}

/// A family of permutations of `0..len`. The key selects the permutation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permutation {
    len: u64,
    half_bits: u32,
}

/// Number of rounds of the network. Four suffice if the round functions are pseudorandom (Luby and
/// Rackoff). The other rounds are a safety margin, because the halves may have only a few bits.
const ROUNDS: u64 = 8;

/// Number of values that pass through the network together. The values are independent, so the CPU
/// overlaps their multiplications.
const LANES: usize = 8;

const CHUNK_LEN: usize = 64;

impl Permutation {
    pub(super) fn new(len: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Permutation { len, half_bits: bits.div_ceil(2).max(1) }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// `value` must be less than `len`.
    pub(super) fn apply(&self, key: u64, value: u64) -> u64 {
        self.walk(value, |(left, right), mask| {
            (0..ROUNDS).fold((left, right), |(left, right), round| {
                (right, left ^ mix(right ^ mix(key.wrapping_add(round))) & mask)
            })
        })
    }

    /// Applies the permutation to each of `values`, and calls `visit` with the results in order.
    /// Takes less than half the time of calling [`apply`](Permutation::apply) for each value,
    /// because eight values pass through the network together, without branches on the number of
    /// passes.
    fn for_each(&self, key: u64, values: Range<u64>, mut visit: impl FnMut(u64)) {
        assert!(values.end <= self.len, "position {} is out of range: the length is {}", values.end, self.len);
        let (shift, mask) = (self.half_bits, (1 << self.half_bits) - 1);
        let keys: [u64; ROUNDS as usize] = array::from_fn(|round| mix(key.wrapping_add(round as u64)));
        for first in values.clone().step_by(CHUNK_LEN) {
            let count = (values.end - first).min(CHUNK_LEN as u64) as usize;
            let mut mapped: [u64; CHUNK_LEN] = array::from_fn(|i| first + i as u64);
            // The first `pending_count` elements are the indices of values to be mapped.
            let mut pending: [u8; CHUNK_LEN] = array::from_fn(|i| i as u8);
            let mut pending_count = count;
            while pending_count > 0 {
                let mut next_pending_count = 0;
                for start in (0..pending_count).step_by(LANES) {
                    // Unused lanes repeat the last value, and their results are ignored.
                    let lanes: [usize; LANES] =
                        array::from_fn(|lane| pending[(start + lane).min(pending_count - 1)].into());
                    let mut halves = lanes.map(|i| (mapped[i] >> shift, mapped[i] & mask));
                    for key in keys {
                        halves = halves.map(|(left, right)| (right, left ^ mix(right ^ key) & mask));
                    }
                    for lane in 0..LANES.min(pending_count - start) {
                        let (i, (left, right)) = (lanes[lane], halves[lane]);
                        mapped[i] = left << shift | right;
                        pending[next_pending_count] = i as u8;
                        next_pending_count += usize::from(mapped[i] >= self.len);
                    }
                }
                pending_count = next_pending_count;
            }
            mapped[..count].iter().copied().for_each(&mut visit);
        }
    }

    pub(super) fn invert(&self, key: u64, value: u64) -> u64 {
        self.walk(value, |(left, right), mask| {
            (0..ROUNDS).rev().fold((left, right), |(left, right), round| {
                (right ^ mix(left ^ mix(key.wrapping_add(round))) & mask, left)
            })
        })
    }

    /// Applies `step` to the two halves of `value` until the result is less than `len`. The second
    /// argument of `step` is the bit mask of a half.
    fn walk(&self, mut value: u64, step: impl Fn((u64, u64), u64) -> (u64, u64)) -> u64 {
        // A walk that starts outside the range might never enter it.
        assert!(value < self.len, "position {value} is out of range: the length is {}", self.len);
        let (shift, mask) = (self.half_bits, (1 << self.half_bits) - 1);
        loop {
            let (left, right) = step((value >> shift, value & mask), mask);
            value = left << shift | right;
            if value < self.len {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_occurs_exactly_once() {
        for len in (1..200).chain([255, 256, 257, 1000, 4096, 5000]) {
            let order = Shuffled::new(len, 42);
            let mut seen = vec![false; len as usize];
            for position in 0..len {
                let index = order.index(3, position) as usize;
                assert!(!std::mem::replace(&mut seen[index], true), "len {len}: sample {index} occurs twice");
            }
        }
    }

    #[test]
    fn seeds_and_epochs_give_different_orders() {
        let order = |seed, epoch| (0..1000).map(|p| Shuffled::new(1000, seed).index(epoch, p)).collect::<Vec<_>>();
        assert_eq!(order(1, 1), order(1, 1));
        for (seed, epoch) in [(1, 2), (2, 1), (2, 2)] {
            let same = order(1, 1).iter().zip(order(seed, epoch)).filter(|(a, b)| **a == *b).count();
            assert!(same < 10, "{same} of 1000 samples kept their position; about 1 is expected");
        }
    }

    #[test]
    fn positions_are_uniform_over_epochs() {
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
        // With (16 - 1)^2 = 225 degrees of freedom, the mean is 225 and the standard deviation is
        // 21. The bounds are five standard deviations away.
        assert!((118.0..331.0).contains(&chi2), "chi-square {chi2:.0}");
    }

    #[test]
    fn neighbors_and_trend_are_random() {
        let len = 100_000;
        let order = Shuffled::new(len, 9);
        let values: Vec<f64> = (0..len).map(|p| order.index(0, p) as f64 / len as f64).collect();
        let rising = values.windows(2).filter(|w| w[0] < w[1]).count() as f64 / (len - 1) as f64;
        assert!((rising - 0.5).abs() < 0.005, "share of rising neighbors {rising}");
        let mean = |f: &dyn Fn(usize) -> f64| (0..values.len()).map(f).sum::<f64>() / len as f64;
        let serial = mean(&|i| (values[i] - 0.5) * (values[(i + 1) % values.len()] - 0.5)) * 12.0;
        let trend = mean(&|i| (values[i] - 0.5) * (i as f64 / len as f64 - 0.5)) * 12.0;
        assert!(serial.abs() < 0.015 && trend.abs() < 0.015, "serial correlation {serial:.4}, trend {trend:.4}");
    }

    /// Changing an order is a breaking change.
    #[test]
    fn orders_do_not_change_between_versions() {
        let order = |len, epoch| (0..8).map(|p| Shuffled::new(len, 42).index(epoch, p)).collect::<Vec<_>>();
        assert_eq!(order(10, 0), [2, 6, 3, 5, 9, 4, 0, 8]);
        assert_eq!(order(1_281_167, 3), [1161284, 1108343, 508027, 800632, 426618, 33095, 1233993, 372415]);
    }

    #[test]
    fn invert_is_the_inverse_of_apply() {
        for len in [1, 2, 3, 100, 1 << 20, (1 << 40) - 12_345, 1 << 40] {
            let permutation = Permutation::new(len);
            for i in 0..2000 {
                let value = i * (len / 2000).max(1) % len;
                let mapped = permutation.apply(77, value);
                assert!(mapped < len);
                assert_eq!(permutation.invert(77, mapped), value);
            }
        }
    }

    #[test]
    fn a_huge_source_is_shuffled_uniformly() {
        const CELLS: u64 = 64;
        const DRAWS: u64 = 64_000;
        let uniform = |what: &str, len: u64, value: &dyn Fn(u64) -> u64| {
            let mut counts = [0u32; CELLS as usize];
            (0..DRAWS).for_each(|i| counts[value(i) as usize] += 1);
            let expected = (DRAWS / CELLS) as f64;
            let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
            // With 63 degrees of freedom, the mean is 63 and the standard deviation is 11.2. The
            // bounds are four and a half standard deviations away.
            assert!((12.0..114.0).contains(&chi2), "{what} of {len}: chi-square {chi2:.0}");
        };
        for len in [1 << 40, (1 << 40) - 12_345, (1 << 39) + 1] {
            let order = Shuffled::new(len, 1);
            let high = |sample: u64| (u128::from(sample) * u128::from(CELLS) / u128::from(len)) as u64;
            let far = |i: u64| i * (len / DRAWS);
            uniform("high bits of neighbors", len, &|i| high(order.index(0, i)));
            uniform("high bits of far positions", len, &|i| high(order.index(0, far(i))));
            uniform("low bits of neighbors", len, &|i| order.index(0, i) % CELLS);
            uniform("low bits of far positions", len, &|i| order.index(0, far(i)) % CELLS);
            uniform("one position over epochs", len, &|i| high(order.index(i, 12_345)));
            let step = |i: u64| (order.index(0, i + 1) + len - order.index(0, i)) % len;
            uniform("steps from one sample to the next", len, &|i| high(step(i)));
            let pair = |i: u64| high(order.index(0, 2 * i)) / 8 * 8 + high(order.index(0, 2 * i + 1)) / 8;
            uniform("pairs of neighbors", len, &pair);
        }
    }
}
