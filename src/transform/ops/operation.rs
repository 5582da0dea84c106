use crate::decode::{Rect, Size};
use crate::error::Result;
use crate::order::Rng;
use crate::transform::{ImageMut, Record};

/// An operation of the augmentation: its options. The [module](super) says where its code is.
pub(crate) trait Operation {
    /// Step that is drawn for one sample: a [`PixelStep`] or a [`ValueStep`].
    type Step: Record;

    /// The file with the device code, if any. A [`ValueStep`] needs it, because a batch for a
    /// device has values only there.
    ///
    /// The file defines `run(const STEP&, const Image&, Scratch&)` for a step on pixels, or
    /// `run<P>(const STEP&, u32 x, u32 y, float (&v)[3 * P])` for a step on values.
    const DEVICE: Option<&'static str>;

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) that names the option and its value.
    fn check(&self) -> Result<()>;

    /// Draws the step of a sample whose image has size `output`. `None` leaves the image as it is.
    fn draw(&self, output: Size, rng: &mut Rng) -> Option<Self::Step>;
}

/// A step on the `u8` image.
pub(crate) trait PixelStep: Record {
    /// Changes `image`.
    fn run(&self, image: &mut ImageMut<'_>);
}

/// A step on normalised values.
pub(crate) trait ValueStep: Record {
    /// The part of the image that changes.
    fn area(&self) -> Rect;

    /// The new red, green and blue of the pixel (`x`, `y`) of the area, from the old ones.
    fn value(&self, x: u32, y: u32, old: [f32; 3]) -> [f32; 3];
}
