//! PNG values as stored: gray values or palette indices, row by row. This reader is for masks, whose
//! numbers mean classes. The crate `png` reads images.
//!
//! All chunks are checked when a file is opened, so damage is reported no matter how many of the
//! pixels are read. Only the rows up to the last requested one are decompressed, and they are not
//! kept.
//!
//! 1. `chunk`: the chunks of the file, checked.
//! 2. `filter`: undoes the prediction of a row.
//! 3. `inflate`: decompresses row by row.
//! 4. `reader`: [`Png`], the header and the passes.

mod chunk;
mod filter;
mod inflate;
mod reader;

pub(crate) use inflate::Scratch;
pub(crate) use reader::{Pass, Png};

/// Why an image of several channels is not a mask.
pub(crate) const ONE_NUMBER: &str =
    "a mask has one number per pixel: gray, or palette indices; Mask::colors gives each color its number";
