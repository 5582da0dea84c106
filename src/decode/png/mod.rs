//! Reads the stored values of a PNG, gray values or palette indices, row by row. This reader is for
//! masks, in which the values are class indices. Color images are read with the `png` crate.
//!
//! Opening a file verifies all chunks, so damage is reported no matter how many rows are read. Only
//! the rows up to the last requested one are decompressed, and they are not retained.
//!
//! 1. `chunk`: reads chunks and verifies their checksums.
//! 2. `filter`: reverses the filter of a row.
//! 3. `inflate`: decompresses row by row.
//! 4. `reader`: [`Png`], which reads the header and the interlacing passes.

mod chunk;
mod filter;
mod inflate;
mod reader;

pub(crate) use inflate::Scratch;
pub(crate) use reader::{Pass, Png};

/// Explanation, for error messages, why an image with several channels is not a mask.
pub(crate) const ONE_NUMBER: &str =
    "a mask has one number per pixel: gray, or palette indices; Mask::colors gives each color its number";
