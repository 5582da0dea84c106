//! Encoded bytes to pixels.
//!
//! 1. [`Codec`]: what reads one format. A codec of your own is added to the others.
//! 2. [`Codecs`]: the registry. The first bytes of a picture say which codec takes it.
//! 3. [`Picture`]: a picture that has been opened. Header, size and pixels come from this handle.
//! 4. `jpeg`: the crate's own JPEG decoder, the fast path.
//! 5. `image`: other formats, through the `image` crate, brought to RGB.
//! 6. [`raw`]: pixels that are not encoded.
//! 7. `orientation`: what EXIF says of turning pictures upright, for all of them.
//! 8. `info`: what a header says, for people: [`Info`].
//! 9. `check`: whether a picture is damaged, read as a whole: [`check()`].
//!
//! A picture is read in two steps, so that the crop can be chosen between them: [`Codecs::open`]
//! reads the header, then [`Picture::decode`] delivers at least the region asked for, which may
//! cost much less than the whole picture. [`decode_group`] decodes several pictures side by side.
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
//! One limit on pixels holds for all of them: [`Codecs::max_pixels`], 2^28 unless it is set, and in
//! a loader [`Loader::max_pixels`](crate::Loader::max_pixels).
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
//! avoids, and which libraries do one symbol after another. This crate's decodes the restart
//! segments of a packed file, or several plain files, side by side, two symbols at a time, and of a
//! packed file only the segments that the crop touches. Its pixels are libjpeg-turbo's, and it needs
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

mod check;
mod codec;
mod codecs;
mod image;
mod info;
pub(crate) mod jpeg;
mod orientation;
mod picture;
mod pixels;
pub mod raw;

pub use check::{Condition, check};
pub use codec::Codec;
pub use codecs::Codecs;
pub(crate) use codecs::standard;
pub use info::{Info, JpegInfo};
pub use picture::{Job, Picture, decode_group};
pub use pixels::{Pixels, Rect, Size};
pub use raw::RawRgb;

/// Limits to `limit` bytes what the codecs of the calling thread keep of the pictures before.
pub(crate) fn keep(limit: usize) {
    image::keep(limit - jpeg::keep(limit));
}

/// Gives back what the codecs of the calling thread keep from one picture to the next.
pub(crate) fn release() {
    jpeg::release();
    image::release();
}

#[cfg(test)]
#[path = "../../tests/fuzz/images.rs"]
mod fuzz;
