//! Blurs images with a Gaussian kernel.
//!
//! The kernel is separable, so the cost per pixel is linear in the kernel size. For each row of the
//! output, a vertical pass computes a row of floats, and a horizontal pass computes the pixels from
//! this row. The image is extended by reflection, as in torchvision.

use super::effect::{PixelEffect, Scratch};
use super::random_effect::random_effect;
use super::vectorize::{ROUND, level, vectorize};
use crate::transform::{ImageMut, record};

pub(super) const MAX_RADIUS: u32 = 31;

const MAX_TAPS: usize = 2 * MAX_RADIUS as usize + 1;

/// Number of output values that are computed at a time. Their sums fit into the vector registers.
const BLOCK: usize = 32;

record! {
    /// torchvision's `gaussian_blur` with the same standard deviation along both axes.
    pub(crate) struct Blur {
        /// Weight of the neighbors at distance 1, relative to the weight of the pixel itself.
        near: f64,
        /// Radius of the kernel.
        radius: u32,
        unused: u32,
    }
}

impl Blur {
    /// Creates a blur with a kernel of `size` pixels, an odd number of at most
    /// `2 * MAX_RADIUS + 1`. `sigma` is the standard deviation in pixels.
    pub(super) fn new(size: u32, sigma: f64) -> Self {
        Blur { near: (-0.5 / (sigma * sigma)).exp(), radius: size / 2, unused: 0 }
    }

    /// Returns the weights at the distances 0, 1, and so on from the center. The weights of the
    /// whole kernel add up to 1. Only the host calls `exp`, in [`new`](Self::new). Everything after
    /// that uses additions, multiplications and divisions, which IEEE 754 rounds correctly, so host
    /// and device compute identical weights.
    pub(super) fn weights(&self) -> [f32; MAX_RADIUS as usize + 1] {
        let mut weights = [0.0; MAX_RADIUS as usize + 1];
        let (mut weight, mut ratio, mut sum) = (1.0, self.near, 0.0);
        for (distance, out) in weights[..=self.radius as usize].iter_mut().enumerate() {
            *out = weight;
            sum += if distance == 0 { weight } else { 2.0 * weight };
            weight *= ratio;
            ratio *= self.near * self.near;
        }
        weights.map(|weight: f64| (weight / sum) as f32)
    }
}

/// Mirrors an index outside `0..length` at the ends of the range, without repeating the edge.
fn reflect(index: i64, length: i64) -> usize {
    let period = (2 * (length - 1)).max(1);
    let index = index.rem_euclid(period);
    index.min(period - index).min(length - 1).max(0) as usize
}

impl PixelEffect for Blur {
    const DEVICE: Option<&'static str> = Some("blur.cuh");

    /// Blurs the image. The fixed order of the additions makes the rounding the same on every
    /// machine.
    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let (radius, stride) = (self.radius as usize, width * 3);
        let weights = self.weights();
        let taps = 2 * radius + 1;
        let mut kernel = [0.0; MAX_TAPS];
        kernel.iter_mut().zip(0..taps).for_each(|(weight, tap)| *weight = weights[tap.abs_diff(radius)]);
        let kernel = &kernel[..taps];
        let (image_copy, sums) = scratch.copy_image_and_row(image, stride + 6 * radius);
        for (y, row) in image.rows_mut().enumerate() {
            let mut row_offsets = [0; MAX_TAPS];
            for (row, tap) in row_offsets.iter_mut().zip(0..taps) {
                *row = stride * reflect(y as i64 + tap as i64 - radius as i64, height as i64);
            }
            add_rows(image_copy, &row_offsets[..taps], kernel, &mut sums[3 * radius..][..stride]);
            for x in (0..radius).chain(radius + width..2 * radius + width) {
                let source = radius + reflect(x as i64 - radius as i64, width as i64);
                sums.copy_within(3 * source..3 * source + 3, 3 * x);
            }
            add_columns(sums, kernel, row);
        }
    }
}

vectorize! {
    fn add_rows(source: &[u8], row_offsets: &[usize], kernel: &[f32], out: &mut [f32]) {
        let (blocks, remainder) = out.as_chunks_mut::<BLOCK>();
        let remainder_start = blocks.len() * BLOCK;
        for (block, out) in blocks.iter_mut().enumerate() {
            let mut sums = [0.0; BLOCK];
            for (row, weight) in row_offsets.iter().zip(kernel) {
                let values = &source[row + block * BLOCK..][..BLOCK];
                sums.iter_mut().zip(values).for_each(|(sum, &v)| *sum += weight * f32::from(v));
            }
            *out = sums;
        }
        remainder.fill(0.0);
        for (row, weight) in row_offsets.iter().zip(kernel) {
            remainder.iter_mut().zip(&source[row + remainder_start..]).for_each(|(sum, &v)| *sum += weight * f32::from(v));
        }
    }
}

vectorize! {
    fn add_columns(sums: &[f32], kernel: &[f32], to: &mut [u8]) {
        let (blocks, remainder) = to.as_chunks_mut::<BLOCK>();
        let remainder_start = blocks.len() * BLOCK;
        for (block, to) in blocks.iter_mut().enumerate() {
            let mut out = [0.0; BLOCK];
            for (tap, weight) in kernel.iter().enumerate() {
                let values = &sums[3 * tap + block * BLOCK..][..BLOCK];
                out.iter_mut().zip(values).for_each(|(out, sum)| *out += weight * sum);
            }
            // Adding and subtracting `ROUND` rounds to an integer. A sum may be slightly above 255;
            // `level` clamps it.
            to.iter_mut().zip(out).for_each(|(out, v)| *out = level(v + ROUND - ROUND));
        }
        for (index, to) in (remainder_start..).zip(remainder) {
            let mut out = 0.0;
            for (tap, weight) in kernel.iter().enumerate() {
                out += weight * sums[3 * tap + index];
            }
            *to = level(out + ROUND - ROUND);
        }
    }
}

random_effect! {
    /// Blurs with the given probability, like torchvision's `RandomApply` with
    /// `GaussianBlur(kernel, (low, high))`. `kernel` is the width of the kernel in pixels, an odd
    /// number up to 63. The standard deviation `sigma` is drawn uniformly from low to high, in
    /// pixels.
    blur: GaussianBlur -> Blur {
        kernel: u32 [5, 1, 5, 9, 63];
        sigma: (f64, f64) [(1.0, 2.0), (0.5, 0.5), (0.1, 0.1), (1.3, 1.3), (9.0, 9.0)] = (0.1, 2.0);
    }
    probability 1.0;
    refuse |options| {
        let (kernel, (low, high)) = (options.kernel, options.sigma);
        if kernel % 2 == 0 || kernel > 2 * MAX_RADIUS + 1 {
            return Some(format!("kernel is {kernel} pixels, but must be an odd number up to {}", 2 * MAX_RADIUS + 1));
        }
        let possible = 0.0 < low && low <= high && high.is_finite();
        (!possible).then(|| format!("sigma is {low} to {high}, but must satisfy 0 < low <= high < inf"))
    };
    draw |options, rng| Blur::new(options.kernel, rng.range(options.sigma.0, options.sigma.1));
}

#[cfg(test)]
mod naive {
    use super::*;
    use crate::decode::Size;
    use crate::transform::ops::effect::NaiveReference;

    fn reflect_stepwise(mut index: i64, length: i64) -> i64 {
        while length > 1 && !(0..length).contains(&index) {
            index = if index < 0 { -index } else { 2 * (length - 1) - index };
        }
        if length == 1 { 0 } else { index }
    }

    impl NaiveReference for Blur {
        fn naive(&self, image: &[[u8; 3]], size: Size) -> Vec<[u8; 3]> {
            let (width, height, radius) = (i64::from(size.width), i64::from(size.height), i64::from(self.radius));
            let weights = self.weights();
            let weight = |tap: i64| weights[tap.unsigned_abs() as usize];
            let level = |x: i64, y: i64, c: usize| f32::from(image[(y * width + x) as usize][c]);
            let column = |x, y, c| {
                (-radius..=radius)
                    .fold(0.0, |sum, tap| sum + weight(tap) * level(x, reflect_stepwise(y + tap, height), c))
            };
            let value = |x, y, c| -> f32 {
                (-radius..=radius)
                    .fold(0.0, |sum, tap| sum + weight(tap) * column(reflect_stepwise(x + tap, width), y, c))
            };
            let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
            places.map(|(x, y)| [0, 1, 2].map(|c| value(x, y, c).round_ties_even() as u8)).collect()
        }
    }
}
