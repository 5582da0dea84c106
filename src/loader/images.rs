//! Checks the image options that loaders and decoders share.

use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::Codecs;
use crate::error::{Error, Result};
use crate::field::ArrayFormat;

pub(super) use super::option_table::ImageOptions;

impl ImageOptions {
    pub(super) fn codecs(&self) -> Codecs {
        let codecs = self.codecs.clone().convert_to_u8(self.convert_to_u8);
        let codecs = self.background.into_iter().fold(codecs, Codecs::background);
        self.max_pixels.into_iter().fold(codecs, Codecs::max_pixels)
    }

    /// Returns the name of the first option that was set and that affects only images. If
    /// `has_patches` is true, `background` and `convert_to_u8` do not count, because they affect
    /// patches as well.
    pub(super) fn find_image_option(&self, has_patches: bool) -> Option<&'static str> {
        let options = [
            ("normalize", self.normalize.is_some()),
            ("dtype", self.dtype.is_some()),
            ("channels", self.channels != 3),
            ("layout", self.layout != Layout::default()),
            ("background", self.background.is_some() && !has_patches),
            ("convert_to_u8", self.convert_to_u8 && !has_patches),
            ("transform", !self.transforms.is_empty()),
        ];
        options.into_iter().find(|(_, is_set)| *is_set).map(|(option, _)| option)
    }

    pub(super) fn is_augmented(&self) -> bool {
        self.augment != Self::default().augment
    }

    /// Returns the format of the delivered images. Fails if the normalization does not fit the
    /// element type or is on the wrong scale, or if the number of channels is not supported.
    pub(super) fn format(&self, layout: Layout) -> Result<ArrayFormat> {
        let dtype = self.dtype.unwrap_or(if self.normalize.is_some() { Dtype::F32 } else { Dtype::U8 });
        if dtype == Dtype::U8 && self.normalize.is_some() {
            return Err(Error::config("normalize needs dtype f32, f16 or bf16; dtype is u8"));
        }
        if !matches!(self.channels, 1 | 3) {
            let channels = self.channels;
            return Err(Error::config(format!(
                "channels({channels}): expected 3 or 1; field::DenseMap reads images with any number of channels"
            )));
        }
        let normalize = self.normalize.unwrap_or(Normalize::UNIT);
        normalize.check_scale()?;
        Ok(ArrayFormat { channels: self.channels, dtype, layout, normalize })
    }
}
