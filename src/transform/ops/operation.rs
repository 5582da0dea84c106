use crate::decode::{Rect, Size};
use crate::error::Result;
use crate::order::Rng;
use crate::transform::{ImageMut, Record};

/// An operation of the augmentation: its options. The [module](super) says where its code is.
pub(crate) trait Operation {
    /// Effect that is drawn for one sample: a [`PixelEffect`] or a [`ValueEffect`].
    type Effect: Record;

    /// The file with the device code, if any. A [`ValueEffect`] needs it, because a batch for a
    /// device has values only there.
    ///
    /// The file defines `run(const EFFECT&, const Image&, Scratch&)` for an effect on pixels, or
    /// `run<P>(const EFFECT&, u32 x, u32 y, float (&v)[3 * P])` for an effect on values.
    const DEVICE: Option<&'static str>;

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) that names the option and its value.
    fn check(&self) -> Result<()>;

    /// Draws the effect on a sample whose image has size `output`. `None` leaves the image as it is.
    fn draw(&self, output: Size, rng: &mut Rng) -> Option<Self::Effect>;
}

/// An effect on the `u8` image.
pub(crate) trait PixelEffect: Record {
    /// Changes `image`.
    fn run(&self, image: &mut ImageMut<'_>);
}

/// An effect on normalised values.
pub(crate) trait ValueEffect: Record {
    /// The part of the image that changes.
    fn area(&self) -> Rect;

    /// The new red, green and blue of the pixel (`x`, `y`) of the area, from the old ones.
    fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3];
}
