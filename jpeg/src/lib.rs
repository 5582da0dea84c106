//! A JPEG decoder that produces the same pixels as libjpeg-turbo, at about twice its speed. It is
//! written in Rust, and building it requires neither a C compiler nor an assembler.
//!
//! 1. [`Jpeg`]: a file whose header has been read. It provides the size, the coding and the EXIF
//!    orientation, and estimates how much memory decoding needs.
//! 2. [`Decoder`]: decodes a region of one file, or several files interleaved ([`Job`]), and
//!    reports damage.
//! 3. [`Pixels`]: the decoded RGB pixels. [`Rect`] and [`Size`] are in pixels of the upright image.
//! 4. [`repack`]: rewrites a file losslessly, so that a crop can be decoded without the rest of the
//!    file.
//! 5. [`bitstream`]: extracts the data that a device, such as a GPU, needs to decode a region.
//! 6. [`Orientation`]: applies the EXIF orientation to pixels and regions.
//!
//! ```
//! use warpfeed_jpeg::{Decoder, Jpeg, Pixels, Rect};
//!
//! # let mut bytes = Vec::new();
//! # use jpeg_encoder::{ColorType, Encoder};
//! # Encoder::new(&mut bytes, 90).encode(&[99; 96 * 64 * 3], 96, 64, ColorType::Rgb).unwrap();
//! let jpeg = Jpeg::open(&bytes)?;
//! assert_eq!((jpeg.size().width, jpeg.size().height), (96, 64));
//!
//! // One decoder per thread: it reuses its memory from image to image.
//! let mut decoder = Decoder::new();
//! let mut pixels = Pixels::new();
//! decoder.decode(&jpeg, Rect::new(8, 8, 32, 32), &mut pixels)?;
//! assert_eq!(pixels.data().len(), 32 * 32 * 3);
//! # Ok::<(), warpfeed_jpeg::Error>(())
//! ```
//!
//! # Supported files
//!
//! Huffman-coded 8-bit JPEGs: baseline, extended and progressive; gray, YCbCr, RGB, CMYK and YCCK;
//! any sampling factors that divide the largest one. Arithmetic-coded, lossless, hierarchical and
//! 12-bit JPEGs, JPEG-LS, files with two components, and other sampling factors are rejected with
//! an error that names the reason.
//!
//! Gray is repeated into three channels. CMYK and YCCK are converted like Pillow's
//! `convert("RGB")`, and their values are taken to be inverted, as Adobe writes them. ICC profiles
//! are ignored. The EXIF orientation is applied.
//!
//! A header may claim 65,535 x 65,535 pixels. Compare [`Jpeg::size`] or [`Jpeg::memory`] with your
//! own limit before decoding.
//!
//! # Truncated files
//!
//! Decoding a truncated JPEG fails, with the same error for every crop:
//! `jpeg ends at byte 4096 in MCU 61 of 132`. A JPEG that lacks only its last marker still contains
//! all of its pixels, so it decodes.
//!
//! # Damaged files
//!
//! Where libjpeg warns and continues, this decoder also continues, with the same coefficients. Its
//! pixels equal libjpeg's, with two exceptions:
//!
//! - libjpeg smooths a progressive file that lacks scans of the first ten coefficients. This
//!   decoder renders what the scans contain.
//! - If values are far outside the 8-bit range before they are clamped to 0 to 255, the results of
//!   libjpeg's C code differ from those of its SIMD code, which depends on the CPU. This decoder
//!   produces the same values on every CPU.
//!
//! The following counts as damage:
//!
//! | damage | libjpeg's message | detected while decoding |
//! |---|---|---|
//! | a code that does not exist | bad Huffman code | yes |
//! | a segment that ends before its last MCU, including an EOI in the middle of the data | premature end of data segment | yes |
//! | an unexpected restart marker | found marker instead of RST | yes |
//! | no EOI at the end | premature end of JPEG file | yes |
//! | progressive scans out of order | inconsistent progression sequence | yes |
//! | missing progressive scans of the first ten coefficients | none | yes |
//! | fill bytes inside the data | none | yes |
//! | eight or more bits after the last MCU of a segment | extraneous bytes before marker | yes |
//! | coefficients after the last one of a block, or with more bits than are possible in 8-bit images | none | not always |
//!
//! libjpeg also warns about bytes between the markers of a header, about an unknown Adobe transform
//! or JFIF version, and about band limits in a sequential scan. These do not count as damage.
//!
//! In a sequential file, decoding does not always detect the damage in the last row of the table,
//! about which libjpeg does not warn, either. The decoder decodes two symbols at a time, and
//! checking every coefficient would slow down decoding for all images.
//!
//! [`Decoder::damage`] reads the whole file and detects all damage in the table. [`Pixels::damage`]
//! reports only damage in the data that was decoded. A sequential file with EOI is decoded only as
//! far as the region requires. If this data turns out to be damaged, the decoder reads the whole
//! file and detects every kind of damage. A progressive file, or a file without EOI, is always read
//! completely. No decoder can detect bytes that were changed into other valid codes.
//!
//! # Why it is fast
//!
//! Two thirds of the time to decode a JPEG is spent on Huffman decoding. Other libraries decode one
//! symbol after the other, and they decode every symbol even if only a region or a smaller version
//! of the image is requested. This decoder interleaves several streams and decodes two symbols at a
//! time. The streams are the restart segments of a packed file, or several plain files. In a packed
//! file, it decodes only the segments that the crop touches.
//!
//! Creating a [`Decoder`] chooses the instruction set: AVX-512, AVX2, NEON or plain Rust, which all
//! produce the same bits. The environment variable `WARPFEED_JPEG` overrides the choice: `scalar`,
//! `avx2` or `avx512`.
//!
//! # Why it does not decode at half size
//!
//! Decoding at half size helps if a crop of 224 pixels is taken from a box that is at least twice
//! as large in both directions. On ImageNet, this is true of 3 in 100 crops, with 16 % of the
//! pixels. Skipping three quarters of their samples, but none of their Huffman codes, would save
//! about one twentieth of the decoding time. It would also change the pixels for all users. If
//! images are much larger than the crops, downsizing them once saves more time.

// Internal modules: `markers`, `lengths` and `header` read and validate the marker segments.
// `huffman` defines Huffman tables, both as stored and as lookup tables. `bits`, `scan` and
// `coefficients` form a plain, slow decoder, which decodes every scan of any Huffman-coded file to
// planes of coefficients. `layout` computes the positions of samples on the grid of MCUs, and the
// window that a region needs. `kernels` provides the transform, upsampling and color conversion for
// each instruction set, and `rows` converts coefficients to rows of pixels. `segments` finds and
// unstuffs the restart segments that a region needs, `entropy` decodes many segments interleaved,
// and `transit` manages one image in the lanes.

mod bits;
pub mod bitstream;
mod coefficients;
mod decoder;
#[allow(unsafe_code)]
mod entropy;
mod error;
mod header;
mod huffman;
mod jpeg;
mod kernels;
mod layout;
mod lengths;
mod markers;
mod orientation;
mod pixels;
mod repack;
mod rows;
mod scan;
mod segments;
mod transit;

pub use decoder::{Decoder, Job};
pub use error::{Error, Result};
pub use jpeg::Jpeg;
pub use orientation::Orientation;
pub use pixels::{Pixels, Rect, Size};
pub use repack::repack;

/// Internals for the tests of `warpfeed`. They may change in any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::header::headers_read;
    pub use crate::huffman::{Lookup, Spec};
    pub use crate::kernels::inverse_transform;
}

#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
#[cfg(test)]
#[path = "../tests/fuzz/jpeg.rs"]
mod fuzz_jpeg;
#[cfg(test)]
#[path = "../tests/libjpeg/mod.rs"]
mod libjpeg;
#[cfg(test)]
mod tests;

/// Runs the code in README.md as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
