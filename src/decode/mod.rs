//! Encoded bytes to pixels.
//!
//! 1. [`jpeg`]: the crate's own JPEG decoder, the fast path.
//! 2. `image`: every other format, through the `image` crate, brought to RGB: [`General`].
//! 3. [`raw`]: pixels that are not encoded: [`Npy`] and [`RawRgb`].
//! 4. `auto`: [`Auto`] chooses between them from the first bytes of a sample.
//! 5. `orientation`: what EXIF says of turning pictures upright, for all of them.
//! 6. `info`: what a header says, for people: [`Info`].
//! 7. `check`: whether a picture is damaged, read as a whole: [`check()`].
//! 8. `cost`: how much memory a picture takes while it is decoded.
//!
//! A decoder is asked in two steps, so that the crop can be chosen between them: [`Decode::size`]
//! reads the header alone, then [`Decode::decode`] delivers at least the region asked for, which
//! may cost much less than the whole picture.
//!
//! # What is read
//!
//! | format | read | refused, by name |
//! |---|---|---|
//! | JPEG | Huffman-coded, 8 bits; baseline, extended, progressive; grey, YCbCr, RGB, CMYK, YCCK; any whole ratio of sampling factors | arithmetic-coded, lossless, hierarchical, 12-bit, JPEG-LS; two components; sampling factors that do not divide the largest one |
//! | PNG | every kind; of an APNG the default picture | |
//! | GIF | the first frame | |
//! | WebP | lossy, lossless, with alpha | |
//! | BMP | what the `image` crate reads, which is most of it | JPEG or PNG inside, and others |
//! | TIFF | the first page: grey of 8 or 16 bits, RGB, CMYK, floats, in strips or tiles | palettes, 2, 4 and 12 bits, signed samples, CIELab, YCbCr, planes in tiles that overhang the picture, CCITT, BigTIFF |
//! | `.npy` | `\|u1` of shape (height, width, 3) | any other type or shape |
//!
//! Grey is repeated, alpha is dropped, and of 16 bits the upper 8 are kept. EXIF turns a picture
//! upright; an orientation that stands in XMP or in a text chunk alone does not.
//!
//! One limit on pixels holds for all of them: [`Auto::max_pixels`], 2^28 unless it is set, and in a
//! loader [`Loader::max_pixels`](crate::Loader::max_pixels).
//!
//! A CMYK or YCCK picture becomes the RGB of Pillow's `convert("RGB")`: its values are taken to be
//! inverted, as Adobe writes them, with or without Adobe's marker, and its ICC profile is left
//! aside.
//!
//! # A file that ends early
//!
//! is an error, whatever part of it a crop needs, and always the same one: `jpeg ends at byte 4096
//! in MCU 61 of 132`. A JPEG that lacks nothing but its last marker has all of its pixels, and
//! decodes; [`check()`] tells of it. A JPEG that is damaged inside, where libjpeg warns and goes
//! on, gives the pixels that libjpeg gives; [`check()`] tells of that too. An EOI marker in the
//! middle of the data is such damage: what was cut off and closed again cannot be told from it.
//!
//! # Why a JPEG decoder of its own
//!
//! Two thirds of a JPEG's cost is Huffman decoding, which no library's region or scaled decoding
//! avoids, and which libraries do one symbol after another. [`jpeg`] decodes the restart segments
//! of a packed file, or several plain files, side by side, two symbols at a time, and of a packed
//! file only the segments that the crop touches. Its pixels are libjpeg-turbo's, and it needs
//! neither a C library nor an assembler to build. `cargo bench --bench decode` compares it with
//! libjpeg-turbo and with the `image` crate, which serves the other formats.
//!
//! # Why it does not decode at 1/2
//!
//! A crop of 224 pixels is taken from a box at least twice as large in both directions for three
//! photographs of ImageNet in a hundred. These boxes have 16 % of the pixels, so that leaving out
//! three quarters of their samples, but none of their Huffman codes, would save about one twentieth
//! of the decoding, and would change pixels for everyone. Sets of much larger pictures gain more
//! from packing them smaller once (`warpfeed pack --max-side`).

mod auto;
mod check;
mod cost;
mod image;
mod info;
pub mod jpeg;
mod orientation;
mod pixels;
pub mod raw;

pub use auto::Auto;
pub use check::{Condition, check};
pub use image::General;
pub(crate) use info::is_plain_jpeg;
pub use info::{Info, JpegInfo};
pub use pixels::{Pixels, Rect, Size};
pub use raw::{Npy, RawRgb};

use std::time::Instant;

use crate::error::{Error, Result};

/// Most pixels that a picture may claim to have, unless a decoder is told otherwise: 16,384 by
/// 16,384.
const MAX_PIXELS: u64 = 1 << 28;

/// Whether the `size` that a header of `format` claims is one, and within `limit`.
fn check_size(format: &str, size: Size, limit: u64) -> Result<()> {
    let (Size { width, height }, area) = (size, size.area());
    if area == 0 {
        return Err(Error::decode(format!("{format} header claims {width}x{height} pixels")));
    }
    if area > limit {
        return Err(Error::decode(format!(
            "{format} header claims {width}x{height} = {area} pixels, the limit is {limit}"
        )));
    }
    Ok(())
}

/// A decoder: bytes of one sample's image field to RGB pixels.
///
/// Called from many worker threads at once; scratch belongs in a `thread_local!` or in `out`.
pub trait Decode: Send + Sync {
    /// The size the picture has when decoded in full, upright (after EXIF orientation), from its
    /// header.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the byte at which the header stops
    /// making sense.
    fn size(&self, bytes: &[u8]) -> Result<Size>;

    /// Decodes at least `want.region` into `out`, which says with [`Pixels::origin`] and
    /// [`Pixels::reduction`] what it holds.
    ///
    /// Inside the region the pixels are those of a full decode; how much is decoded around it is
    /// the decoder's affair.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) naming the place in the bytes. `out` then
    /// holds nothing of use.
    fn decode(&self, bytes: &[u8], want: Want, out: &mut Pixels) -> Result<()>;

    /// Bytes of memory that decoding `want` of a picture of `size` takes, pixels and scratch
    /// together. An estimate, from the header alone.
    ///
    /// A loader keeps the pictures that are in hand at once within
    /// [`Batches::plan`](crate::Batches::plan) by it. Of pictures of 350,000 pixels or fewer it
    /// asks only where memory is scarce. By default it is all pixels of the picture, three bytes
    /// each.
    fn memory(&self, bytes: &[u8], size: Size, want: Want) -> u64 {
        let _ = (bytes, want);
        size.area().saturating_mul(3)
    }

    /// Decodes several samples. A decoder that gains from company (independent entropy streams side
    /// by side) overrides this; each job keeps its own result, and a bad neighbour changes nothing
    /// for the others.
    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        for job in jobs {
            job.run(|bytes, want, out| self.decode(bytes, want, out));
        }
    }
}

/// Limits to `limit` bytes what the decoders of the calling thread keep of the pictures before.
pub(crate) fn keep(limit: usize) {
    image::keep(limit - jpeg::keep(limit));
}

/// Gives back what the decoders of the calling thread keep from one picture to the next.
pub(crate) fn release() {
    jpeg::release();
    image::release();
}

/// What is wanted of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The part that must be delivered, in pixels of the full upright picture; inside
    /// [`Decode::size`] and not empty.
    pub region: Rect,
    /// The size the region will be resized to. A decoder may deliver the picture at 1/2, 1/4 or 1/8
    /// as long as the region stays at least this large. [`Want::exact`] rules that out.
    pub target: Size,
}

impl Want {
    /// `region` at full resolution.
    pub fn exact(region: Rect) -> Self {
        Want { region, target: region.size() }
    }
}

/// One sample of a [`Decode::decode_group`] call.
pub struct Job<'a> {
    /// The encoded image.
    pub bytes: &'a [u8],
    /// What is wanted of it.
    pub want: Want,
    /// Where it goes.
    pub out: &'a mut Pixels,
    /// How it went.
    pub result: Result<()>,
}

impl std::fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Job { bytes, want, result, .. } = self;
        f.debug_struct("Job")
            .field("bytes", &bytes.len())
            .field("want", want)
            .field("result", result)
            .finish_non_exhaustive()
    }
}

impl Job<'_> {
    /// Decodes this one alone, and notes how long that took.
    fn run(&mut self, decode: impl FnOnce(&[u8], Want, &mut Pixels) -> Result<()>) {
        let start = Instant::now();
        self.result = decode(self.bytes, self.want, self.out);
        self.out.time = Some(start.elapsed());
    }
}

#[cfg(test)]
#[path = "../../tests/fuzz/images.rs"]
mod fuzz;
