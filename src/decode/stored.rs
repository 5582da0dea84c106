//! The values of a PNG or TIFF as the file stores them, of any number of channels, as `f32`: the
//! content of maps. Integers of up to 16 bits and floats of 32 bits are exact. The codecs convert
//! pictures to RGB of 8 bits instead.

use std::io::Cursor;

use super::{Oriented, Png, Size};
use crate::error::{Error, Result};
use crate::format;

/// A PNG or TIFF whose header has been read.
pub(crate) struct Stored<'a> {
    file: File<'a>,
    size: Size,
    channels: usize,
    /// Value of the EXIF orientation, 1 to 8.
    exif: u8,
    /// Bytes that the decoder needs for all pixels.
    bytes: u64,
}

enum File<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    #[cfg(feature = "formats")]
    Tiff(Box<tiff::decoder::Decoder<Cursor<&'a [u8]>>>),
}

impl<'a> Stored<'a> {
    /// Whether `bytes` start like a PNG or a TIFF.
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        Png::matches(bytes) || (format::TIFF.matches)(bytes)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// If the header is damaged, or the values are not such numbers.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self> {
        if Png::matches(bytes) {
            return Self::png(bytes);
        }
        #[cfg(feature = "formats")]
        return Self::tiff(bytes);
        #[cfg(not(feature = "formats"))]
        Err(Error::decode("this build of warpfeed lacks the Cargo feature \"formats\" that decodes a tiff"))
    }

    /// Size of the picture as it is stored.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// The upright picture, if EXIF turns this one.
    pub(crate) fn turned(&self) -> Option<Oriented> {
        (self.exif != 1).then(|| {
            // Transposing twice changes nothing.
            let Size { width, height } = self.size;
            let upright = if self.exif > 4 { Size::new(height, width) } else { self.size };
            Oriented::new(upright, self.exif)
        })
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// Bytes of all values as the file's decoder returns them.
    #[cfg(feature = "formats")]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that [`read`](Stored::read) takes, with the values.
    pub(crate) fn memory(&self) -> u64 {
        let values = self.size.area().saturating_mul(self.channels as u64);
        values.saturating_mul(4).saturating_add(self.bytes)
    }

    /// Bytes of memory that [`check`](Stored::check) takes: those of the largest strip or tile.
    #[cfg(feature = "formats")]
    pub(crate) fn check_memory(&mut self) -> u64 {
        match &mut self.file {
            File::Png(_) => self.bytes,
            // No strip or tile is larger than the first one.
            File::Tiff(reader) => {
                reader.image_chunk_buffer_layout(0).map_or(self.bytes, |part| (part.len as u64).min(self.bytes))
            }
        }
    }

    /// Decodes all values and keeps none of them. A TIFF is decoded one strip or tile at a time.
    ///
    /// # Errors
    /// If the data is damaged.
    #[cfg(feature = "formats")]
    pub(crate) fn check(self) -> Result<()> {
        match self.file {
            File::Png(_) => self.read(&mut Vec::new()),
            // Some damaged files make the decoder panic.
            File::Tiff(reader) => crate::error::guarded(|| tiff_check(*reader).map_err(tiff_error)),
        }
    }

    /// Replaces the content of `to` by all values, pixel by pixel.
    pub(crate) fn read(self, to: &mut Vec<f32>) -> Result<()> {
        to.clear();
        // `memory` counts this much.
        to.reserve_exact(self.size.area() as usize * self.channels);
        match self.file {
            File::Png(mut reader) => {
                let mut raw = vec![0; self.bytes as usize];
                reader.next_frame(&mut raw).map_err(png_error)?;
                reader.finish().map_err(png_error)?;
                match reader.info().bit_depth {
                    png::BitDepth::Sixteen => {
                        to.extend(raw.as_chunks().0.iter().map(|&value| f32::from(u16::from_be_bytes(value))));
                    }
                    _ => to.extend(raw.into_iter().map(f32::from)),
                }
                Ok(())
            }
            #[cfg(feature = "formats")]
            File::Tiff(reader) => tiff_values(*reader, self.size, self.channels, to),
        }
    }

    fn png(bytes: &'a [u8]) -> Result<Self> {
        let reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(png_error)?;
        let info = reader.info();
        if info.color_type == png::ColorType::Indexed || (info.bit_depth as u8) < 8 {
            let kind = format!("{:?} of {} bits", info.color_type, info.bit_depth as u8);
            return Err(Error::decode(format!("png of {kind}: 8 and 16 bits without a palette are read")));
        }
        let (width, height) = info.size();
        // JPEGs have the same data behind this prefix.
        let exif = info.exif_metadata.as_deref().map(|exif| [b"Exif\0\0", exif].concat());
        let exif = exif.and_then(|exif| super::orientation::exif_orientation(&exif)).unwrap_or(1);
        let (size, channels) = (Size::new(width, height), info.color_type.samples());
        let bytes = size.area().saturating_mul(channels as u64 * if info.bit_depth as u8 == 16 { 2 } else { 1 });
        Ok(Stored { file: File::Png(Box::new(reader)), size, channels, exif: known(exif), bytes })
    }

    #[cfg(feature = "formats")]
    fn tiff(bytes: &'a [u8]) -> Result<Self> {
        use tiff::ColorType;
        use tiff::decoder::{Decoder, Limits};
        use tiff::tags::Tag;

        // The caller compares size and channels before the pixels are decoded, and only other data
        // needs a limit.
        let reader = Decoder::new(Cursor::new(bytes)).map_err(tiff_error)?;
        let mut limits = Limits::default();
        (limits.decoding_buffer_size, limits.intermediate_buffer_size) = (usize::MAX, 1 << 31);
        let mut reader = reader.with_limits(limits);
        let (width, height) = reader.dimensions().map_err(tiff_error)?;
        let (channels, bits) = match reader.colortype().map_err(tiff_error)? {
            ColorType::Gray(bits) => (1, bits),
            ColorType::GrayA(bits) => (2, bits),
            ColorType::RGB(bits) => (3, bits),
            ColorType::RGBA(bits) => (4, bits),
            ColorType::Multiband { bit_depth, num_samples } => (usize::from(num_samples), bit_depth),
            other => {
                return Err(Error::decode(format!("tiff of {other:?}: grey, RGB, alpha and further bands are read")));
            }
        };
        if !matches!(bits, 8 | 16 | 32 | 64) {
            return Err(Error::decode(format!("tiff of {bits} bits: 8, 16, 32 and 64 are read")));
        }
        let exif = reader.find_tag_unsigned::<u8>(Tag::Orientation).map_err(tiff_error)?.unwrap_or(1);
        let size = Size::new(width, height);
        let bytes = size.area().saturating_mul(channels as u64 * u64::from(bits) / 8);
        Ok(Stored { file: File::Tiff(Box::new(reader)), size, channels, exif: known(exif), bytes })
    }
}

/// Other values than 1 to 8 mean upright.
fn known(exif: u8) -> u8 {
    if (1..=8).contains(&exif) { exif } else { 1 }
}

#[cfg(feature = "formats")]
fn tiff_check(mut reader: tiff::decoder::Decoder<Cursor<&[u8]>>) -> tiff::TiffResult<()> {
    let parts = match reader.get_chunk_type() {
        tiff::decoder::ChunkType::Strip => reader.strip_count()?,
        tiff::decoder::ChunkType::Tile => reader.tile_count()?,
    };
    let mut values = Vec::new();
    for part in 0..parts {
        values.resize(reader.image_chunk_buffer_layout(part)?.len, 0);
        reader.read_chunk_bytes(part, &mut values)?;
    }
    Ok(())
}

#[cfg(feature = "formats")]
fn tiff_values(
    mut reader: tiff::decoder::Decoder<Cursor<&[u8]>>,
    size: Size,
    channels: usize,
    to: &mut Vec<f32>,
) -> Result<()> {
    use tiff::decoder::DecodingResult as Values;

    let mut values = Values::U8(Vec::new());
    // Some damaged files make the decoder panic.
    let read = crate::error::guarded(|| reader.read_image_to_buffer(&mut values).map_err(tiff_error));
    let planes = read?.planes;
    match values {
        Values::U8(values) => to.extend(values.into_iter().map(f32::from)),
        Values::U16(values) => to.extend(values.into_iter().map(f32::from)),
        Values::U32(values) => to.extend(values.into_iter().map(|value| value as f32)),
        Values::U64(values) => to.extend(values.into_iter().map(|value| value as f32)),
        Values::I8(values) => to.extend(values.into_iter().map(f32::from)),
        Values::I16(values) => to.extend(values.into_iter().map(f32::from)),
        Values::I32(values) => to.extend(values.into_iter().map(|value| value as f32)),
        Values::I64(values) => to.extend(values.into_iter().map(|value| value as f32)),
        Values::F16(values) => to.extend(values.into_iter().map(f32::from)),
        Values::F32(values) => to.extend(values),
        Values::F64(values) => to.extend(values.into_iter().map(|value| value as f32)),
    }
    let (pixels, found) = (size.area() as usize, to.len());
    if found != pixels * channels {
        let Size { width, height } = size;
        return Err(Error::decode(format!("tiff of {width}x{height} and {channels} channels has {found} values")));
    }
    if planes > 1 {
        let planar = std::mem::take(to);
        to.extend((0..pixels).flat_map(|pixel| planar[pixel..].iter().step_by(pixels)));
    }
    Ok(())
}

fn png_error(e: png::DecodingError) -> Error {
    Error::decode(format!("png: {e}"))
}

#[cfg(feature = "formats")]
fn tiff_error(e: tiff::TiffError) -> Error {
    Error::decode(format!("tiff: {e}"))
}
