//! Reads the first page of a TIFF or BigTIFF: the values of its pixels as they are stored.
//!
//! 1. `directory`: tags and their values.
//! 2. `page`: [`Tiff`], the first directory, checked.
//! 3. `parts`: strips and tiles, decompressed, in native byte order and without a predictor.
//! 4. `unpack`: the compressions.
//!
//! The crate has its own reader because no crate reads palettes, JPEGs with the pixels of libjpeg,
//! and planes in tiles that overhang the image. Nothing here panics, or allocates more than a strip
//! or tile because a header claims it.

mod directory;
mod page;
mod parts;
mod unpack;

pub(super) use page::{Extra, Meaning, Numbers, Tiff};
