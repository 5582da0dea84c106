//! [`Noise`]: fills a rectangle with noise.
//!
//! Each value is computed from hashes of its position and the rectangle's seed, so any GPU thread
//! can compute any pixel, bit-identical to the host.

use super::effect::ValueEffect;
use crate::decode::Rect;
use crate::transform::record;

record! {
    /// A rectangle of the output that is filled with noise. Each value is drawn separately.
    pub(crate) struct Noise {
        /// The rectangle, in pixels of the output.
        pub(crate) rect: Rect,
        /// Mean of the red, green and blue values, in the units of `Erase`.
        pub(crate) mean: [f32; 3],
        /// Standard deviation of the values.
        pub(crate) deviation: f32,
        /// Seed of the rectangle.
        pub(crate) seed: [u32; 2],
    }
}

/// Mean of the sum of twelve uniform bytes. The sum is close to normally distributed by the central
/// limit theorem, and needs only integers, so host and device agree bit for bit. Box-Muller would
/// need `ln` and `cos`, which differ between host and device.
const MEAN: i32 = 1530;
/// Reciprocal of the standard deviation, `sqrt(12 * (256^2 - 1) / 12)`.
const SCALE: f32 = 0.003_906_28;

/// Hashes an integer with Wellons' "lowbias32" (2018).
fn hash(mut bits: u32) -> u32 {
    bits = (bits ^ bits >> 16).wrapping_mul(0x7feb_352d);
    bits = (bits ^ bits >> 15).wrapping_mul(0x846c_a68b);
    bits ^ bits >> 16
}

impl ValueEffect for Noise {
    const DEVICE: &'static str = "noise.cuh";

    fn area(&self) -> Rect {
        self.rect
    }

    fn value(&self, x: u32, y: u32, _: [f32; 3]) -> [f32; 3] {
        let row = hash(y ^ self.seed[0]).wrapping_add(self.seed[1]);
        let mut bits = hash(x ^ row);
        self.mean.map(|mean| {
            let mut sum = 0;
            for _ in 0..3 {
                bits = bits.wrapping_add(0x9e37_79b9);
                sum += hash(bits).to_le_bytes().into_iter().map(i32::from).sum::<i32>();
            }
            (sum - MEAN) as f32 * SCALE * self.deviation + mean
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: [u32; 2]) -> Noise {
        Noise { rect: Rect::new(0, 0, 400, 300), mean: [0.0, 1.0, -2.0], deviation: 0.5, seed }
    }

    #[test]
    fn values_have_the_moments_of_a_normal_distribution() {
        let noise = noise([3, 7]);
        let n = 200.0 * 150.0;
        let pixels = || (0..150).flat_map(|y| (0..200).map(move |x| (x, y)));
        for channel in 0..3 {
            let z = |channel: usize, (x, y): (u32, u32)| {
                (f64::from(noise.value(x, y, [9.0; 3])[channel]) - f64::from(noise.mean[channel])) / 0.5
            };
            let moment = |power: i32| pixels().map(|pixel| z(channel, pixel).powi(power)).sum::<f64>() / n;
            for (power, expected, max_error) in [(1, 0.0, 0.03), (2, 1.0, 0.04), (3, 0.0, 0.1), (4, 2.9, 0.25)] {
                assert!((moment(power) - expected).abs() < max_error, "moment {power}: {}", moment(power));
            }
            // Adjacent pixels and the channels of a pixel must be independent.
            let correlation = |other: usize, right: u32, below: u32| {
                pixels().map(|(x, y)| z(channel, (x, y)) * z(other, (x + right, y + below))).sum::<f64>() / n
            };
            for value in [
                correlation(channel, 1, 0),
                correlation(channel, 0, 1),
                correlation(channel, 1, 1),
                correlation((channel + 1) % 3, 0, 0),
            ] {
                assert!(value.abs() < 0.03, "correlation {value}");
            }
        }
    }

    #[test]
    fn values_differ_between_seeds_and_between_pixels() {
        let value_at = |seed, x, y| noise(seed).value(x, y, [0.0; 3]);
        assert_eq!(value_at([3, 7], 5, 9), value_at([3, 7], 5, 9));
        let values = [
            value_at([3, 7], 5, 9),
            value_at([4, 7], 5, 9),
            value_at([3, 8], 5, 9),
            value_at([3, 7], 6, 9),
            value_at([3, 7], 5, 10),
        ];
        for (i, value) in values.iter().enumerate() {
            assert!(values[..i].iter().all(|other| other != value));
        }
        assert_eq!(SCALE.to_bits(), ((1.0 / 65_535.0_f64.sqrt()) as f32).to_bits());
    }
}
