//! Pixels to pixels: from the decoded part of a picture to an image of the batch's size.
//!
//! 1. `augment`: [`Augment`], what is done to every sample: crop, flip, and what follows.
//! 2. `colour`: [`ColorJitter`].
//! 3. `erase`: [`RandomErasing`].
//! 4. `geometry`: where a crop lies, drawn and rounded as torchvision does.
//! 5. `mix`: [`Mix`], how a batch's samples are mixed with their neighbours.
//! 6. `plan`: [`Plan`], what was decided for one sample before it is decoded.
//! 7. `resize`: [`Resizer`], crop, antialiased resize and flip in one go.
//! 8. `view`: [`ImageMut`], the image as a user's [`Transform`] sees it.
//!
//! A sample's random numbers come from one [`Rng`] in a fixed order: first [`Augment::plan`], then
//! the colour, then the user's transforms.

mod augment;
mod colour;
mod erase;
mod geometry;
mod mix;
mod plan;
mod resize;
mod view;

pub use augment::Augment;
pub use colour::ColorJitter;
pub use erase::{Erase, RandomErasing};
pub use mix::{Mix, Mixing};
pub use plan::{Plan, Window};
pub use resize::Resizer;
pub use view::ImageMut;

pub(crate) use geometry::shorter_to;

use crate::error::Result;
use crate::order::Rng;

/// A step of the user's own on the image after crop, resize and colour, before it is normalised and
/// written into the batch.
///
/// Called from many worker threads at once. A closure of the same signature is a `Transform`:
///
/// ```
/// use warpfeed::order::Rng;
/// use warpfeed::transform::{ImageMut, Transform};
///
/// let invert = |image: &mut ImageMut<'_>, rng: &mut Rng| {
///     if rng.chance(0.5) {
///         image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
///     }
///     Ok(())
/// };
/// let boxed: Box<dyn Transform> = Box::new(invert);
/// # let mut pixels = [0; 12];
/// # boxed.apply(&mut ImageMut::new(&mut pixels, 2, 2), &mut Rng::new(0, 0, 0)).unwrap();
/// ```
pub trait Transform: Send + Sync {
    /// Changes `image` in place: `u8`, HWC, RGB, of the batch's size. All randomness must come from
    /// `rng`, so that the pixels depend on (seed, epoch, sample) alone.
    ///
    /// # Errors
    /// Any; [`ErrorKind::Transform`](crate::ErrorKind::Transform) fits best. The loader adds the
    /// sample.
    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()>;
}

impl<F> Transform for F
where
    F: Fn(&mut ImageMut<'_>, &mut Rng) -> Result<()> + Send + Sync,
{
    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
        self(image, rng)
    }
}
