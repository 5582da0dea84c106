//! The per-sample random number generator.

/// The random number generator of a sample: SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014), seeded with a hash of (seed, epoch, sample). If a sample
/// can occur several times, its [`variant`](super::Occurrence::variant) replaces the epoch.
///
/// The numbers do not depend on the worker, the batch or the rank. The sequence, and the
/// conversions by the methods below, are stable within a major version.
#[derive(Debug, Clone)]
pub struct Rng(u64);

/// Mixes the bits of `z`. This is the finalizer of SplitMix64: a bijection of 64-bit words in which
/// every input bit affects every output bit.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// Creates the generator for `sample` in `epoch`, with seed `seed`.
    pub fn new(seed: u64, epoch: u64, sample: u64) -> Self {
        let key = [seed, epoch, sample]
            .iter()
            .fold(0, |h: u64, &word| mix(h.wrapping_add(GOLDEN) ^ mix(word.wrapping_add(GOLDEN))));
        Rng(key)
    }

    pub(crate) fn named(&self, name: &str) -> Self {
        Rng(name
            .bytes()
            .fold(mix(self.0), |h, byte| mix(h.wrapping_add(GOLDEN) ^ mix(u64::from(byte).wrapping_add(GOLDEN)))))
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a uniformly distributed multiple of 2^-53 in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform number from `low` to `high`. Only rounding can produce `high` itself.
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns a uniform number in `0..n`, by multiply-shift (Lemire 2019) without rejection. The
    /// relative bias is up to `n / 2^64`. `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        // From the reference implementation, for state 1234567 (Vigna, splitmix64.c).
        let mut rng = Rng(1234567);
        assert_eq!(rng.next_u64(), 6457827717110365317);
        assert_eq!(rng.next_u64(), 3203168211198807973);
    }

    #[test]
    fn seed_epoch_and_sample_change_the_numbers() {
        let first = |s, e, i| Rng::new(s, e, i).next_u64();
        let numbers = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1), first(1, 1, 0), first(0, 1, 1)];
        let distinct: std::collections::HashSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len());
    }

    #[test]
    fn each_name_has_different_numbers() {
        let first = |sample: u64, name: &str| Rng::new(1, 2, sample).named(name).next_u64();
        let numbers = [first(0, ""), first(0, "a"), first(0, "b"), first(0, "ab"), first(0, "ba"), first(1, "a")];
        let distinct: std::collections::HashSet<_> =
            numbers.into_iter().chain([Rng::new(1, 2, 0).next_u64()]).collect();
        assert_eq!(distinct.len(), numbers.len() + 1);
    }

    #[test]
    fn numbers_are_uniform() {
        let mut counts = [0u32; 10];
        for sample in 0..100_000 {
            counts[Rng::new(3, 5, sample).below(10) as usize] += 1;
        }
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi2 < 27.9, "chi-square of {chi2:.1} with 9 degrees of freedom has p below 0.001: {counts:?}");
    }
}
