//! Splits a dataset into random parts.

use std::collections::BTreeMap;

use super::{Sampler, Shuffled};
use crate::error::{Error, Result};

/// Splits `samples` at random, like PyTorch's `random_split`. `fractions` contains the fraction of
/// the samples in each part. If the fractions sum to less than 1, the parts omit the remaining
/// samples.
///
/// The parts depend on `seed`, and on the samples and their order. Each part is in ascending order.
///
/// ```
/// let [train, val] = warpfeed::sampler::split(0..500, [0.8, 0.2], 42)?;
/// assert_eq!((train.len(), val.len()), (400, 100));
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if a fraction is not from 0 to 1, or if the sum
/// of the fractions exceeds 1.
pub fn split<const N: usize>(
    samples: impl IntoIterator<Item = u64>,
    fractions: [f64; N],
    seed: u64,
) -> Result<[Vec<u64>; N]> {
    split_stratified(samples.into_iter().map(|sample| (sample, 0)), fractions, seed)
}

/// Splits each class separately (a stratified split), so that every part has about the same class
/// proportions as the whole. Otherwise the same as [`split`]. `samples` yields pairs of an index
/// and a label.
///
/// ```
/// let labels = [0, 0, 0, 0, 1, 1, 1, 1];
/// let samples = (0..).zip(labels);
/// let [train, val] = warpfeed::sampler::split_stratified(samples, [0.5, 0.5], 42)?;
/// assert_eq!(train.iter().filter(|&&index| labels[index as usize] == 1).count(), 2);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// See [`split`].
pub fn split_stratified<const N: usize>(
    samples: impl IntoIterator<Item = (u64, i64)>,
    fractions: [f64; N],
    seed: u64,
) -> Result<[Vec<u64>; N]> {
    let sum: f64 = fractions.iter().sum();
    if fractions.iter().any(|fraction| !(0.0..=1.0).contains(fraction)) || sum > 1.0 + 1e-9 {
        return Err(Error::config(format!(
            "split: invalid fractions {fractions:?}: each must be from 0 to 1, and their sum at most 1"
        )));
    }
    let mut classes = BTreeMap::<i64, Vec<u64>>::new();
    for (sample, label) in samples {
        classes.entry(label).or_default().push(sample);
    }
    let mut parts = [const { Vec::new() }; N];
    // The rounding errors of a class carry over to the next class. The total sizes of the parts
    // therefore stay close to the fractions even if the classes are small.
    let mut rounding_errors = [0.0; N];
    for (label, samples) in classes {
        let len = samples.len() as u64;
        let shuffled = Shuffled::new(len, seed ^ (label as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut shuffled_samples = (0..len).map(|position| samples[shuffled.index(0, position) as usize]);
        let mut remaining = samples.len();
        for ((part, fraction), rounding_error) in parts.iter_mut().zip(fractions).zip(&mut rounding_errors) {
            let exact_count = fraction * len as f64 + *rounding_error;
            let count = (exact_count.round().max(0.0) as usize).min(remaining);
            *rounding_error = exact_count - count as f64;
            remaining -= count;
            part.extend(shuffled_samples.by_ref().take(count));
        }
        // If the fractions sum to 1, put every sample in a part with a fraction above 0.
        if sum > 1.0 - 1e-9
            && let Some(last) = fractions.iter().rposition(|&fraction| fraction > 0.0)
        {
            rounding_errors[last] -= remaining as f64;
            parts[last].extend(shuffled_samples);
        }
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_disjoint_and_has_the_requested_sizes() {
        for n in [1, 2, 10, 999, 10_000] {
            let [a, b, c] = split(0..n, [0.7, 0.2, 0.1], 3).unwrap();
            let mut samples_of_parts = [&a[..], &b, &c].concat();
            assert!(a.is_sorted() && b.is_sorted() && c.is_sorted());
            samples_of_parts.sort_unstable();
            assert!(samples_of_parts.into_iter().eq(0..n));
            for (part, fraction) in [(a, 0.7), (b, 0.2), (c, 0.1)] {
                assert!((part.len() as f64 - fraction * n as f64).abs() <= 1.0, "{} of {n}", part.len());
            }
        }
        let [a] = split(0..1000, [0.25], 3).unwrap();
        assert_eq!(a.len(), 250);
        assert_ne!(split(0..1000, [0.25], 4).unwrap(), [a], "another seed");
    }

    #[test]
    fn a_part_with_fraction_0_stays_empty() {
        let third = 1.0 / 3.0;
        for n in 0..50 {
            let [a, b, c, none] = split(0..n, [third, third, third, 0.0], 3).unwrap();
            assert_eq!((a.len() + b.len() + c.len(), none.len()), (n as usize, 0), "{n} samples");
            let [none, a, b, c] =
                split_stratified((0..n).map(|i| (i, i as i64)), [0.0, third, third, third], 3).unwrap();
            assert_eq!((a.len() + b.len() + c.len(), none.len()), (n as usize, 0), "{n} classes");
        }
    }

    #[test]
    fn every_part_has_the_class_proportions_of_the_whole() {
        let labels = (1..=10).flat_map(|k| std::iter::repeat_n(k, 10 * k as usize));
        let samples: Vec<(u64, i64)> = (0..).zip(labels).collect();
        let [train, val] = split_stratified(samples.iter().copied(), [0.8, 0.2], 1).unwrap();
        assert_eq!((train.len(), val.len()), (440, 110));
        for class in 1..=10 {
            let count_in = |part: &[u64]| part.iter().filter(|&&s| samples[s as usize].1 == class).count();
            assert_eq!((count_in(&train), count_in(&val)), (8 * class as usize, 2 * class as usize));
        }
        let [train, val] = split_stratified((0..100).map(|i| (i, i as i64)), [0.8, 0.2], 1).unwrap();
        assert_eq!((train.len(), val.len()), (80, 20));
    }

    #[test]
    fn invalid_shares_are_refused() {
        for fractions in [[0.8, 0.3], [-0.1, 0.5], [f64::NAN, 0.1]] {
            assert!(split(0..10, fractions, 0).unwrap_err().cause().contains("invalid fractions"), "{fractions:?}");
        }
    }
}
