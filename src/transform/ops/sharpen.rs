use super::arithmetic::fused;
use super::effect::{PixelEffect, Scratch};
use super::random_effect::random_effect;
use super::vectorize::{level, vectorize};
use crate::transform::{ImageMut, record};

record! {
    /// torchvision's `adjust_sharpness`: blends with a smoothed image.
    pub(crate) struct Sharpen {
        /// Weight of the smoothed image.
        share: f32,
    }
}

impl Sharpen {
    /// Creates the effect. The factor 0 smooths the image, 1 does not change it, and 2 doubles the
    /// difference from the smoothed image.
    pub(super) fn by(factor: f64) -> Self {
        Sharpen { share: (1.0 - factor) as f32 }
    }
}

impl PixelEffect for Sharpen {
    const DEVICE: Option<&'static str> = Some("sharpen.cuh");

    /// Blends each pixel with a smoothed pixel: 5/13 of the pixel plus 1/13 of each of its eight
    /// neighbors, rounded to the nearest integer. The sum is never halfway between two integers,
    /// because 13 is odd. Pixels at the edges of the image do not change.
    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let (width, height) = (image.width() as usize, image.height() as usize);
        if width <= 2 || height <= 2 {
            return;
        }
        let (source, stride) = (scratch.copy_image(image), width * 3);
        for (y, row) in image.rows_mut().enumerate().take(height - 1).skip(1) {
            let [above, center, below] = [y - 1, y, y + 1].map(|y| &source[y * stride..][..stride]);
            sharpen_row([above, center, below], self.share, &mut row[3..stride - 3]);
        }
    }
}

vectorize! {
    /// Sharpens a row, except its first and last pixel, which `out` does not contain. `rows`
    /// contains the original rows above, at and below this row.
    fn sharpen_row(rows: [&[u8]; 3], share: f32, out: &mut [u8]) {
        let [above, center, below] = rows.map(|row| &row[..out.len() + 6]);
        let sum_of_three = |row: &[u8], i: usize| u16::from(row[i]) + u16::from(row[i + 3]) + u16::from(row[i + 6]);
        for (i, out) in out.iter_mut().enumerate() {
            let value = u16::from(center[i + 3]);
            // The dividend is at most 6,643, so it fits into a `u16`.
            let smooth = (2 * (sum_of_three(above, i) + sum_of_three(center, i) + sum_of_three(below, i) + 4 * value) + 13) / 26;
            *out = level(fused(f32::from(smooth as i16 - value as i16), share, f32::from(value)));
        }
    }
}

random_effect! {
    /// Sharpens with the given probability, like torchvision's `RandomAdjustSharpness`. The factor
    /// 0 smooths, 1 changes nothing, 2 sharpens.
    sharpness: Sharpness -> Sharpen {
        factor: f64 [4.0, 0.0, 0.3, 0.999_999, 1.0, 1.7];
    }
    probability 0.5;
    refuse |options| {
        let possible = (0.0..=1e6).contains(&options.factor);
        (!possible).then(|| format!("factor is {}, but must be 0 to 1000000", options.factor))
    };
    draw |options, _| Sharpen::by(options.factor);
}

#[cfg(test)]
mod naive {
    use super::*;
    use crate::decode::Size;
    use crate::transform::ops::effect::NaiveReference;

    impl NaiveReference for Sharpen {
        fn naive(&self, image: &[[u8; 3]], size: Size) -> Vec<[u8; 3]> {
            let (width, height) = (size.width as usize, size.height as usize);
            let value = |x: usize, y: usize, c: usize| i32::from(image[y * width + x][c]);
            let mut out = image.to_vec();
            for (y, x) in (1..height.max(1) - 1).flat_map(|y| (1..width.max(1) - 1).map(move |x| (y, x))) {
                for (c, level) in out[y * width + x].iter_mut().enumerate() {
                    let around = (y - 1..=y + 1).flat_map(|y| (x - 1..=x + 1).map(move |x| (x, y)));
                    let around: i32 = around.map(|(x, y)| value(x, y, c)).sum();
                    let center = value(x, y, c);
                    let smooth = (2 * (around + 4 * center) + 13) / 26;
                    *level = fused((smooth - center) as f32, self.share, center as f32).clamp(0.0, 255.0) as u8;
                }
            }
            out
        }
    }
}
