//! Reads the first page of a TIFF or BigTIFF: the stored values of its pixels.
//!
//! 1. `directory`: tags and their values.
//! 2. `page`: [`Tiff`], the validated first directory.
//! 3. `parts`: decodes strips and tiles to native byte order, and reverses the predictor.
//! 4. `unpack`: the compression methods.
//!
//! We have our own reader because no other crate supports all of the following: palettes, JPEG
//! compression with libjpeg's pixels, and planar tiles that extend beyond the image. This module
//! never panics. A header with false sizes makes it allocate at most one strip or tile.

mod directory;
mod page;
mod parts;
mod unpack;

pub(super) use page::{Extra, Meaning, Numbers, Tiff};
