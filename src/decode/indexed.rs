//! [`IndexedImage`]: reads a mask from an image file.
//!
//! In a mask of colors, the value of a pixel is its color. In any other mask, the value of a pixel
//! is its palette index or, if the image has no palette, its stored gray level. PNG masks that are
//! not masks of colors are read by [`Png`](super::Png) instead.

use warpfeed_sources::format;

use super::decoder::{BoxedDecoder, OpenFn};
use super::formats;
use super::image::allocation_limit;
use super::standard::standard;
use super::{FloatImage, MASK_VALUES_HINT, Pixels, Rect, Size};
use crate::error::{Error, Result, guarded};

pub(crate) struct IndexedImage<'a> {
    bytes: &'a [u8],
    content: Content<'a>,
    size: Size,
}

enum Content<'a> {
    /// The image is decoded to RGB. The value of a pixel is its color if `reads_colors` is set, and
    /// otherwise its gray level. The channels of gray pixels are equal.
    Colors {
        reads_colors: bool,
    },
    Indices(BoxedDecoder<'a>),
    /// A TIFF with one channel whose values are not unsigned integers of at most 8 bits.
    Values(Box<FloatImage<'a>>),
}

impl<'a> IndexedImage<'a> {
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        format::detect(bytes).is_some()
    }

    /// Opens a mask. If `reads_colors` is set, the value of a pixel is its color as a 24-bit
    /// integer, with red in the highest 8 bits. JPEG and lossy WebP are rejected.
    pub(crate) fn open(bytes: &'a [u8], reads_colors: bool) -> Result<Self> {
        let has_format = |format: format::Format| (format.matches)(bytes);
        if has_format(format::JPEG) || (has_format(format::WEBP) && is_lossy(bytes)) {
            let name = if has_format(format::JPEG) { "jpeg" } else { "lossy webp" };
            return Err(Error::decode(format!("{name} does not preserve the values of a mask: store the mask as PNG")));
        }
        let decoders: [(format::Format, OpenFn); 3] =
            [(format::GIF, formats::gif), (format::BMP, formats::bmp), (format::TIFF, formats::tiff)];
        if reads_colors || has_format(format::WEBP) {
            let size = standard().open(bytes)?.size();
            return Ok(IndexedImage { bytes, content: Content::Colors { reads_colors }, size });
        }
        let Some((decoder, open)) = decoders.into_iter().find(|(decoder, _)| (decoder.matches)(bytes)) else {
            let prefix = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]);
            return Err(Error::decode(format!(
                "the data begins with {prefix:?}: expected PNG, GIF, BMP, TIFF or lossless WebP"
            )));
        };
        let name = decoder.name;
        let decoder = match guarded(|| Ok(open(bytes, allocation_limit(standard().pixel_limit()))))? {
            Ok(decoder) if decoder.is_indexed() => {
                let size = decoder.size();
                return Ok(IndexedImage { bytes, content: Content::Indices(decoder), size });
            }
            decoder => decoder,
        };
        if !has_format(format::TIFF) {
            return Err(Error::decode(match decoder {
                Ok(_) => format!("this {name} is RGB, but {MASK_VALUES_HINT}"),
                Err(e) => format!("{name}: {e}"),
            }));
        }
        let stored = FloatImage::open(bytes)?;
        if stored.channels() != 1 {
            return Err(Error::decode(format!("this tiff has {} channels, but {MASK_VALUES_HINT}", stored.channels())));
        }
        let size = stored.size();
        Ok(IndexedImage { bytes, content: Content::Values(Box::new(stored)), size })
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    pub(crate) fn memory(&self) -> u64 {
        // A pixel takes at most eight bytes in the decoder, three as RGB, and four as a value.
        let memory = self.size.area().saturating_mul(4 + 3 + 8).saturating_add(self.bytes.len() as u64);
        match &self.content {
            Content::Values(stored) => memory.saturating_add(stored.check_memory()),
            _ => memory,
        }
    }

    pub(crate) fn read(self, out: &mut Vec<u32>) -> Result<()> {
        let IndexedImage { bytes, content, size } = self;
        let area = size.area() as usize;
        out.clear();
        match content {
            Content::Colors { reads_colors } => {
                let (mut image, mut pixels) = (standard().open(bytes)?, Pixels::new());
                image.decode(Rect::full(size), &mut pixels)?;
                let color = |&[red, green, blue]: &[u8; 3]| u32::from_be_bytes([0, red, green, blue]);
                let rgb = pixels.data().as_chunks::<3>().0;
                if reads_colors {
                    out.extend(rgb.iter().map(color));
                } else if let Some([red, green, blue]) = rgb.iter().find(|[r, g, b]| r != g || g != b) {
                    return Err(Error::decode(format!(
                        "a pixel has the color ({red}, {green}, {blue}): {MASK_VALUES_HINT}"
                    )));
                } else {
                    out.extend(rgb.iter().map(|pixel| u32::from(pixel[0])));
                }
            }
            Content::Indices(decoder) => {
                let mut indices = vec![0; area];
                // The decoder may panic on damaged data.
                guarded(|| decoder.read_indices(&mut indices).map_err(Error::decode))?;
                out.extend(indices.into_iter().map(u32::from));
            }
            Content::Values(stored) => {
                let mut values = Vec::new();
                guarded(|| stored.read(&mut values))?;
                if let Some(value) =
                    values.iter().find(|value| value.fract() != 0.0 || !(0.0..16_777_216.0).contains(*value))
                {
                    return Err(Error::decode(format!(
                        "the tiff contains the value {value}: expected integers from 0 to 16777215"
                    )));
                }
                out.extend(values.into_iter().map(|value| value as u32));
            }
        }
        if out.len() != area {
            return Err(Error::decode(format!("the data has {} pixels, but the header declares {area}", out.len())));
        }
        Ok(())
    }
}

fn is_lossy(bytes: &[u8]) -> bool {
    let mut offset = 12;
    while let Some(head) = bytes.get(offset..offset + 8) {
        match &head[..4] {
            b"VP8L" => return false,
            b"VP8 " => return true,
            b"ANMF" => offset += 8 + 16,
            _ => {
                let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
                offset = offset.saturating_add(8).saturating_add(len.next_multiple_of(2));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILE: u32 = 16_384;

    /// Encodes a gray TIFF of 16x16 pixels of 16 bits with one tile, which claims to have
    /// `channels` channels.
    fn tiled(channels: u32) -> Vec<u8> {
        let (side, bits, format) = (16, 16, 1);
        let tags = [256, 257, 258, 259, 262, 277, 322, 323, 324, 325, 339];
        let values = [side, side, bits, 1, 1, channels, TILE, TILE, 8, 4, format];
        let mut file = [&b"II*\0"[..], &8_u32.to_le_bytes(), &(tags.len() as u16).to_le_bytes()].concat();
        for (tag, value) in tags.into_iter().zip(values) {
            // Type 4 is a 32-bit number.
            let entry = [&u16::to_le_bytes(tag)[..], &[4, 0], &[1, 0, 0, 0], &u32::to_le_bytes(value)].concat();
            file.extend(entry);
        }
        file.extend([0; 4]);
        file
    }

    #[test]
    fn memory_counts_a_tile_that_is_larger_than_the_image() {
        let tile_bytes = u64::from(TILE) * u64::from(TILE) * 2;
        assert!(FloatImage::open(&tiled(1)).unwrap().memory() > tile_bytes);
        assert!(IndexedImage::open(&tiled(1), false).unwrap().memory() > tile_bytes);
    }

    #[test]
    fn more_channels_than_16_bits_can_count_are_refused() {
        for channels in [65_536, 65_537] {
            let e = IndexedImage::open(&tiled(channels), false).err().unwrap();
            let words = format!("tag 277 (number of channels) is {channels}: expected at most 65535");
            assert!(e.cause().contains(&words), "{e}");
        }
    }
}
