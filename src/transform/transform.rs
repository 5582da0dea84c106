use crate::error::Result;
use crate::sampler::Rng;
use crate::transform::ImageMut;

/// A custom step, which changes the image after the crop, resize and color operations, and before
/// the image is normalized and written to the batch.
///
/// Worker threads call it concurrently. A closure with the same signature is a `Transform`:
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
    /// pixels depend only on (seed, epoch, sample).
    ///
    /// `image` does not include the fill around the image
    /// ([`BatchInfo::shown`](crate::BatchInfo::shown)), so it may be smaller than the images of the
    /// batch, for example with [`Augment::own_size`](crate::Augment::own_size) and
    /// [`letterbox`](crate::Augment::letterbox). It is the whole output image after geometric
    /// operations, if the output combines several images, and if it has the border of a
    /// [`random_crop`](crate::Augment::random_crop).
    ///
    /// # Errors
    /// Any error; [`ErrorKind::Transform`](crate::ErrorKind::Transform) fits best. The loader adds
    /// the sample to the error.
    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()>;

    /// Returns how many bytes of memory all calls together retain for images of up to `image`
    /// bytes. The default is 0. The [memory plan](crate::MemoryPlan) includes this amount.
    fn memory(&self, image: usize) -> usize {
        let _ = image;
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
