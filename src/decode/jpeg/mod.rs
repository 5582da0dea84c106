//! The crate's own JPEG decoder: the pixels of libjpeg-turbo, of a region alone where only that is
//! wanted.
//!
//! 1. `header`: the marker segments, checked.
//! 2. `huffman`: Huffman tables, as written in a file and as looked up.
//! 3. `bits`, `scan`, `coefficients`: every scan of any Huffman-coded file into planes of
//!    coefficients; slow and plain.
//! 4. `layout`: where samples lie on the grid of MCUs, and which of them a region needs.
//! 5. `kernels`: transform, upsampling and colour, for each instruction set.
//! 6. `rows`: coefficients to rows of pixels.
//! 7. `segments`: the restart segments that a region needs, found and unstuffed.
//! 8. `entropy`: Huffman decoding of many segments side by side.
//! 9. `picture`: one picture on its way through that.
//! 10. `group`: several pictures at a time.
//! 11. `decoder`: [`Jpeg`].
//! 12. `soundness`: what is damaged in a file.

pub(crate) mod bits;
pub(crate) mod coefficients;
mod decoder;
#[allow(unsafe_code)]
mod entropy;
mod group;
pub(crate) mod header;
pub(crate) mod huffman;
mod kernels;
mod layout;
mod picture;
mod rows;
pub(crate) mod scan;
mod segments;
mod soundness;

pub use decoder::Jpeg;
pub(crate) use decoder::{Within, keep, open_header, release};
pub(super) use soundness::damage;

/// Memory that a thread keeps of each kind after a large picture.
const KEPT_BYTES: usize = 64 << 20;

#[cfg(test)]
#[path = "../../../tests/fuzz/jpeg.rs"]
pub(crate) mod fuzz;
#[cfg(test)]
#[path = "../../../tests/libjpeg/mod.rs"]
pub(crate) mod libjpeg;
#[cfg(test)]
mod tests;
