//! [`PixelEffect`] and [`ValueEffect`]: the traits that effects implement.

use crate::decode::Rect;
#[cfg(test)]
use crate::decode::Size;
use crate::error::resize;
use crate::transform::{ImageMut, Record};

pub(crate) trait PixelEffect: Record {
    /// Name of the file with the device code, if any. The file defines
    /// `run(const EFFECT&, const Image&, Scratch&)`.
    const DEVICE: Option<&'static str>;

    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch);
}

/// A naive reference implementation of an effect on pixels. Tests compare its result with the
/// result of [`PixelEffect::run`].
#[cfg(test)]
pub(crate) trait NaiveReference: std::fmt::Debug {
    fn naive(&self, image: &[[u8; 3]], size: Size) -> Vec<[u8; 3]>;
}

/// An effect on output values: normalized floats, or 0 to 255 in a batch of `u8`.
pub(crate) trait ValueEffect: Record {
    /// Name of the file with the device code. Device code is required, because the output values of
    /// a device batch exist only on the device. The file defines
    /// `run<P>(const EFFECT&, u32 x, u32 y, float (&v)[3 * P])`, which processes `P` adjacent
    /// pixels of row `y`, from column `x`.
    const DEVICE: &'static str;

    fn area(&self) -> Rect;

    /// Returns the new red, green and blue of pixel (`x`, `y`), which must be inside
    /// [`area`](ValueEffect::area). `old` contains the previous values.
    fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3];
}

/// Scratch memory for effects on pixels. Each thread has its own.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    copy: Vec<u8>,
    pub(super) row: Vec<f32>,
    /// The input image of AugMix. Each chain starts from this image.
    pub(super) original: Vec<u8>,
    /// The weighted sum of the original image and the chains that have run so far.
    pub(super) sum: Vec<f32>,
}

impl Scratch {
    pub(super) fn copy_image(&mut self, image: &ImageMut<'_>) -> &[u8] {
        self.copy.clear();
        self.copy.extend_from_slice(image.data());
        &self.copy
    }

    /// Copies the image, and returns the copy and a row of `length` floats with arbitrary values.
    pub(super) fn copy_image_and_row(&mut self, image: &ImageMut<'_>, length: usize) -> (&[u8], &mut [f32]) {
        self.copy_image(image);
        let new_length = length.max(self.row.len());
        resize(&mut self.row, new_length, 0.0);
        (&self.copy, &mut self.row[..length])
    }
}
