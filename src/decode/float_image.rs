//! [`FloatImage`]: reads a PNG or TIFF as `f32`, with any number of channels, for dense maps.
//!
//! Values of up to 16 bits are converted exactly, and 32-bit floats are copied. Integers of 32 or
//! 64 bits and floats of 64 bits are rounded.

use std::io::Cursor;

use warpfeed_jpeg::Orientation;
use warpfeed_sources::format;

#[cfg(feature = "formats")]
use super::tiff::{Photometric, SampleFormat, Tiff};
use super::{Oriented, Png, Size};
use crate::error::{Error, Result};

pub(crate) struct FloatImage<'a> {
    file: FloatFile<'a>,
    size: Size,
    channels: usize,
    exif: u8,
    stored_bytes: u64,
}

enum FloatFile<'a> {
    Png(Box<png::Reader<Cursor<&'a [u8]>>>),
    #[cfg(feature = "formats")]
    Tiff(Box<Tiff<'a>>),
}

impl<'a> FloatImage<'a> {
    pub(crate) fn matches(bytes: &[u8]) -> bool {
        Png::matches(bytes) || (format::TIFF.matches)(bytes)
    }

    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self> {
        if Png::matches(bytes) {
            return Self::open_png(bytes);
        }
        #[cfg(feature = "formats")]
        return Self::open_tiff(bytes);
        #[cfg(not(feature = "formats"))]
        Err(Error::decode("this build of warpfeed lacks the Cargo feature \"formats\" that decodes a tiff"))
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Returns the upright size and the EXIF orientation, or `None` if the image is stored upright.
    pub(crate) fn orientation(&self) -> Option<Oriented> {
        (self.exif != 1).then(|| {
            // Orientations above 4 swap width and height.
            let Size { width, height } = self.size;
            let upright = if self.exif > 4 { Size::new(height, width) } else { self.size };
            Oriented::new(upright, self.exif)
        })
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    #[cfg(feature = "formats")]
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Estimates how many bytes [`read`](Self::read) allocates: for the values as `f32`, and for
    /// the stored values that are in memory at the same time.
    pub(crate) fn memory(&self) -> u64 {
        let values = self.size.area().saturating_mul(self.channels as u64);
        values.saturating_mul(4).saturating_add(self.check_memory())
    }

    /// Returns the size of the stored values that are in memory at the same time, in bytes: all
    /// values of a PNG, or the largest strip or tile of a TIFF. A strip or tile may be larger than
    /// the image.
    pub(crate) fn check_memory(&self) -> u64 {
        match &self.file {
            FloatFile::Png(_) => self.stored_bytes,
            #[cfg(feature = "formats")]
            FloatFile::Tiff(tiff) => tiff.max_chunk_bytes(),
        }
    }

    /// Decodes all values to detect damage. Only one strip or tile of a TIFF is in memory at a
    /// time.
    #[cfg(feature = "formats")]
    pub(crate) fn check(self) -> Result<()> {
        match self.file {
            FloatFile::Png(_) => self.read(&mut Vec::new()),
            FloatFile::Tiff(tiff) => tiff.for_each_chunk(|_, _| {}).map_err(|e| tiff_error(&e)),
        }
    }

    pub(crate) fn read(self, out: &mut Vec<f32>) -> Result<()> {
        out.clear();
        // Reserve exactly this size, because `memory` counts no spare capacity.
        out.reserve_exact(self.size.area() as usize * self.channels);
        match self.file {
            FloatFile::Png(mut reader) => {
                let mut raw = vec![0; self.stored_bytes as usize];
                reader.next_frame(&mut raw).map_err(png_error)?;
                reader.finish().map_err(png_error)?;
                match reader.info().bit_depth {
                    png::BitDepth::Sixteen => {
                        out.extend(raw.as_chunks().0.iter().map(|&value| f32::from(u16::from_be_bytes(value))));
                    }
                    _ => out.extend(raw.into_iter().map(f32::from)),
                }
                Ok(())
            }
            #[cfg(feature = "formats")]
            FloatFile::Tiff(tiff) => read_tiff_values(&tiff, out).map_err(|e| tiff_error(&e)),
        }
    }

    fn open_png(bytes: &'a [u8]) -> Result<Self> {
        let reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(png_error)?;
        let info = reader.info();
        if info.color_type == png::ColorType::Indexed || (info.bit_depth as u8) < 8 {
            let kind = format!("{:?} values of {} bits", info.color_type, info.bit_depth as u8);
            return Err(Error::decode(format!("the png has {kind}: expected 8 or 16 bits, and no palette")));
        }
        let (width, height) = info.size();
        let exif = info.exif_metadata.as_deref().and_then(Orientation::tag_in).unwrap_or(1);
        let (size, channels) = (Size::new(width, height), info.color_type.samples());
        let stored_bytes = size.area().saturating_mul(channels as u64 * if info.bit_depth as u8 == 16 { 2 } else { 1 });
        Ok(FloatImage { file: FloatFile::Png(Box::new(reader)), size, channels, exif: or_upright(exif), stored_bytes })
    }

    #[cfg(feature = "formats")]
    fn open_tiff(bytes: &'a [u8]) -> Result<Self> {
        let tiff = Tiff::open(bytes).map_err(|e| tiff_error(&e))?;
        if !matches!(tiff.photometric, Photometric::Gray | Photometric::Inverted | Photometric::Rgb) {
            let kind = tiff.description();
            return Err(Error::decode(format!(
                "the tiff has {kind}: expected gray or RGB, with any number of additional channels"
            )));
        }
        if !matches!(tiff.bits, 8 | 16 | 32 | 64) || tiff.sample_format == SampleFormat::Float && tiff.bits == 8 {
            let kind = tiff.description();
            return Err(Error::decode(format!(
                "the tiff has {kind}: expected integers of 8, 16, 32 or 64 bits, or floats of 16, 32 or 64 bits"
            )));
        }
        let (size, channels, exif, stored_bytes) = (tiff.size, tiff.channels, tiff.orientation, tiff.pixel_bytes());
        Ok(FloatImage { file: FloatFile::Tiff(Box::new(tiff)), size, channels, exif: or_upright(exif), stored_bytes })
    }
}

fn or_upright(exif: u8) -> u8 {
    if (1..=8).contains(&exif) { exif } else { 1 }
}

/// Reads the values of a TIFF. If the value 0 means white, unsigned integers are subtracted from
/// their maximum, and floats from 1. Signed integers are then an error.
#[cfg(feature = "formats")]
fn read_tiff_values(tiff: &Tiff<'_>, out: &mut Vec<f32>) -> std::result::Result<(), String> {
    let is_inverted = tiff.photometric == Photometric::Inverted;
    match (tiff.sample_format, tiff.bits) {
        (SampleFormat::Unsigned, 8) => {
            read_tiff_floats(tiff, out, |[b]: [u8; 1]| f32::from(if is_inverted { !b } else { b }))
        }
        (SampleFormat::Unsigned, 16) => read_tiff_floats(tiff, out, |b| {
            let value = u16::from_ne_bytes(b);
            f32::from(if is_inverted { !value } else { value })
        }),
        (SampleFormat::Unsigned, 32) => read_tiff_floats(tiff, out, |b| {
            let value = u32::from_ne_bytes(b);
            (if is_inverted { !value } else { value }) as f32
        }),
        (SampleFormat::Unsigned, _) => read_tiff_floats(tiff, out, |b| {
            let value = u64::from_ne_bytes(b);
            (if is_inverted { !value } else { value }) as f32
        }),
        (SampleFormat::Signed, _) if is_inverted => {
            Err(format!("{} with 0 as white are not supported", tiff.description()))
        }
        (SampleFormat::Signed, 8) => read_tiff_floats(tiff, out, |b| f32::from(i8::from_ne_bytes(b))),
        (SampleFormat::Signed, 16) => read_tiff_floats(tiff, out, |b| f32::from(i16::from_ne_bytes(b))),
        (SampleFormat::Signed, 32) => read_tiff_floats(tiff, out, |b| i32::from_ne_bytes(b) as f32),
        (SampleFormat::Signed, _) => read_tiff_floats(tiff, out, |b| i64::from_ne_bytes(b) as f32),
        (SampleFormat::Float, bits) => {
            match bits {
                16 => read_tiff_floats(tiff, out, |b| f32::from(half::f16::from_ne_bytes(b)))?,
                32 => read_tiff_floats(tiff, out, f32::from_ne_bytes)?,
                _ => read_tiff_floats(tiff, out, |b| f64::from_ne_bytes(b) as f32)?,
            }
            if is_inverted {
                out.iter_mut().for_each(|value| *value = 1.0 - *value);
            }
            Ok(())
        }
    }
}

#[cfg(feature = "formats")]
fn read_tiff_floats<const N: usize>(
    tiff: &Tiff<'_>,
    out: &mut Vec<f32>,
    to_float: impl Fn([u8; N]) -> f32,
) -> std::result::Result<(), String> {
    let (channels, width) = (tiff.channels, tiff.size.width as usize);
    crate::error::resize(out, tiff.size.area() as usize * channels, 0.0);
    tiff.for_each_chunk(|chunk, values| {
        for (row, from) in values.chunks_exact(chunk.stride).take(chunk.height).enumerate() {
            let first = ((chunk.y + row) * width + chunk.x) * channels;
            let pixels = out[first..first + chunk.width * channels].chunks_exact_mut(channels);
            for (to, from) in pixels.zip(from.chunks_exact(chunk.channels * N)) {
                let out = &mut to[chunk.first_channel..chunk.first_channel + chunk.channels];
                out.iter_mut().zip(from.as_chunks::<N>().0).for_each(|(to, &value)| *to = to_float(value));
            }
        }
    })
}

fn png_error(e: png::DecodingError) -> Error {
    Error::decode(format!("png: {e}"))
}

#[cfg(feature = "formats")]
fn tiff_error(e: &str) -> Error {
    Error::decode(format!("tiff: {e}"))
}
