use super::effect::{PixelEffect, Scratch};
use crate::transform::{ImageMut, record};

/// Largest distance of a pixel that is added, on each side.
pub(super) const MOST_RADIUS: u32 = 31;

record! {
    /// torchvision's `gaussian_blur` with the same standard deviation across and down.
    pub(crate) struct Blur {
        /// Weight of the neighbours at distance 1, in units of the pixel's own weight.
        near: f64,
        /// Largest distance of a pixel that is added.
        radius: u32,
        unused: u32,
    }
}

impl Blur {
    /// A kernel of `size` pixels, which is odd.
    pub(super) fn new(size: u32, sigma: f64) -> Self {
        Blur { near: (-0.5 / (sigma * sigma)).exp(), radius: size / 2, unused: 0 }
    }

    /// The weights at distances from 0 on, which sum to 1 over both sides. Only products and sums
    /// are used, whose doubles are the same on host and device.
    fn weights(&self) -> [f32; MOST_RADIUS as usize + 1] {
        let mut weights = [0.0; MOST_RADIUS as usize + 1];
        let (mut weight, mut ratio, mut sum) = (1.0, self.near, 0.0);
        for (distance, to) in weights[..=self.radius as usize].iter_mut().enumerate() {
            *to = weight;
            sum += if distance == 0 { weight } else { 2.0 * weight };
            // exp(-a (n + 1)^2) is exp(-a n^2) times exp(-a (2 n + 1)).
            weight *= ratio;
            ratio *= self.near * self.near;
        }
        weights.map(|weight: f64| (weight / sum) as f32)
    }
}

/// The place of `at`, which may lie outside 0 to `length` - 1, after reflections about the first
/// and the last place.
fn reflected(at: i64, length: i64) -> usize {
    let period = (2 * (length - 1)).max(1);
    let at = at.rem_euclid(period);
    at.min(period - at).min(length - 1).max(0) as usize
}

impl PixelEffect for Blur {
    const DEVICE: Option<&'static str> = Some("blur.cuh");

    /// Adds rows first, then columns. Sums go from the first neighbour to the last.
    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let (radius, stride) = (self.radius as usize, width * 3);
        let weights = self.weights();
        let weight = |tap: usize| weights[tap.abs_diff(radius)];
        let padded = stride + 6 * radius;
        let (from, row) = scratch.copy_and_row(image, padded + stride);
        let (sums, out) = row.split_at_mut(padded);
        for (y, to) in image.rows_mut().enumerate() {
            let middle = &mut sums[3 * radius..][..stride];
            middle.fill(0.0);
            for tap in 0..=2 * radius {
                let source = reflected(y as i64 + tap as i64 - radius as i64, height as i64);
                let (weight, source) = (weight(tap), &from[source * stride..][..stride]);
                middle.iter_mut().zip(source).for_each(|(sum, &v)| *sum += weight * f32::from(v));
            }
            for x in (0..radius).chain(radius + width..2 * radius + width) {
                let source = radius + reflected(x as i64 - radius as i64, width as i64);
                sums.copy_within(3 * source..3 * source + 3, 3 * x);
            }
            out.fill(0.0);
            for tap in 0..=2 * radius {
                let (weight, sums) = (weight(tap), &sums[3 * tap..][..stride]);
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += weight * sum);
            }
            // Sums are at most a little above 255, and `as` saturates.
            to.iter_mut().zip(&*out).for_each(|(to, &v)| *to = (v + 12_582_912.0 - 12_582_912.0) as u8);
        }
    }
}
