use std::sync::Arc;

use super::{DecoderBuilder, Loader};
use crate::decode::Codec;
use crate::transform::{Augment, Transform};

shared_setters! {
    /// Sets crop, resize, flip and color changes of each image, and with them the size of the
    /// images. `Augment::eval(256, 224)` by default.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// let loader = Loader::new("train").augment(Augment::train(224));
    /// ```
    pub fn augment(mut self, augment: Augment) -> Self { self.images.augment = augment; }

    /// Adds your own step on the `u8` image, after [`augment`](Loader::augment) and before
    /// [`normalize`](Loader::normalize). Several steps run in the order of the calls. A step gets the
    /// image [without the fill](Transform::apply) around it.
    ///
    /// ```
    /// # use warpfeed::{Loader, sampler::Rng, transform::ImageMut};
    /// fn invert(image: &mut ImageMut<'_>, rng: &mut Rng) -> warpfeed::Result<()> {
    ///     if rng.chance(0.5) {
    ///         image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
    ///     }
    ///     Ok(())
    /// }
    /// let loader = Loader::new("train").transform(invert);
    /// ```
    ///
    /// Fields that follow the image, such as masks and boxes, do not follow a step of your own.
    /// Opening fails for a loader with both, unless
    /// [`transform_moves_pixels(false)`](Loader::transform_moves_pixels) says that they go
    /// together.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.images.transforms.push(Arc::new(transform));
    }

    /// Adds your own codec to the [built-in ones](crate::decode#what-is-read). It takes precedence
    /// over them and over codecs that were added earlier, so it can replace a built-in format.
    ///
    /// In a folder, files with an extension of the codec's [format](Codec::format) become samples.
    /// A field named after the format is the image of its sample. [`Codec`] has an example of a
    /// codec.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader, decode::RawRgb};
    /// // Fields of 32 * 32 * 3 bytes, which are bare pixels.
    /// let arrays = Loader::new("arrays.lmdb").codec(RawRgb::new(32, 32));
    /// let loader = arrays.augment(Augment::pass_through(32, 32));
    /// ```
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.images.codecs = self.images.codecs.with(codec);
    }
}
