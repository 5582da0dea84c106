//! The crate's own JPEG decoder. Its pixels are libjpeg-turbo's. It can decode a region alone.
//!
//! 1. `markers`, `header`: the marker segments, checked.
//! 2. `huffman`: Huffman tables, as written in a file and as looked up.
//! 3. `bits`, `scan`, `coefficients`: decode every scan of any Huffman-coded file into planes of
//!    coefficients, plainly and slowly.
//! 4. `layout`: where samples lie on the grid of MCUs, and which of them a region needs.
//! 5. `opened`: what a picture's handle keeps from its header.
//! 6. `kernels`: transform, upsampling and colour, for each instruction set.
//! 7. `rows`: coefficients to rows of pixels.
//! 8. `segments`: the restart segments that a region needs, found and unstuffed.
//! 9. `entropy`: Huffman decoding of many segments side by side.
//! 10. `transit`: one picture on its way through the lanes of `entropy`.
//! 11. `bitstream`: what a device needs to decode a part of a picture.
//!
//! Here a picture is bytes and an [`Opened`]. `codecs::side_by_side` decodes several at a time.

pub(crate) mod bits;
mod bitstream;
pub(crate) mod coefficients;
#[allow(unsafe_code)]
mod entropy;
pub(crate) mod header;
pub(crate) mod huffman;
mod kernels;
mod layout;
pub(crate) mod markers;
mod opened;
mod rows;
pub(crate) mod scan;
mod segments;
mod transit;

pub(crate) use bitstream::{Bitstream, Grid};
pub(super) use entropy::Machine;
pub(super) use kernels::Backend;
#[cfg(test)]
pub(crate) use kernels::inverse_transform;
pub(super) use layout::Window;
pub(super) use opened::Opened;
pub(super) use rows::{Blocks, Rows, View};
pub(super) use transit::{Refusal, Ticket, Transit};

/// Memory that a thread keeps of each kind after a large picture.
pub(super) const KEPT_BYTES: usize = 64 << 20;

#[cfg(test)]
#[path = "../../../tests/fuzz/jpeg.rs"]
pub(crate) mod fuzz;
#[cfg(test)]
#[path = "../../../tests/libjpeg/mod.rs"]
pub(crate) mod libjpeg;
#[cfg(test)]
mod tests;
