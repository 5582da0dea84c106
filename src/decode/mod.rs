//! Decodes encoded bytes to pixels.
//!
//! 1. [`Pixels`]: a decoded image; [`Rect`] and [`Size`].
//! 2. [`Oriented`] and [`Frame`]: turn annotations with an image that EXIF turns.
//! 3. [`Info`]: information from a header; [`Condition`]: valid or damaged.
//! 4. [`Codec`]: decodes one format; implement it for a format of your own. [`EncodedImage`] is an
//!    opened image: this handle provides its header, size and pixels.
//! 5. [`decode_group`]: decodes several images at a time; [`Job`] is one of them.
//! 6. [`raw`]: pixels that are not encoded.
//! 7. [`Codecs`]: the registry. It chooses the codec by the image's first bytes.
//! 8. [`check()`]: reads a whole image and reports damage.
//!
//! An image is read in two steps, and the crop is chosen between them. [`Codecs::open`] reads the
//! header. [`EncodedImage::decode`] then decodes at least the requested region, which may cost much less
//! than the whole image. [`decode_group`] decodes several images side by side.
//!
//! # What is read
//!
//! | format | read | refused, by name |
//! |---|---|---|
//! | JPEG | Huffman-coded, 8 bits; baseline, extended, progressive; gray, YCbCr, RGB, CMYK, YCCK; any whole ratio of sampling factors | arithmetic-coded, lossless, hierarchical, 12-bit, JPEG-LS; two components; sampling factors that do not divide the largest one |
//! | PNG | every kind; of an APNG the default image | |
//! | GIF | the first frame, on Pillow's canvas | |
//! | WebP | lossy, lossless, with alpha; of an animation the first frame | |
//! | BMP | palettes, run-length codes, 16, 24 and 32 bits, any masks | JPEG or PNG inside, CMYK |
//! | TIFF, BigTIFF | one page: gray, RGB and palettes of 1 to 8 bits; gray, RGB and CMYK of 8 or 16 bits; floats; in strips or tiles, together or in planes; uncompressed, LZW, deflate, PackBits, JPEG | several pages, 12 bits, signed samples, CIELab, YCbCr that is not in JPEGs, CCITT, Zstandard and other compressions |
//! | `.npy` | `\|u1` of shape (height, width, 3) | any other type or shape |
//!
//! Gray is repeated into three channels. Alpha is dropped, or blended with a color
//! ([`Codecs::background`]). Channels of 16 bits or of floats are an error:
//! [`field::DenseMap`](crate::field::DenseMap) reads them unchanged, and [`Codecs::convert_to_u8`] converts them.
//! The EXIF orientation is applied; an orientation in XMP or in a text chunk is ignored.
//!
//! One limit on pixels applies to all formats: [`Codecs::max_pixels`], 2^28 by default. A loader
//! sets it with [`Loader::max_pixels`](crate::Loader::max_pixels).
//!
//! A CMYK or YCCK image is converted like Pillow's `convert("RGB")`. The values of a JPEG are
//! read as inverted, as Adobe writes them, with or without Adobe's marker. ICC profiles are
//! ignored.
//!
//! Pixels equal those of Pillow's `convert("RGB")` for the images in `tests/fixtures/images`:
//! transparent pixels of a GIF keep the color of their index, which also surrounds a first frame
//! that is smaller than the canvas; runs of a BMP that skip pixels leave index 0; colors of a TIFF
//! that were multiplied by their alpha are divided by it; JPEGs in a TIFF have libjpeg's pixels.
//! Pillow has no conversion for 16 bits and floats.
//!
//! A TIFF of several pages is an error, because a sample has one image: nothing says whether the
//! others are copies, slices of a volume or unrelated. Smaller versions of the page and masks are
//! not counted, if the file marks them as such.
//!
//! # Truncated files
//!
//! A truncated JPEG is an error, and every crop reports the same one: `jpeg ends at byte 4096 in
//! MCU 61 of 132`. A JPEG that lacks only its last marker has all of its pixels and decodes.
//!
//! # A file that is damaged inside
//!
//! Where libjpeg warns and continues, the JPEG decoder continues too, with the coefficients that
//! libjpeg reads. The crate [`warpfeed_jpeg`](warpfeed_jpeg#a-file-that-is-damaged-inside) lists
//! what counts as damage, where its pixels differ from libjpeg's, and which damage a crop meets.
//!
//! [`check()`] reads all of the file and finds all damage. `verify`, `inspect`, `pack` and a
//! [strict](crate::Loader::strict) loader use its judgment. [`Pixels::damage`] and
//! [`Stats::damaged`](crate::Stats::damaged) report only the damage that decoding met.
//!
//! # The JPEG decoder
//!
//! JPEGs are decoded by the crate [`warpfeed_jpeg`], which can be used without this one. It says
//! why it is fast, and why it does not decode at 1/2: larger images gain more from being packed
//! smaller once (`warpfeed pack --max-side`). `cargo bench --bench decode` compares it with
//! libjpeg-turbo and zune-jpeg.

// Internal modules: `jpegs` is the codec of `warpfeed_jpeg`, the fast path. `formats` decodes the
// other formats behind the trait in `decoder`, TIFF with the reader in `tiff`, and `image` converts
// them to RGB. `frame` turns annotations by the EXIF tag. `raw` reads pixels that are not encoded,
// `png` and `indexed` read masks, and `stored` reads maps. `group` decodes several images
// together. `condition` is the judgment of `check`, and `info` what a header tells. `standard` is
// the registry with its defaults. `scratch` is memory that the codecs of a thread keep.

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
