use crate::decode::Rect;
#[cfg(test)]
use crate::decode::Size;
use crate::error::resize;
use crate::transform::{ImageMut, Record};

/// An effect on the `u8` image.
pub(crate) trait PixelEffect: Record {
    /// The file with the device code, if any. It defines `run(const EFFECT&, const Image&,
    /// Scratch&)`.
    const DEVICE: Option<&'static str>;

    /// Changes `image`.
    fn run(&self, image: &mut ImageMut<'_>, scratch: &mut Scratch);
}

/// An effect on pixels in the simplest way, one pixel after the other. Tests compare it with
/// [`PixelEffect::run`] bit by bit.
#[cfg(test)]
pub(crate) trait Naive: std::fmt::Debug {
    /// The pixels of an image of `size` after the effect.
    fn naive(&self, image: &[[u8; 3]], size: Size) -> Vec<[u8; 3]>;
}

/// An effect on normalized values.
pub(crate) trait ValueEffect: Record {
    /// The file with the device code, because a batch for a device has values only there. It
    /// defines `run<P>(const EFFECT&, u32 x, u32 y, float (&v)[3 * P])`.
    const DEVICE: &'static str;

    /// The part of the image that changes.
    fn area(&self) -> Rect;

    /// The new red, green and blue of the pixel (`x`, `y`) of the area, from the old ones.
    fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3];
}

/// Memory of the effects on pixels, which each thread keeps from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The image before an effect that reads neighbors.
    copy: Vec<u8>,
    /// Rows of floats.
    pub(super) row: Vec<f32>,
    /// The image before a mixture of chains.
    pub(super) original: Vec<u8>,
    /// Sum of the chains so far.
    pub(super) sum: Vec<f32>,
}

impl Scratch {
    /// Copies `image`, and returns the copy.
    pub(super) fn copy_of(&mut self, image: &ImageMut<'_>) -> &[u8] {
        self.copy.clear();
        self.copy.extend_from_slice(image.data());
        &self.copy
    }

    /// Copies `image`, and returns the copy and a row of `length` floats.
    pub(super) fn copy_and_row(&mut self, image: &ImageMut<'_>, length: usize) -> (&[u8], &mut [f32]) {
        self.copy_of(image);
        let longer = length.max(self.row.len());
        resize(&mut self.row, longer, 0.0);
        (&self.copy, &mut self.row[..length])
    }
}
