//! Decodes WebP with the `image-webp` crate. Only the first frame of an animation is read.

use std::io::Cursor;

use image_webp::WebPDecoder;
use warpfeed_jpeg::Orientation;

use crate::decode::Size;
use crate::decode::decoder::{BoxedDecoder, Decoder, PixelFormat};

struct WebP<'a> {
    decoder: WebPDecoder<Cursor<&'a [u8]>>,
    orientation: u8,
}

pub(in crate::decode) fn open(bytes: &[u8], limit: usize) -> Result<BoxedDecoder<'_>, String> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|e| e.to_string())?;
    decoder.set_memory_limit(limit);
    let exif = decoder.exif_metadata().map_err(|e| e.to_string())?;
    let orientation = exif.as_deref().and_then(Orientation::tag_in).unwrap_or(1);
    Ok(Box::new(WebP { decoder, orientation }))
}

impl Decoder for WebP<'_> {
    fn size(&self) -> Size {
        let (width, height) = self.decoder.dimensions();
        Size::new(width, height)
    }

    fn pixel_format(&self) -> PixelFormat {
        PixelFormat::of_8_bits(if self.decoder.has_alpha() { 4 } else { 3 })
    }

    fn orientation(&self) -> u8 {
        self.orientation
    }

    fn read(mut self: Box<Self>, out: &mut [u8]) -> Result<(), String> {
        self.decoder.read_image(out).map_err(|e| e.to_string())
    }
}
