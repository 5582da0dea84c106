use std::sync::Arc;

use super::{DecoderBuilder, Loader};
use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::Codec;
use crate::transform::{Augment, Transform};

/// Processing of pictures, and their layout in the batch.
impl Loader {
    /// Sets whether the steps of [`transform`](Loader::transform) may move pixels; true by default.
    /// Masks, boxes and other fields that follow the picture need steps that leave each pixel in
    /// its place, such as changes of colours.
    ///
    /// ```
    /// # use warpfeed::{Dtype, Loader, field::Mask, order::Rng, transform::ImageMut};
    /// fn invert(image: &mut ImageMut<'_>, _: &mut Rng) -> warpfeed::Result<()> {
    ///     image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
    ///     Ok(())
    /// }
    /// let loader = Loader::new("train").field("mask", Mask::new(Dtype::U8));
    /// let loader = loader.transform(invert).transform_moves_pixels(false);
    /// ```
    pub fn transform_moves_pixels(mut self, moves: bool) -> Self {
        self.pictures.moves_pixels = moves;
        self
    }
}

shared_setters! {
    /// Sets crop, resize, flip and colour changes of each picture, and with them the size of the
    /// images. `Augment::eval(256, 224)` by default.
    ///
    /// ```
    /// # use warpfeed::{Augment, Loader};
    /// let loader = Loader::new("train").augment(Augment::train(224));
    /// ```
    pub fn augment(mut self, augment: Augment) -> Self { self.pictures.augment = augment; }

    /// Adds your own step on the `u8` image, after [`augment`](Loader::augment) and before
    /// [`normalize`](Loader::normalize). Several steps run in the order of the calls. A step gets the
    /// picture [without the fill](Transform::apply) around it.
    ///
    /// ```
    /// # use warpfeed::{Loader, order::Rng, transform::ImageMut};
    /// fn invert(image: &mut ImageMut<'_>, rng: &mut Rng) -> warpfeed::Result<()> {
    ///     if rng.chance(0.5) {
    ///         image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
    ///     }
    ///     Ok(())
    /// }
    /// let loader = Loader::new("train").transform(invert);
    /// ```
    ///
    /// Fields that follow the picture, such as masks and boxes, do not follow a step of your own.
    /// Opening fails for a loader with both, unless
    /// [`transform_moves_pixels(false)`](Loader::transform_moves_pixels) says that they go
    /// together.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.pictures.transforms.push(Arc::new(transform));
    }

    /// Computes `(pixel / 255 - mean) / std` per channel. The dtype becomes F32 unless
    /// [`dtype`](Loader::dtype) sets another float. Without this option float images are `pixel /
    /// 255`.
    ///
    /// ```
    /// # use warpfeed::{Loader, Normalize};
    /// let loader = Loader::new("train").normalize(Normalize::IMAGENET);
    /// ```
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        self.pictures.normalize = Some(normalize);
    }

    /// Sets the element type of the images: F32, F16, BF16, or U8 for unchanged pixels. The default
    /// is U8, or F32 with [`normalize`](Loader::normalize).
    ///
    /// ```
    /// # use warpfeed::{Dtype, Loader, Normalize};
    /// let loader = Loader::new("train").normalize(Normalize::IMAGENET).dtype(Dtype::F16);
    /// ```
    pub fn dtype(mut self, dtype: Dtype) -> Self { self.pictures.dtype = Some(dtype); }

    /// Sets the order of the images' axes; [`Layout::Nhwc`] by default.
    ///
    /// ```
    /// # use warpfeed::{Layout, Loader};
    /// let loader = Loader::new("train").layout(Layout::Nchw);
    /// ```
    pub fn layout(mut self, layout: Layout) -> Self { self.pictures.layout = layout; }

    /// Sets the number of channels of the images: 3 by default, or 1 for greyscale. All steps of
    /// the augmentation see RGB. The finished image becomes its brightness, as by Pillow's
    /// `convert("L")`, which leaves grey pictures unchanged. Then it is normalised, with the first
    /// of the three numbers, and its values are erased and mixed.
    ///
    /// Batches on a device have three channels.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("x-rays").channels(1); // (N, H, W, 1)
    /// ```
    pub fn channels(mut self, channels: usize) -> Self { self.pictures.channels = channels; }

    /// Sets the colour behind transparent pixels of PNG, WebP, GIF and TIFF. By default alpha is
    /// dropped, as by torchvision, and transparent pixels show the colour that the file stores for
    /// them. [`Map::of_channels(4)`](crate::field::Map::of_channels) keeps alpha as a channel.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("logos").background([255; 3]);
    /// ```
    pub fn background(mut self, colour: [u8; 3]) -> Self {
        self.pictures.codecs = self.pictures.codecs.background(colour);
    }

    /// Sets whether pictures of more than 8 bits per channel become images of 8 bits; off by
    /// default. Values of 16 bits keep their upper 8, and floats from 0 to 1 become 0 to 255. By
    /// default such a picture is an error of its sample, because 12-bit scans and measurements lose
    /// most of their content. [`Map`](crate::field::Map) reads their values unchanged.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let loader = Loader::new("photographs").to_8_bits(true);
    /// ```
    pub fn to_8_bits(mut self, converts: bool) -> Self {
        self.pictures.codecs = self.pictures.codecs.to_8_bits(converts);
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
        self.pictures.codecs = self.pictures.codecs.with(codec);
    }
}
