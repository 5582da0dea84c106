//! A JPEG decoder with the pixels of libjpeg-turbo, at about twice its speed. It is written in
//! Rust, and building it needs neither a C compiler nor an assembler.
//!
//! 1. [`Jpeg`]: a file whose header has been read. It tells the size, the coding and the EXIF
//!    orientation, and estimates the memory of decoding.
//! 2. [`Decoder`]: decodes a region, or several files side by side ([`Job`]), and judges damage.
//! 3. [`Pixels`]: the decoded RGB pixels. [`Rect`] and [`Size`] are in pixels of the upright
//!    image.
//! 4. [`repack`]: rewrites a file losslessly, so that a crop is decoded without the rest.
//! 5. [`bitstream`]: what a device needs to decode a region itself.
//! 6. [`Orientation`]: turns pixels and regions by the EXIF orientation.
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
//! // One decoder for each thread: it keeps its memory from image to image.
//! let mut decoder = Decoder::new();
//! let mut pixels = Pixels::new();
//! decoder.decode(&jpeg, Rect::new(8, 8, 32, 32), &mut pixels)?;
//! assert_eq!(pixels.data().len(), 32 * 32 * 3);
//! # Ok::<(), warpfeed_jpeg::Error>(())
//! ```
//!
//! # What is read
//!
//! Huffman-coded JPEGs of 8 bits: baseline, extended and progressive; gray, YCbCr, RGB, CMYK and
//! YCCK; any whole ratio of sampling factors. Refused by name are arithmetic-coded, lossless,
//! hierarchical and 12-bit JPEGs, JPEG-LS, two components, and sampling factors that do not divide
//! the largest one.
//!
//! Gray is repeated into three channels. CMYK and YCCK are converted like Pillow's
//! `convert("RGB")`, with inverted values as Adobe writes them. ICC profiles are ignored. The EXIF
//! orientation is applied.
//!
//! A header may claim 65,535 x 65,535 pixels. Compare [`Jpeg::size`] or [`Jpeg::memory`] with your
//! own limit before decoding.
//!
//! # Truncated files
//!
//! A truncated JPEG is an error, and every crop reports the same one: `jpeg ends at byte 4096 in
//! MCU 61 of 132`. A JPEG that lacks only its last marker has all of its pixels and decodes.
//!
//! # A file that is damaged inside
//!
//! Where libjpeg warns and continues, this decoder continues too, with the coefficients that
//! libjpeg reads. Its pixels equal libjpeg's, with two exceptions:
//!
//! - libjpeg smooths a progressive file that lacks scans of the first ten coefficients. This
//!   decoder shows what the scans contain.
//! - Values far beyond those of 8-bit images, before they are clamped to 0 to 255, differ between
//!   libjpeg's C code and its SIMD code of each core. Here they are the same everywhere.
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
//! | coefficients after the last of a block, coefficients with more bits than 8-bit images have | none | no |
//!
//! libjpeg also warns of bytes between the markers of a header, of an unknown Adobe transform or
//! JFIF version, and of band limits in a sequential scan. These do not count as damage.
//!
//! The last row is not always found while a sequential file is decoded. libjpeg does not warn of
//! it. The decoder takes two symbols at a time, and a comparison for each coefficient would slow
//! down all images.
//!
//! [`Decoder::damage`] reads all of the file and finds all of the above. [`Pixels::damage`] reports
//! only the damage that decoding met. A sequential file with EOI is decoded as far as the region
//! needs. After the first damage in that part, the decoder reads all of the file, and then finds
//! every kind. It always reads all of a progressive file and of a file without EOI. Bytes that were
//! changed into other valid codes look like any other image to every decoder.
//!
//! # Why it is fast
//!
//! Two thirds of the cost of a JPEG is Huffman decoding. Other libraries decode one symbol after
//! another, and their region or scaled decoding still decodes every symbol. This decoder works on
//! several streams side by side, two symbols at a time. The streams are the restart segments of a
//! packed file, or several plain files. In a packed file it decodes only the segments that the crop
//! touches.
//!
//! The instruction set is chosen when a [`Decoder`] is created: AVX-512, AVX2, NEON or plain Rust,
//! all with the same bits. The environment variable `WARPFEED_JPEG` names another one: `scalar`,
//! `avx2` or `avx512`.
//!
//! # Why it does not decode at 1/2
//!
//! Decoding at 1/2 helps if a crop of 224 pixels comes from a box at least twice as large in both
//! directions. On ImageNet, 3 in 100 crops do, with 16 % of the pixels. Skipping three quarters of
//! their samples, but none of their Huffman codes, would save about one twentieth of the decoding
//! time. It would also change pixels for everyone. Much larger images gain more from being made
//! smaller once.

// Internal modules: `markers`, `lengths` and `header` are the marker segments, checked. `huffman`
// are Huffman tables, in the form of the file and in the form for lookups. `bits`, `scan` and
// `coefficients` are a plain and slow decoder of every scan of any Huffman-coded file into planes
// of coefficients. `layout` has the positions of samples on the grid of MCUs, and the part that a
// region needs. `kernels` are transform, upsampling and color conversion for each instruction set,
// and `rows` makes rows of pixels from coefficients. `segments` finds and unstuffs the restart
// segments that a region needs, `entropy` decodes many of them side by side, and `transit` is one
// image in its lanes.

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

/// What the tests of `warpfeed` need of the decoder. It may change in any version.
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

/// The code of README.md, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
