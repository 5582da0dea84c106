//! Reads the gray values or palette indices of a PNG row by row, for masks. Images, dense maps and
//! masks of colors are decoded with the `png` crate instead.
//!
//! Opening a file verifies the checksums of all chunks, because a crop may read only a few rows,
//! and damage elsewhere must not go unnoticed.

mod chunk;
mod filter;
mod inflate;
mod reader;

pub(crate) use inflate::Scratch;
pub(crate) use reader::{Pass, Png};

pub(crate) const MASK_VALUES_HINT: &str =
    "a mask has one number per pixel, so it must be gray or have a palette; to read other masks, use Mask::colors";
