use std::sync::Arc;

use super::Loader;
use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::Codec;
use crate::transform::{Augment, Transform};

/// What is done to pictures, and how they lie in the batch.
impl Loader {
    /// Crop, resize, flip and what else is done to each picture, and so the size of the images;
    /// `Augment::eval(256, 224)` by default.
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = augment;
        self
    }

    /// Adds a step of your own on the `u8` image after [`augment`](Loader::augment), before it is
    /// normalised. Called more than once, the steps follow each other.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.transforms.push(Arc::new(transform));
        self
    }

    /// Per-channel `(pixel / 255 - mean) / std`, such as [`Normalize::IMAGENET`]. It makes the
    /// dtype F32 unless [`dtype`](Loader::dtype) says another float. Without it, float images are
    /// `pixel / 255`.
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        self.normalize = Some(normalize);
        self
    }

    /// Element type of the images: U8 (the default: pixels as they are), F32, F16 or BF16.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Order of the images' axes; [`Layout::Nhwc`] by default.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Adds a codec of your own to the [built-in ones](crate::decode#what-is-read). It is asked
    /// before them, and before those that were added earlier, so that it may take a format over.
    ///
    /// Files in a folder with an extension of its [format](Codec::format) are then samples, and a
    /// field that is named after the format is a sample's image. [`Codec`] has an example of one.
    ///
    /// ```no_run
    /// # use warpfeed::{Augment, Loader, decode::RawRgb};
    /// // Fields of 32 * 32 * 3 bytes, which are the pixels themselves.
    /// let arrays = Loader::new("arrays.lmdb").codec(RawRgb::new(32, 32));
    /// let loader = arrays.augment(Augment::pass_through(32, 32));
    /// ```
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codecs = self.codecs.with(codec);
        self
    }
}
