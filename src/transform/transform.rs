use crate::error::Result;
use crate::sampler::Rng;
use crate::transform::ImageMut;

/// A step of your own. It changes the image after crop, resize and color, before the image is
/// normalized and written into the batch.
///
/// Many worker threads call it concurrently. A closure with the same signature is a `Transform`:
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
    /// Changes `image` in place: `u8`, HWC, RGB. Take all randomness from `rng`, so that the pixels
    /// depend only on (seed, epoch, sample).
    ///
    /// `image` is the image without the fill around it
    /// ([`BatchInfo::shown`](crate::BatchInfo::shown)), so its size may differ from that of the
    /// batch, as with [`Augment::own_size`](crate::Augment::own_size) and
    /// [`letterbox`](crate::Augment::letterbox). It is the whole image after geometric operations,
    /// if it joins several images, and with the border of
    /// [`random_crop`](crate::Augment::random_crop).
    ///
    /// # Errors
    /// Any error; [`ErrorKind::Transform`](crate::ErrorKind::Transform) fits best. The loader adds
    /// the sample to the error.
    fn apply(&self, image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()>;

    /// Returns the bytes of memory that all calls together keep for images of up to `image` bytes;
    /// 0 by default. The [memory plan](crate::MemoryPlan) counts them.
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
