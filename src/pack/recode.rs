//! [`Recode`] selects how images are recoded.

use std::cell::RefCell;
use std::sync::LazyLock;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use warpfeed_sources::format::{self, Format};

use super::repack_jpeg;
use crate::decode::raw::npy_header;
use crate::decode::{Codecs, Pixels, Rect, Size};
use crate::error::{Error, Result, append, resize};
use crate::transform::{Plan, Resizer, resized_by_shorter_side};

/// Codecs that decode the encoded JPEGs, so that their pixels can be compared. Custom codecs are
/// excluded, because they may accept arbitrary bytes.
static JPEGS: LazyLock<Codecs> = LazyLock::new(Codecs::new);

const MAX_SIDE_QUALITY: u8 = 90;

/// Selects how [`Pack`](super::Pack) recodes the main image of each sample, and the images in the
/// fields of [`Pack::images`](super::Pack::images). If a field contains several
/// [`Frames`](crate::source::Frames), each frame is recoded. Other fields are not recoded.
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
    /// subsampling, as in OpenCV and FFCV. Images with a side longer than `max_side` are shrunk.
    /// This option is lossy.
    Quality {
        /// Quality as defined by libjpeg, from 1 to 100.
        quality: u8,
        /// Maximum length of the longer side in pixels, or `None` to keep the size.
        max_side: Option<u32>,
    },
    /// Images with a side longer than this number of pixels are shrunk and encoded, as with
    /// [`Quality`](Recode::Quality) and a quality of 90. All other images are stored as with
    /// [`Lossless`](Recode::Lossless).
    MaxSide(u32),
    /// Every image is decoded, rotated according to EXIF, resized, and stored as an array (see
    /// [`decode::raw`](crate::decode::raw)). Loading such images requires no decoding, but an array
    /// takes three bytes per pixel.
    Raw(RawSize),
}

/// Size of the arrays of [`Recode::Raw`]. Images are resized with an antialiased bilinear filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawSize {
    /// The shorter side is resized to this number of pixels without changing the aspect ratio, like
    /// in torchvision's `Resize`. Smaller images are enlarged.
    Shorter(u32),
    /// The image is resized to exactly this size. The aspect ratio may change.
    Exact(Size),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecodeOutcome {
    Kept,
    Repacked,
    Encoded(Psnr),
    Raw,
}

impl RecodeOutcome {
    /// Returns the format in which the image was encoded, or `None` if the image has kept its
    /// format.
    pub(super) fn format(self) -> Option<&'static Format> {
        match self {
            RecodeOutcome::Kept | RecodeOutcome::Repacked => None,
            RecodeOutcome::Encoded(_) => Some(&format::JPEG),
            RecodeOutcome::Raw => Some(&format::NPY),
        }
    }
}

/// The peak signal-to-noise ratio of an encoded image, compared with the pixels before encoding, in
/// hundredths of dB. Identical pixels count as [`Psnr::MAX`].
///
/// PSNR = 10 log10(255² / MSE), where MSE is the mean of the squared differences of all RGB values.
/// The ratio is an integer, so that the mean of many images does not depend on the order of
/// additions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Psnr(pub(super) u32);

impl Psnr {
    /// 100 dB, the value for identical pixels.
    const MAX: f64 = 10_000.0;

    fn between(original: &[u8], decoded: &[u8]) -> Self {
        let square = |(&a, &b): (&u8, &u8)| u32::from(a.abs_diff(b)).pow(2);
        // A sum of 256 squares fits in 32 bits, and such sums vectorize better than 64-bit sums.
        let chunks = original.chunks(256).zip(decoded.chunks(256));
        let sum: u64 =
            chunks.map(|(original, decoded)| u64::from(original.iter().zip(decoded).map(square).sum::<u32>())).sum();
        if sum == 0 {
            return Psnr(Self::MAX as u32);
        }
        let decibels = 10.0 * (255.0_f64.powi(2) * original.len() as f64 / sum as f64).log10();
        Psnr((100.0 * decibels).round().clamp(0.0, Self::MAX) as u32)
    }
}

type Image<'a> = (&'a Codecs, &'a [u8]);

#[derive(Default)]
struct Scratch {
    pixels: Pixels,
    resizer: Resizer,
    resized: Vec<u8>,
    jpeg: Vec<u8>,
    encoded: Pixels,
}

impl Recode {
    /// Fails if a value is out of range, or if an option of `codecs` has no effect.
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
        let check_side = |name: &str, side: u32| match side {
            0 => Err(Error::config(format!("{name} of 0 pixels: expected at least 1"))),
            _ => Ok(()),
        };
        match self {
            Recode::Quality { quality: quality @ (0 | 101..), .. } => {
                Err(Error::config(format!("jpeg quality {quality}: expected 1 to 100")))
            }
            Recode::Quality { max_side, .. } => max_side.map_or(Ok(()), |max| check_side("max_side", max)),
            Recode::MaxSide(max) => check_side("max_side", max),
            Recode::Raw(RawSize::Shorter(shorter)) => check_side("raw arrays with a side", shorter),
            Recode::Raw(RawSize::Exact(size)) => check_side("raw arrays with a side", size.width.min(size.height)),
            _ => Ok(()),
        }
    }

    /// Recodes an image, and appends the result to `out`. After an error, arbitrary bytes may have
    /// been appended.
    pub(super) fn apply(self, codecs: &Codecs, bytes: &[u8], out: &mut Vec<u8>) -> Result<RecodeOutcome> {
        thread_local!(static SCRATCH: RefCell<Scratch> = RefCell::default());
        let keep = |out: &mut Vec<u8>| append(out, bytes).map(|()| RecodeOutcome::Kept);
        let lossless = |out: &mut Vec<u8>| {
            if (format::JPEG.matches)(bytes) {
                repack_jpeg(bytes, out).map(|()| RecodeOutcome::Repacked)
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
                scratch.write_jpeg((codecs, bytes), out, MAX_SIDE_QUALITY, Some(max))
            }
            Recode::Quality { quality, max_side } => scratch.write_jpeg((codecs, bytes), out, quality, max_side),
            Recode::Raw(size) => scratch.write_array((codecs, bytes), out, size),
        })
    }
}

impl Scratch {
    /// Decodes and resizes an image. `output_size` returns the output size for the original size.
    /// Returns the output size, and the RGB pixels.
    fn decode_resized(
        &mut self,
        (codecs, bytes): Image<'_>,
        output_size: impl FnOnce(Size) -> Size,
    ) -> Result<(Size, &[u8])> {
        let mut original = codecs.open(bytes)?;
        let size = original.size();
        let output = output_size(size);
        // An image above this limit could be written but not read again.
        let max_pixels = codecs.pixel_limit();
        if output.area() > max_pixels {
            let Size { width, height } = output;
            return Err(Error::decode(format!(
                "resizing to {width}x{height} would exceed the limit of {max_pixels} pixels"
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

    fn write_jpeg(
        &mut self,
        image: Image<'_>,
        out: &mut Vec<u8>,
        quality: u8,
        max_side: Option<u32>,
    ) -> Result<RecodeOutcome> {
        let (mut jpeg, mut jpeg_pixels) = (std::mem::take(&mut self.jpeg), std::mem::take(&mut self.encoded));
        jpeg.clear();
        let (size, rgb) = self.decode_resized(image, |size| max_side.map_or(size, |max| shrink_to(size, max)))?;
        let jpeg_side = |pixels: u32| {
            u16::try_from(pixels).map_err(|_| {
                Error::decode(format!("a side of {pixels} pixels exceeds the maximum of a jpeg, which is 65535 pixels"))
            })
        };
        let (width, height) = (jpeg_side(size.width)?, jpeg_side(size.height)?);
        let mut encoder = Encoder::new(&mut jpeg, quality);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.encode(rgb, width, height, ColorType::Rgb).map_err(|e| Error::decode(format!("jpeg encoder: {e}")))?;
        JPEGS.open(&jpeg)?.decode(Rect::full(size), &mut jpeg_pixels)?;
        let psnr = Psnr::between(rgb, jpeg_pixels.data());
        repack_jpeg(&jpeg, out)?;
        (self.jpeg, self.encoded) = (jpeg, jpeg_pixels);
        Ok(RecodeOutcome::Encoded(psnr))
    }

    fn write_array(&mut self, image: Image<'_>, out: &mut Vec<u8>, raw_size: RawSize) -> Result<RecodeOutcome> {
        let (size, rgb) = self.decode_resized(image, |size| match raw_size {
            RawSize::Shorter(side) => resized_by_shorter_side(size, side),
            RawSize::Exact(size) => size,
        })?;
        out.extend_from_slice(&npy_header(size));
        out.extend_from_slice(rgb);
        Ok(RecodeOutcome::Raw)
    }
}

/// Reduces the longer side to `max`. Keeps the aspect ratio, apart from rounding to whole pixels.
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
    fn psnr_follows_its_definition() {
        assert_eq!(Psnr::between(&[7; 999], &[7; 999]), Psnr(10_000));
        // A mean squared error of 1 corresponds to 48.13 dB, and the greatest possible error to 0
        // dB.
        assert_eq!(Psnr::between(&[7; 999], &[8; 999]), Psnr(4_813));
        assert_eq!(Psnr::between(&[0; 70_000], &[255; 70_000]), Psnr(0));
    }

    #[test]
    fn shrinking_limits_the_longer_side() {
        assert_eq!(shrink_to(Size::new(1000, 600), 500), Size::new(500, 300));
        assert_eq!(shrink_to(Size::new(333, 500), 400), Size::new(266, 400));
        assert_eq!(shrink_to(Size::new(500, 333), 500), Size::new(500, 333));
        assert_eq!(shrink_to(Size::new(60_000, 3), 100), Size::new(100, 1));
    }
}
