//! [`Recode`]: how images are recoded.

use std::cell::RefCell;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use warpfeed_sources::format;

use super::repack_jpeg;
use crate::decode::raw::npy_header;
use crate::decode::{Codecs, Pixels, Rect, Size};
use crate::error::{Error, Result, append, resize};
use crate::transform::{Plan, Resizer, shorter_to};

/// JPEG quality of images that [`Recode::MaxSide`] shrinks.
const MAX_SIDE_QUALITY: u8 = 90;

/// How [`Pack`](super::Pack) recodes the images of samples. Other fields are not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recode {
    /// Images are stored unchanged.
    KeepBytes,
    /// JPEGs are rewritten with [`repack_jpeg`] for fast crops, without changing their pixels.
    /// Images in other formats are stored unchanged. This is the default.
    #[default]
    Lossless,
    /// Every image is decoded, rotated according to EXIF, and encoded as a JPEG with 4:2:0 chroma
    /// subsampling, which OpenCV and FFCV use as well. Images whose longer side exceeds `max_side`
    /// are shrunk. This option is lossy.
    Quality {
        /// Quality as defined by libjpeg, from 1 to 100.
        quality: u8,
        /// Maximum length of the longer side in pixels, or `None` to keep the size.
        max_side: Option<u32>,
    },
    /// Images whose longer side exceeds this number of pixels are shrunk and encoded, as with
    /// [`Quality`](Recode::Quality) and a quality of 90. All other images are stored as with
    /// [`Lossless`](Recode::Lossless).
    MaxSide(u32),
    /// Every image is decoded, rotated according to EXIF, resized, and stored as an array (see
    /// [`decode::raw`](crate::decode::raw)). Loading such images requires no decoding, but the
    /// dataset becomes about ten times as large.
    Raw(RawSize),
}

/// Size of the arrays of [`Recode::Raw`]. Images are resized with an antialiased bilinear filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawSize {
    /// The shorter side is resized to this number of pixels without changing the aspect ratio, like
    /// in torchvision's `Resize`. Small images are enlarged.
    Shorter(u32),
    /// The image is resized to exactly this size. The aspect ratio may change.
    Exact(Size),
}

/// The operation that was applied to an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    Kept,
    Repacked,
    Encoded,
    Raw,
}

/// An encoded image, preceded by the codecs that can open it.
type Image<'a> = (&'a Codecs, &'a [u8]);

/// Buffers that a thread reuses for all images.
#[derive(Default)]
struct Scratch {
    pixels: Pixels,
    resizer: Resizer,
    resized: Vec<u8>,
    jpeg: Vec<u8>,
}

impl Recode {
    /// Returns an error if a value is out of range, or if an option of `codecs` would have no
    /// effect.
    pub(super) fn check(self, codecs: &Codecs) -> Result<()> {
        if matches!(self, Recode::KeepBytes | Recode::Lossless) {
            let (background, convert_to_u8) = codecs.conversion();
            let option = if convert_to_u8 { Some("convert_to_u8(true)") } else { background.map(|_| "background") };
            return option.map_or(Ok(()), |option| {
                Err(Error::config(format!(
                    "{option} has no effect, because no image is decoded: remove it, or recode as quality, max_side or raw"
                )))
            });
        }
        let side = |name: &str, side: u32| match side {
            0 => Err(Error::config(format!("{name} of 0 pixels: expected at least 1"))),
            _ => Ok(()),
        };
        match self {
            Recode::Quality { quality: 0 | 101.., .. } => Err(Error::config("jpeg quality: expected 1 to 100")),
            Recode::Quality { max_side, .. } => max_side.map_or(Ok(()), |max| side("max_side", max)),
            Recode::MaxSide(max) => side("max_side", max),
            Recode::Raw(RawSize::Shorter(shorter)) => side("raw arrays with a side", shorter),
            Recode::Raw(RawSize::Exact(size)) => side("raw arrays with a side", size.width.min(size.height)),
            _ => Ok(()),
        }
    }

    /// Recodes the image `bytes`, and appends the result to `out`. Returns how the image was
    /// recoded, and the new name of the field if the format has changed.
    ///
    /// # Errors
    /// If the image cannot be recoded. After an error, arbitrary bytes may have been appended to
    /// `out`.
    pub(super) fn apply(
        self,
        codecs: &Codecs,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(Treatment, Option<&'static str>)> {
        thread_local!(static SCRATCH: RefCell<Scratch> = RefCell::default());
        let keep = |out: &mut Vec<u8>| append(out, bytes).map(|()| (Treatment::Kept, None));
        let lossless = |out: &mut Vec<u8>| {
            if (format::JPEG.matches)(bytes) {
                repack_jpeg(bytes, out).map(|()| (Treatment::Repacked, None))
            } else {
                keep(out)
            }
        };
        SCRATCH.with_borrow_mut(|scratch| match self {
            Recode::KeepBytes => keep(out),
            Recode::Lossless => lossless(out),
            Recode::MaxSide(max) => {
                let size = codecs.open(bytes)?.size();
                if size.width.max(size.height) <= max {
                    return lossless(out);
                }
                scratch
                    .encode((codecs, bytes), out, MAX_SIDE_QUALITY, Some(max))
                    .map(|()| (Treatment::Encoded, Some(format::JPEG.field)))
            }
            Recode::Quality { quality, max_side } => scratch
                .encode((codecs, bytes), out, quality, max_side)
                .map(|()| (Treatment::Encoded, Some(format::JPEG.field))),
            Recode::Raw(to) => {
                scratch.raw((codecs, bytes), out, to).map(|()| (Treatment::Raw, Some(format::NPY.field)))
            }
        })
    }
}

impl Scratch {
    /// Decodes an image to RGB, and resizes it to the size that `to` returns for the original size.
    /// Returns the new size and the pixels.
    fn resized(&mut self, (codecs, bytes): Image<'_>, to: impl FnOnce(Size) -> Size) -> Result<(Size, &[u8])> {
        let mut original = codecs.open(bytes)?;
        let size = original.size();
        let output = to(size);
        // Do not write images that exceed the limit of the loader, because it could not read them.
        let limit = codecs.most_pixels();
        if output.area() > limit {
            let Size { width, height } = output;
            return Err(Error::decode(format!(
                "resizing to {width}x{height} would exceed the limit of {limit} pixels"
            )));
        }
        let region = Rect::full(size);
        let plan = Plan::resized_crop(size, region, output, Rect::full(output));
        original.decode(region, &mut self.pixels)?;
        if output == size && self.pixels.size() == size {
            return Ok((size, self.pixels.data()));
        }
        resize(&mut self.resized, output.area() as usize * 3, 0);
        self.resizer.run(&self.pixels, &plan, &mut self.resized)?;
        Ok((output, &self.resized))
    }

    fn encode(&mut self, image: Image<'_>, out: &mut Vec<u8>, quality: u8, max_side: Option<u32>) -> Result<()> {
        let mut jpeg = std::mem::take(&mut self.jpeg);
        jpeg.clear();
        let (size, rgb) = self.resized(image, |size| max_side.map_or(size, |max| shrink_to(size, max)))?;
        let side = |pixels: u32| {
            u16::try_from(pixels).map_err(|_| {
                Error::decode(format!("a side of {pixels} pixels exceeds the maximum of a jpeg, which is 65535 pixels"))
            })
        };
        let (width, height) = (side(size.width)?, side(size.height)?);
        let mut encoder = Encoder::new(&mut jpeg, quality);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.encode(rgb, width, height, ColorType::Rgb).map_err(|e| Error::decode(format!("jpeg encoder: {e}")))?;
        repack_jpeg(&jpeg, out)?;
        self.jpeg = jpeg;
        Ok(())
    }

    fn raw(&mut self, image: Image<'_>, out: &mut Vec<u8>, to: RawSize) -> Result<()> {
        let (size, rgb) = self.resized(image, |size| match to {
            RawSize::Shorter(side) => shorter_to(size, side),
            RawSize::Exact(size) => size,
        })?;
        out.extend_from_slice(&npy_header(size));
        out.extend_from_slice(rgb);
        Ok(())
    }
}

/// Returns `size`, reduced so that the longer side is at most `max`. Keeps the aspect ratio, apart
/// from rounding to whole pixels.
fn shrink_to(size: Size, max: u32) -> Size {
    let longer = size.width.max(size.height);
    if longer <= max {
        return size;
    }
    let scaled = |side: u32| {
        let (side, max, longer) = (u64::from(side), u64::from(max), u64::from(longer));
        ((side * max + longer / 2) / longer).max(1) as u32
    };
    Size::new(scaled(size.width), scaled(size.height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_limited() {
        assert_eq!(shrink_to(Size::new(1000, 600), 500), Size::new(500, 300));
        assert_eq!(shrink_to(Size::new(333, 500), 400), Size::new(266, 400));
        assert_eq!(shrink_to(Size::new(500, 333), 500), Size::new(500, 333));
        assert_eq!(shrink_to(Size::new(60_000, 3), 100), Size::new(100, 1));
    }
}
