use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::Codecs;
use crate::error::{Error, Result};
use crate::field::Written;

pub(super) use super::rows::ImageOptions;

impl ImageOptions {
    /// The codecs with the options for decoding.
    pub(super) fn codecs(&self) -> Codecs {
        let codecs = self.codecs.clone().convert_to_u8(self.convert_to_u8);
        let codecs = self.background.into_iter().fold(codecs, Codecs::background);
        self.max_pixels.into_iter().fold(codecs, Codecs::max_pixels)
    }

    /// An option that is set and that only images obey.
    pub(super) fn of_images(&self) -> Option<&'static str> {
        let options = [
            ("normalize", self.normalize.is_some()),
            ("dtype", self.dtype.is_some()),
            ("channels", self.channels != 3),
            ("layout", self.layout != Layout::default()),
            ("background", self.background.is_some()),
            ("convert_to_u8", self.convert_to_u8),
            ("transform", !self.transforms.is_empty()),
        ];
        options.into_iter().find(|(_, is_set)| *is_set).map(|(option, _)| option)
    }

    /// The format in which the host writes the images of a batch with `layout`.
    ///
    /// # Errors
    /// If the element type or the scale does not suit the normalization, or the images cannot have
    /// so many channels.
    pub(super) fn written(&self, layout: Layout) -> Result<Written> {
        let dtype = self.dtype.unwrap_or(if self.normalize.is_some() { Dtype::F32 } else { Dtype::U8 });
        if dtype == Dtype::U8 && self.normalize.is_some() {
            return Err(Error::config("normalize needs dtype f32, f16 or bf16; dtype is u8"));
        }
        if !matches!(self.channels, 1 | 3) {
            let channels = self.channels;
            return Err(Error::config(format!(
                "channels({channels}): an image has 3 or 1; field::Map reads images of any number of channels"
            )));
        }
        let normalize = self.normalize.unwrap_or(Normalize::UNIT);
        normalize.check_scale()?;
        Ok(Written { channels: self.channels, dtype, layout, normalize })
    }
}
