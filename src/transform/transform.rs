use crate::error::Result;
use crate::sampler::Rng;
use crate::transform::ImageMut;

/// A custom step that changes the image after the resize and all operations on pixels, but before
/// normalization.
///
/// Several worker threads may call a transform at the same time. A closure with the signature of
/// [`apply`](Transform::apply) implements this trait if it is `Send` and `Sync`:
///
/// ```
/// use warpfeed::sampler::Rng;
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
    /// Changes `image` (`u8`, HWC, RGB) in place. Draw all random numbers from `rng`, so that the
    /// pixels depend only on the seed, the epoch and the sample.
    ///
    /// `image` excludes the fill around it
    /// ([`BatchInfo::image_areas`](crate::BatchInfo::image_areas)), so it may be smaller than the
    /// images of the batch, for example with [`Augment::pad_to`](crate::Augment::pad_to) or
    /// [`letterbox`](crate::Augment::letterbox).
    /// In three cases, `image` is the whole output: after geometric operations, if the output
    /// combines several images, and if the output includes the border of a
    /// [`random_crop`](crate::Augment::random_crop).
    ///
    /// # Errors
    /// Any error, preferably [`ErrorKind::Transform`](crate::ErrorKind::Transform). The loader adds
    /// the name of the sample.
    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()>;

    /// Returns the number of bytes that the transform keeps allocated between calls, for images of
    /// up to `image_bytes` bytes, as part of the [memory plan](crate::MemoryPlan). The default is 0.
    fn retained_bytes(&self, image_bytes: usize) -> usize {
        let _ = image_bytes;
        0
    }
}

impl<F> Transform for F
where
    F: Fn(&mut ImageMut<'_>, &mut Rng) -> Result<()> + Send + Sync,
{
    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
        self(image, rng)
    }
}
