//! Decodes encoded bytes to pixels.
//!
//! 1. [`Pixels`]: a decoded image; [`Rect`] and [`Size`].
//! 2. [`Oriented`] and [`Frame`]: transform annotations together with an image that has an EXIF
//!    orientation.
//! 3. [`Info`]: information from a header; [`Condition`]: whether an image is valid or damaged.
//! 4. [`Codec`]: decodes one format; implement it for a custom format. [`EncodedImage`]: an opened
//!    image, with its header, size and pixels.
//! 5. [`decode_group`]: decodes several images, each described by a [`Job`].
//! 6. [`raw`]: unencoded pixels.
//! 7. [`Codecs`]: the registry, which chooses the codec by the first bytes of an image.
//! 8. [`check()`]: reads a whole image and reports damage.
//!
//! Decoding has two steps. [`Codecs::open`] reads the header. The caller can then choose a crop,
//! and [`EncodedImage::decode`] decodes at least this region, which may cost much less than
//! decoding the whole image. [`decode_group`] interleaves the decoding of several images.
//!
//! # Supported formats
//!
//! | format | supported | recognized, but rejected |
//! |---|---|---|
//! | JPEG | Huffman-coded, 8 bits; baseline, extended, progressive; gray, YCbCr, RGB, CMYK, YCCK; sampling factors with integer ratios | arithmetic-coded, lossless, hierarchical, 12-bit, JPEG-LS; two components; sampling factors that do not divide the largest one |
//! | PNG | all kinds; the default image of an APNG | |
//! | GIF | the first frame, on a canvas like Pillow's | |
//! | WebP | lossy, lossless, with alpha; the first frame of an animation | |
//! | BMP | palettes, run-length encoding; 16, 24 and 32 bits; any bit masks | embedded JPEG or PNG, CMYK |
//! | TIFF, BigTIFF | one page: gray, RGB and palettes of 1 to 8 bits; gray, RGB and CMYK of 8 or 16 bits; floats; strips or tiles; interleaved or planar; uncompressed, LZW, deflate, PackBits, JPEG | several pages, 12 bits, signed values, CIELab, YCbCr without JPEG compression, CCITT, Zstandard and other compression methods |
//! | `.npy` | `\|u1` of shape (height, width, 3) | any other type or shape |
//!
//! Gray is repeated into three channels. Alpha is dropped, or blended with a background color
//! ([`Codecs::background`]). Images with 16-bit or float channels are rejected:
//! [`field::DenseMap`](crate::field::DenseMap) reads them unchanged, and [`Codecs::convert_to_u8`]
//! converts them. The EXIF orientation is applied; an orientation in XMP or in a text chunk is
//! ignored.
//!
//! One limit on pixels applies to all formats: [`Codecs::max_pixels`], 2^28 by default.
//! [`Loader::max_pixels`](crate::Loader::max_pixels) sets this limit for a loader.
//!
//! A CMYK or YCCK image is converted like Pillow's `convert("RGB")`. The values of a CMYK JPEG are
//! taken to be inverted, as Adobe writes them, whether or not the file has Adobe's marker. ICC
//! profiles are ignored.
//!
//! For the images in `tests/fixtures/images`, pixels equal those of Pillow's `convert("RGB")`. In
//! particular:
//! - Transparent pixels of a GIF keep the color of their index. This color also surrounds a first
//!   frame that is smaller than the canvas.
//! - Pixels that the run-length encoding of a BMP skips have palette index 0.
//! - TIFF colors that are premultiplied by alpha are divided by alpha.
//! - JPEG-compressed strips and tiles of a TIFF decode to the same pixels as with libjpeg.
//!
//! Pillow does not convert 16-bit values and floats to RGB, so there is no reference for them.
//!
//! A TIFF with several pages is rejected: a sample has one image, and the file does not say whether
//! the other pages are copies, slices of a volume or unrelated. Pages that the file marks as
//! thumbnails or masks are ignored.
//!
//! # Truncated files
//!
//! Decoding a truncated JPEG fails, with the same error for every crop: `jpeg ends at byte 4096 in
//! MCU 61 of 132`. A JPEG that lacks only its last marker still contains all of its pixels, so it
//! decodes.
//!
//! # Damaged files
//!
//! Where libjpeg warns and continues, the JPEG decoder also continues, with the same coefficients.
//! The documentation of [`warpfeed_jpeg`](warpfeed_jpeg#damaged-files) lists what counts as damage,
//! where the pixels differ from libjpeg's, and which damage is detected when only a crop is
//! decoded.
//!
//! [`check()`] reads the whole file and finds all damage. `verify`, `inspect`, `pack` and a
//! [strict](crate::Loader::strict) loader use it. [`Pixels::damage`] and
//! [`Stats::damaged`](crate::Stats::damaged) report only damage in the decoded region.
//!
//! # The JPEG decoder
//!
//! The crate [`warpfeed_jpeg`] decodes JPEGs and can be used without this one. Its documentation
//! explains why it is fast, and why it does not decode at half size: downsizing large images once,
//! with `warpfeed pack --max-side`, saves more time. `cargo bench --bench decode` compares it with
//! libjpeg-turbo and zune-jpeg.

// Internal modules: `jpegs` is the JPEG codec, which calls `warpfeed_jpeg`. `formats` contains the
// decoders of the other formats, which implement the trait in `decoder`; the TIFF reader is in
// `tiff`. `image` converts their output to RGB. `frame` transforms annotations by the EXIF
// orientation. `raw` reads unencoded pixels, `png` and `indexed` read masks, and `stored` reads
// maps. `group` decodes several images together. `condition` defines the result of `check`, and
// `info` the content of a header. `standard` provides the registry with default options. `scratch`
// manages memory that the codecs of a thread reuse.

mod codecs;
mod condition;
#[cfg(feature = "formats")]
mod decoder;
mod encoded;
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
mod stored;
#[cfg(feature = "formats")]
mod tiff;

pub use codecs::Codecs;
pub use condition::Condition;
pub use encoded::{Codec, EncodedImage, Job};
pub use frame::{AnnotationFrame, Frame, Oriented};
pub use group::decode_group;
pub(crate) use group::{MAX_GROUP, MAX_IMAGES, MAX_PLANNED};
#[cfg(feature = "formats")]
pub(crate) use indexed::Indexed;
pub use info::{Info, JpegInfo};
use options::Options;
pub(crate) use png::{ONE_NUMBER, Pass, Png, Scratch as PngScratch};
pub use raw::RawRgb;
pub(crate) use scratch::{keep, release};
pub use standard::check;
#[cfg(test)]
pub(crate) use standard::standard;
pub(crate) use stored::Stored;
pub(crate) use warpfeed_jpeg::bitstream::{Bitstream, Grid};
#[doc(inline)]
pub use warpfeed_jpeg::{Pixels, Rect, Size};

#[cfg(test)]
#[path = "../../tests/fuzz/images.rs"]
mod fuzz;
