use super::arithmetic::fused;
use super::effect::{PixelEffect, Scratch};
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
            for i in 3..stride - 3 {
                let three = |row: &[u8]| i32::from(row[i - 3]) + i32::from(row[i]) + i32::from(row[i + 3]);
                let value = i32::from(own[i]);
                let smooth = (2 * (three(above) + three(own) + three(below) + 4 * value) + 13) / 26;
                row[i] = fused((smooth - value) as f32, self.share, value as f32).clamp(0.0, 255.0) as u8;
            }
        }
    }
}
