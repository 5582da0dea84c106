//! Decodes PNG with the `png` crate.

use std::io::Cursor;

use warpfeed_jpeg::Orientation;

use crate::decode::Size;
use crate::decode::decoder::{BoxedDecoder, ChannelType, Decoder, PixelFormat};

struct Png<'a> {
    reader: png::Reader<Cursor<&'a [u8]>>,
    pixel_format: PixelFormat,
}

pub(in crate::decode) fn open(bytes: &[u8], limit: usize) -> Result<BoxedDecoder<'_>, String> {
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: limit });
    // Expand palettes to colors, values of fewer than 8 bits to 8 bits, and transparent colors to
    // an alpha channel.
    decoder.set_transformations(png::Transformations::EXPAND);
    let reader = decoder.read_info().map_err(|e| e.to_string())?;
    let (kind, bits) = reader.output_color_type();
    let channel_type = match bits {
        png::BitDepth::Eight => ChannelType::U8,
        png::BitDepth::Sixteen => ChannelType::U16,
        other => return Err(format!("{kind:?} of {} bits", other as u8)),
    };
    let pixel_format = PixelFormat { channels: kind.samples() as u8, channel_type };
    Ok(Box::new(Png { reader, pixel_format }))
}

impl Decoder for Png<'_> {
    fn size(&self) -> Size {
        let (width, height) = self.reader.info().size();
        Size::new(width, height)
    }

    fn pixel_format(&self) -> PixelFormat {
        self.pixel_format
    }

    fn orientation(&self) -> u8 {
        self.reader.info().exif_metadata.as_deref().and_then(Orientation::tag_in).unwrap_or(1)
    }

    fn read(mut self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        self.reader.next_frame(out).map_err(|e| e.to_string())?;
        if self.pixel_format.channel_type == ChannelType::U16 {
            out.as_chunks_mut().0.iter_mut().for_each(|value| *value = u16::from_be_bytes(*value).to_ne_bytes());
        }
        Ok(())
    }
}
