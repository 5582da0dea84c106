//! Decodes encoded bytes to pixels.
//!
//! An image is decoded in two steps. First, [`Codecs::open`] reads the header, so that the caller
//! can choose a crop. Second, [`EncodedImage::decode`] decodes at least the crop. Decoding a crop
//! may be much faster than decoding the whole image.
//!
//! # Supported formats
//!
//! | format | supported | recognized, but rejected |
//! |---|---|---|
//! | JPEG | Huffman-coded, 8 bits; baseline, extended, progressive; gray, YCbCr, RGB, CMYK, YCCK; sampling factors with integer ratios | arithmetic-coded, lossless, hierarchical, 12-bit, JPEG-LS; two components; sampling factors that do not divide the largest one |
//! | PNG | all kinds; the default image of an APNG | |
//! | GIF | the first frame, drawn on the whole canvas as in Pillow | |
//! | WebP | lossy, lossless, with alpha; the first frame of an animation | |
//! | BMP | palettes, run-length encoding; 16, 24 and 32 bits; channel masks of contiguous bits | embedded JPEG or PNG, CMYK |
//! | TIFF, BigTIFF | one page: gray, RGB and palettes of 1 to 8 bits; gray, RGB and CMYK of 8 or 16 bits; gray and RGB of 32-bit floats; strips or tiles; interleaved or planar; uncompressed, LZW, deflate, PackBits, JPEG | several pages, 12 bits, signed values, 16-bit and 64-bit floats, CIELab, YCbCr without JPEG compression, CCITT, Zstandard and other compression methods |
//! | a frame of a video | AV1 with 8, 10 or 12 bits, 4:2:0, 4:2:2, 4:4:4 or gray, with the `video` Cargo feature; H.264, HEVC and VP9 in 4:2:0 on an NVIDIA GPU, with the `nvdec` Cargo feature | other codecs |
//! | `.npy` | `\|u1` of shape (height, width, 3) in C order | any other type, shape or order |
//!
//! Gray is repeated in three channels. The alpha channel is dropped, unless [`Codecs::background`]
//! sets a color with which transparent pixels are blended. Images with 16-bit or float channels are
//! rejected, unless [`Codecs::convert_to_u8`] is set. [`field::DenseMap`](crate::field::DenseMap)
//! reads such gray and RGB images without reducing their values to 8 bits. The EXIF orientation is
//! applied. Orientations in XMP or in a text chunk are ignored.
//!
//! In all formats, an image may have at most 2^28 pixels by default. [`Codecs::max_pixels`] and
//! [`Loader::max_pixels`](crate::Loader::max_pixels) change this limit.
//!
//! CMYK and YCCK are converted as in Pillow's `convert("RGB")`. Adobe's programs store inverted
//! values in CMYK JPEGs, so the decoder inverts the values of all CMYK and YCCK JPEGs, with or
//! without Adobe's marker. ICC profiles are ignored.
//!
//! With the default options, and apart from the EXIF orientation, an undamaged image file with up
//! to 8 bits per channel decodes to the same pixels as with Pillow's `convert("RGB")`. Tests check
//! this with the BMP, GIF and TIFF files in `tests/fixtures/images`. In particular:
//! - Transparent pixels of a GIF have the palette color of their index. If the first frame is
//!   smaller than the canvas, the area around the frame has the transparent index, or 0 if there is
//!   none.
//! - Pixels that are skipped in the run-length encoding of a BMP have the palette index 0.
//! - TIFF colors that are premultiplied by alpha are divided by alpha.
//! - JPEG-compressed strips and tiles of a TIFF decode to the same pixels as with libjpeg.
//!
//! The conversions of 16-bit and float channels differ from Pillow's: for example, Pillow clips
//! 16-bit gray values and floats to 255 instead of scaling them.
//!
//! A TIFF with several pages is rejected, because it is not clear which page to read: the pages may
//! be copies, slices of a volume or unrelated images. Pages after the first that are marked as
//! thumbnails or masks do not count.
//!
//! # Truncated files
//!
//! A truncated JPEG cannot be decoded, and every crop of it gives the same error, such as
//! `jpeg ends at byte 4096 in MCU 61 of 132`. A JPEG that lacks only its last marker still contains
//! all pixels, and can be decoded.
//!
//! # Damaged files
//!
//! If libjpeg warns about damage and continues, the JPEG decoder also continues, and decodes the
//! same coefficients. Truncation, in contrast, is an error. The documentation of
//! [`warpfeed_jpeg`](warpfeed_jpeg#damaged-files) lists which damage is reported, how the pixels
//! differ from libjpeg's, and which damage is detected while decoding a crop.
//!
//! [`check()`] reads the whole file and reports damage in any part of it. `verify`, `inspect`,
//! `pack` and [strict](crate::Loader::strict) loaders run the same check. [`Pixels::damage`] and
//! [`Stats::damaged_images`](crate::Stats::damaged_images) report only damage in the decoded part.
//! Bytes that were changed into other valid data cannot be detected in formats without checksums.
//!
//! # The JPEG decoder
//!
//! JPEGs are decoded by the [`warpfeed_jpeg`] crate, which can be used without `warpfeed`. Its
//! documentation explains why the decoder is fast, and why it does not decode images at half their
//! size. To save time with large images, shrink them once with `warpfeed pack --max-side`.
//! `cargo bench --bench decode` compares the decoder with libjpeg-turbo and zune-jpeg.

mod bands;
mod cache;
mod codecs;
mod condition;
#[cfg(feature = "formats")]
mod decoder;
mod encoded;
mod float_image;
#[cfg(feature = "formats")]
mod formats;
mod frame;
mod group;
#[cfg(feature = "formats")]
mod image;
#[cfg(feature = "formats")]
mod indexed;
mod info;
mod jpegs;
mod options;
mod png;
pub mod raw;
mod scratch;
mod standard;
#[cfg(feature = "formats")]
mod tiff;
#[cfg(feature = "video")]
mod video;

#[cfg(test)]
pub(crate) use bands::BANDED_REGIONS;
pub use cache::CacheFormat;
pub(crate) use cache::{Admission, CacheLookup, DecodedCache};
pub use codecs::Codecs;
pub use condition::Condition;
pub use encoded::{Codec, EncodedImage, Job};
pub(crate) use float_image::FloatImage;
pub use frame::{AnnotationFrame, Frame, Oriented};
pub use group::decode_group;
pub(crate) use group::{MAX_GROUP, MAX_IMAGES_PER_SAMPLE, MAX_PLANNED_IMAGES};
#[cfg(feature = "formats")]
pub(crate) use indexed::IndexedImage;
pub use info::{Info, JpegInfo};
use options::Options;
pub(crate) use png::{MASK_VALUES_HINT, Pass, Png, Scratch as PngScratch};
pub use raw::RawRgb;
pub(crate) use scratch::{release_scratch, trim_scratch};
pub use standard::check;
#[cfg(test)]
pub(crate) use standard::standard;
#[cfg(feature = "video")]
pub(crate) use video::decode_planes;
pub(crate) use warpfeed_jpeg::bitstream::{Bitstream, Grid};
#[doc(inline)]
pub use warpfeed_jpeg::{Pixels, Rect, Size};

#[cfg(test)]
#[path = "../../tests/fuzz/images.rs"]
mod fuzz;
