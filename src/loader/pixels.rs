//! Setters for the pixels of the images.

use std::sync::Arc;

use super::{DecoderBuilder, Loader};
use crate::decode::Codec;
use crate::transform::{Augment, Transform};

shared_setters! {
    /// Sets the augmentation: crops, resizing, flips and color changes. The augmentation also
    /// determines the size of the images. The default is `Augment::eval(256, 224)`.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// let loader = Loader::new("train").augment(Augment::train(224));
    /// ```
    pub fn augment(mut self, augment: Augment) -> Self { self.images.augment = augment; }

    /// Adds a custom step that modifies the `u8` image. It runs after the crop, flips and color
    /// changes of [`augment`](Loader::augment), and before [`normalize`](Loader::normalize), random
    /// erasing and mixing. Several steps run in the order of the calls. A step receives the image
    /// [without the fill](Transform::apply) around it.
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
    /// A custom step does not transform masks, boxes and other fields that are transformed together
    /// with the image. Opening fails if a loader has both such fields and a custom step, unless
    /// [`transform_moves_pixels(false)`](Loader::transform_moves_pixels) declares that the step
    /// does not move pixels.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.images.transforms.push(Arc::new(transform));
    }

    /// Adds a custom codec to the [built-in ones](crate::decode#supported-formats). The new codec
    /// takes precedence over built-in codecs and over codecs that were added earlier, so it can
    /// replace a built-in format.
    ///
    /// In a folder, files with an extension of the codec's [format](Codec::format) become samples.
    /// A field with the name of the format is the encoded image of its sample. See [`Codec`] for an
    /// example.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader, decode::RawRgb};
    /// // Fields of 32 * 32 * 3 bytes, which are raw pixels.
    /// let arrays = Loader::new("arrays.lmdb").codec(RawRgb::new(32, 32));
    /// let loader = arrays.augment(Augment::pass_through(32, 32));
    /// ```
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.images.codecs = self.images.codecs.with(codec);
    }
}
