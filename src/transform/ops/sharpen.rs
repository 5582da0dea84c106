use super::arithmetic::fused;
use super::effect::{PixelEffect, Scratch};
use super::wide::{level, wide};
use crate::transform::{ImageMut, record};

record! {
    /// torchvision's `adjust_sharpness`: blends with a smoothed image.
    pub(crate) struct Sharpen {
        /// Share of the smoothed image.
        share: f32,
    }
}

impl Sharpen {
    /// 0 gives the smoothed image, 1 the image, and 2 doubles the difference.
    pub(super) fn by(factor: f64) -> Self {
        Sharpen { share: (1.0 - factor) as f32 }
    }
}

impl PixelEffect for Sharpen {
    const DEVICE: Option<&'static str> = Some("sharpen.cuh");

    /// The smoothed image has weights of 1/13 for the eight neighbours and 5/13 for the pixel,
    /// rounded. No sum lies between two levels, because 13 is odd. The border stays as it is.
    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch) {
        let (width, height) = (image.width() as usize, image.height() as usize);
        if width <= 2 || height <= 2 {
            return;
        }
        let (from, stride) = (scratch.copy_of(image), width * 3);
        for (y, row) in image.rows_mut().enumerate().take(height - 1).skip(1) {
            let [above, own, below] = [y - 1, y, y + 1].map(|y| &from[y * stride..][..stride]);
            sharpen_row([above, own, below], self.share, &mut row[3..stride - 3]);
        }
    }
}

wide! {
    /// Sharpens the pixels of a row without the first and the last one. `rows` are whole rows: the
    /// one above, the old values, and the one below.
    fn sharpen_row(rows: [&[u8]; 3], share: f32, to: &mut [u8]) {
        let [above, own, below] = rows.map(|row| &row[..to.len() + 6]);
        let three = |row: &[u8], i: usize| u16::from(row[i]) + u16::from(row[i + 3]) + u16::from(row[i + 6]);
        for (i, to) in to.iter_mut().enumerate() {
            let value = u16::from(own[i + 3]);
            // At most 6,643 before the division.
            let smooth = (2 * (three(above, i) + three(own, i) + three(below, i) + 4 * value) + 13) / 26;
            *to = level(fused(f32::from(smooth as i16 - value as i16), share, f32::from(value)));
        }
    }
}
