//! The codec for PNG, WebP, GIF, BMP and TIFF.

use warpfeed_sources::format::Format;

use crate::decode::encoded::ParsedHeader;
use crate::decode::image::ImageCodec;
use crate::decode::{Codec, EncodedImage, FloatImage, Options, Pixels, Rect};
use crate::error::{Error, Result};

/// Minimum estimate of the scratch memory for decoding and converting to RGB, in bytes per pixel.
/// It covers the buffers of the decoders for PNG, WebP, GIF and BMP.
const MIN_SCRATCH_BYTES_PER_PIXEL: u64 = 8;

/// Maximum number of bytes that a check decodes, per pixel of the largest allowed image. A header
/// can declare any number of channels, so an unlimited check could take arbitrarily long.
const MAX_STORED_BYTES_PER_PIXEL: u64 = 32;

impl Codec for ImageCodec {
    fn format(&self) -> Format {
        self.format
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        self.read_header(bytes)
            .map(|opened| EncodedImage::from_header(bytes, opened.size(), ParsedHeader::Image(opened)))
    }

    fn decode_memory(&self, image: &EncodedImage<'_>, _region: Rect) -> u64 {
        let area = image.size().area();
        let (scratch, check) = match &image.header {
            ParsedHeader::Image(opened) => (opened.scratch_bytes(), opened.check_memory()),
            _ => (0, 0),
        };
        let scratch = scratch.max(area.saturating_mul(MIN_SCRATCH_BYTES_PER_PIXEL));
        area.saturating_mul(3).saturating_add(scratch).max(check)
    }

    fn decode(&self, image: &mut EncodedImage<'_>, _region: Rect, out: &mut Pixels) -> Result<()> {
        self.decode_whole(image, self.options, out)
    }

    /// Checks an image for damage. An image that only a dense map can read, such as a TIFF with six
    /// bands, does not count as damaged.
    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        if let Some(stored) = self.open_if_map_only(image) {
            stored?.check()?;
            return Ok(None);
        }
        let options = Options { convert_to_u8: true, ..self.options };
        self.decode_whole(image, options, &mut Pixels::new())?;
        Ok(None)
    }
}

impl ImageCodec {
    /// Opens an image that only a dense map can read, for a check. Returns `None` if the image can
    /// be converted to RGB. Returns an error if all values, or the largest strip or tile, exceed
    /// their limit. A strip or tile may take as much memory as the largest allowed image.
    fn open_if_map_only<'a>(&self, image: &EncodedImage<'a>) -> Option<Result<FloatImage<'a>>> {
        let is_map = matches!(&image.header, ParsedHeader::Image(opened) if opened.check_memory() > 0);
        let stored = FloatImage::open(image.bytes()).ok().filter(|_| is_map)?;
        let (bytes, chunk_bytes) = (stored.stored_bytes(), stored.check_memory());
        for (what, bytes, max_bytes_per_pixel) in [
            ("values", bytes, MAX_STORED_BYTES_PER_PIXEL),
            ("a strip or tile", chunk_bytes, 3 + MIN_SCRATCH_BYTES_PER_PIXEL),
        ] {
            let limit = self.options.max_pixels.saturating_mul(max_bytes_per_pixel);
            if bytes > limit {
                let name = self.format.name;
                return Some(Err(Error::decode(format!(
                    "{name} header claims {what} of {bytes} bytes, but the limit is {limit}"
                ))));
            }
        }
        Some(Ok(stored))
    }

    fn decode_whole(&self, image: &mut EncodedImage<'_>, options: Options, out: &mut Pixels) -> Result<()> {
        let bytes = image.bytes();
        let out = out.reset(image.size());
        match &mut image.header {
            ParsedHeader::Image(opened) => self.decode(bytes, opened, options, out),
            _ => Err(Error::decode(format!(
                "the {} codec cannot decode an image that a different codec opened",
                self.format.name
            ))),
        }
    }
}
