//! Decodes encoded bytes to pixels.
//!
//! 1. [`Pixels`]: a decoded picture; [`Rect`] and [`Size`].
//! 2. [`Oriented`] and [`Frame`]: turn annotations with a picture that EXIF turns.
//! 3. [`Info`]: information from a header; [`Condition`]: valid or damaged.
//! 4. [`Codec`]: decodes one format; implement it for a format of your own. [`Picture`] is an
//!    opened picture: this handle provides its header, size and pixels.
//! 5. [`decode_group`]: decodes several pictures at a time; [`Job`] is one of them.
//! 6. [`raw`]: pixels that are not encoded.
//! 7. [`Codecs`]: the registry. It chooses the codec by the picture's first bytes.
//! 8. [`check()`]: reads a whole picture and reports damage.
//!
//! A picture is read in two steps, and the crop is chosen between them. [`Codecs::open`] reads the
//! header. [`Picture::decode`] then decodes at least the requested region, which may cost much less
//! than the whole picture. [`decode_group`] decodes several pictures side by side.
//!
//! # What is read
//!
//! | format | read | refused, by name |
//! |---|---|---|
//! | JPEG | Huffman-coded, 8 bits; baseline, extended, progressive; grey, YCbCr, RGB, CMYK, YCCK; any whole ratio of sampling factors | arithmetic-coded, lossless, hierarchical, 12-bit, JPEG-LS; two components; sampling factors that do not divide the largest one |
//! | PNG | every kind; of an APNG the default picture | |
//! | GIF | the first frame, on Pillow's canvas | |
//! | WebP | lossy, lossless, with alpha; of an animation the first frame | |
//! | BMP | palettes, run-length codes, 16, 24 and 32 bits, any masks | JPEG or PNG inside, CMYK |
//! | TIFF, BigTIFF | one page: grey, RGB and palettes of 1 to 8 bits; grey, RGB and CMYK of 8 or 16 bits; floats; in strips or tiles, together or in planes; uncompressed, LZW, deflate, PackBits, JPEG | several pages, 12 bits, signed samples, CIELab, YCbCr that is not in JPEGs, CCITT, Zstandard and other compressions |
//! | `.npy` | `\|u1` of shape (height, width, 3) | any other type or shape |
//!
//! Grey is repeated into three channels. Alpha is dropped, or blended with a colour
//! ([`Codecs::background`]). Channels of 16 bits or of floats are an error:
//! [`field::Map`](crate::field::Map) reads them unchanged, and [`Codecs::to_8_bits`] converts them.
//! The EXIF orientation is applied; an orientation in XMP or in a text chunk is ignored.
//!
//! One limit on pixels applies to all formats: [`Codecs::max_pixels`], 2^28 by default. A loader
//! sets it with [`Loader::max_pixels`](crate::Loader::max_pixels).
//!
//! A CMYK or YCCK picture is converted like Pillow's `convert("RGB")`. The values of a JPEG are read
//! as inverted, as Adobe writes them, with or without Adobe's marker. ICC profiles are ignored.
//!
//! Pixels equal those of Pillow's `convert("RGB")` for the pictures in `tests/fixtures/pictures`:
//! transparent pixels of a GIF keep the colour of their index, which also surrounds a first frame
//! that is smaller than the canvas; runs of a BMP that skip pixels leave index 0; colours of a TIFF
//! that were multiplied by their alpha are divided by it; JPEGs in a TIFF have libjpeg's pixels.
//! Pillow has no conversion for 16 bits and floats.
//!
//! A TIFF of several pages is an error, because a sample has one picture: nothing says whether the
//! others are copies, slices of a volume or unrelated. Smaller versions of the page and masks are not
//! counted, if the file marks them as such.
//!
//! # Truncated files
//!
//! A truncated JPEG is an error, and every crop reports the same one: `jpeg ends at byte 4096 in
//! MCU 61 of 132`. A JPEG that lacks only its last marker has all of its pixels and decodes.
//!
//! # A file that is damaged inside
//!
//! Where libjpeg warns and continues, this decoder continues too, with the coefficients that libjpeg
//! reads. Its pixels equal libjpeg's, with two exceptions:
//!
//! - libjpeg smooths a progressive file that lacks scans of the first ten coefficients. This
//!   decoder shows what the scans contain.
//! - Values far beyond those of 8-bit pictures, before they are clamped to 0 to 255, differ between
//!   libjpeg's C code and its SIMD code of each processor. Here they are the same everywhere.
//!
//! All of the following count as damage:
//!
//! | found in the data | libjpeg's message | found while decoding |
//! |---|---|---|
//! | a code that does not exist | bad Huffman code | yes |
//! | a segment that ends before its last MCU, also by an EOI in the middle of the data | premature end of data segment | yes |
//! | a restart marker out of turn | found marker instead of RST | yes |
//! | no EOI at the end | premature end of JPEG file | yes |
//! | progressive scans out of order | inconsistent progression sequence | yes |
//! | missing progressive scans of the first ten coefficients | none | yes |
//! | fill bytes inside the data | none | yes |
//! | eight or more bits after the last MCU of a segment | extraneous bytes before marker | yes |
//! | coefficients after the last of a block, coefficients with more bits than 8-bit pictures have | none | no |
//!
//! libjpeg also warns of bytes between the markers of a header, of an unknown Adobe transform or
//! JFIF version, and of band limits in a sequential scan. These do not count as damage.
//!
//! The last row is not always found while a sequential file is decoded. libjpeg does not warn of
//! it. The decoder takes two symbols at a time, and a comparison for each coefficient would slow
//! down all pictures.
//!
//! [`check()`] reads all of the file and finds all of the above. `verify`, `inspect`, `pack` and a
//! [strict](crate::Loader::strict) loader use its judgement. [`Pixels::damage`] and
//! [`Stats::damaged`](crate::Stats::damaged) report only the damage that decoding met. A sequential
//! file with EOI is decoded as far as the region needs. After the first damage in that part, the
//! decoder reads all of the file, and then finds every kind. It always reads all of a progressive
//! file and of a file without EOI. Bytes that were changed into other valid codes look like any
//! other picture to every decoder.
//!
//! # Why the crate has its own JPEG decoder
//!
//! Two thirds of the cost of a JPEG is Huffman decoding. Other libraries decode one symbol after
//! another, and their region or scaled decoding still decodes every symbol. This decoder works on
//! several streams side by side, two symbols at a time. The streams are the restart segments of a
//! packed file, or several plain files. In a packed file it decodes only the segments that the crop
//! touches. Its pixels equal libjpeg-turbo's. It builds without a C library or an assembler. `cargo
//! bench --bench decode` compares it with libjpeg-turbo and with the `image` crate.
//!
//! # Why it does not decode at 1/2
//!
//! Decoding at 1/2 helps if a crop of 224 pixels comes from a box at least twice as large in both
//! directions. On ImageNet, 3 in 100 crops do, with 16 % of the pixels. Skipping three quarters of
//! their samples, but none of their Huffman codes, would save about one twentieth of the decoding
//! time. It would also change pixels for everyone. Much larger pictures gain more from being packed
//! smaller once (`warpfeed pack --max-side`).

// Internal modules: `jpeg` is the crate's own JPEG decoder, the fast path. `jpegs` is its codec, and
// `side_by_side` decodes several JPEGs at a time. `formats` decodes the other formats behind the trait
// in `decoder`, TIFF with the reader in `tiff`, and `image` converts them to RGB. `orientation` turns
// pictures upright by their EXIF tag, for all formats, and `frame` their annotations. `raw` reads
// pixels that are not encoded, `png` and `indexed` read masks, and `stored` reads maps. `group`
// decodes several pictures together. `condition` is the judgement of `check`, and `info` what a header
// tells. `standard` is the registry with its defaults. `scratch` is memory that the codecs of a thread
// keep.

mod codecs;
mod condition;
#[cfg(feature = "formats")]
mod decoder;
#[cfg(feature = "formats")]
mod formats;
mod frame;
mod group;
#[cfg(feature = "formats")]
mod image;
#[cfg(feature = "formats")]
mod indexed;
mod info;
pub(crate) mod jpeg;
mod jpegs;
mod options;
mod orientation;
mod picture;
mod pixels;
mod png;
pub mod raw;
mod scratch;
mod side_by_side;
mod standard;
mod stored;
#[cfg(feature = "formats")]
mod tiff;

pub use codecs::Codecs;
pub use condition::Condition;
pub use frame::{Exif, Frame, Oriented};
pub use group::decode_group;
pub(crate) use group::{MAX_GROUP, MAX_IMAGES, MAX_PLANNED};
#[cfg(feature = "formats")]
pub(crate) use indexed::Indexed;
pub use info::{Info, JpegInfo};
#[cfg(test)]
pub(crate) use jpeg::Turn;
pub(crate) use jpeg::{Bitstream, Grid};
use options::Options;
pub use picture::{Codec, Job, Picture};
pub use pixels::{Pixels, Rect, Size};
pub(crate) use png::{ONE_NUMBER, Pass, Png, Scratch as PngScratch};
pub use raw::RawRgb;
pub(crate) use scratch::{keep, release};
pub use standard::check;
#[cfg(test)]
pub(crate) use standard::standard;
pub(crate) use stored::Stored;

#[cfg(test)]
#[path = "../../tests/fuzz/images.rs"]
mod fuzz;
