//! The crate's own JPEG decoder. Its pixels of undamaged files equal libjpeg-turbo's. It can decode
//! only a region.
//!
//! 1. `markers`, `lengths`, `header`: the marker segments, checked.
//! 2. `huffman`: Huffman tables, in the form of the file and in the form for lookups.
//! 3. `bits`, `scan`, `coefficients`: a plain and slow decoder of every scan of any Huffman-coded
//!    file into planes of coefficients.
//! 4. `layout`: the positions of samples on the grid of MCUs, and the part that a region needs.
//! 5. `opened`: the data from the header that a picture's handle keeps.
//! 6. `kernels`: transform, upsampling and colour conversion, for each instruction set.
//! 7. `rows`: coefficients to rows of pixels.
//! 8. `segments`: the restart segments that a region needs, found and unstuffed.
//! 9. `entropy`: Huffman decoding of many segments side by side.
//! 10. `transit`: one picture in the lanes of `entropy`.
//! 11. `bitstream`: the data that a device needs to decode a part of a picture.
//!
//! In this module a picture is its bytes and an [`Opened`]. `side_by_side` decodes several
//! pictures at a time.

pub(crate) mod bits;
mod bitstream;
pub(crate) mod coefficients;
#[allow(unsafe_code)]
mod entropy;
pub(crate) mod header;
pub(crate) mod huffman;
mod kernels;
mod layout;
pub(crate) mod lengths;
pub(crate) mod markers;
mod opened;
mod rows;
pub(crate) mod scan;
mod segments;
mod transit;

pub(crate) use bitstream::{Bitstream, Grid};
#[cfg(test)]
pub(crate) use bitstream::{CUT, Turn};
pub(super) use entropy::Machine;
pub(super) use kernels::Backend;
#[cfg(test)]
pub(crate) use kernels::inverse_transform;
pub(super) use layout::Window;
pub(super) use opened::Opened;
pub(super) use rows::{Blocks, Rows, View};
pub(super) use transit::{Refusal, Ticket, Transit};

/// Maximum memory of each kind that a thread keeps after a large picture.
pub(super) const KEPT_BYTES: usize = 64 << 20;

#[cfg(test)]
#[path = "../../../tests/fuzz/jpeg.rs"]
pub(crate) mod fuzz;
#[cfg(test)]
#[path = "../../../tests/libjpeg/mod.rs"]
pub(crate) mod libjpeg;
#[cfg(test)]
mod tests;
