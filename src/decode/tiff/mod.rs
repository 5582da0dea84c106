//! Reads the stored values of the first page of a TIFF or BigTIFF.
//!
//! 1. `directory`: reads tags and their values.
//! 2. `page`: [`Tiff`], the first directory, with validated tags.
//! 3. `chunks`: decodes strips and tiles, reverses the predictor, and converts values to native
//!    byte order.
//! 4. `decompress`: the compression methods.
//!
//! No existing crate supports palettes, JPEG compression with libjpeg's pixels, and planar tiles
//! that extend beyond the image. This module never panics, and holds the pixels of at most one
//! strip or tile at a time, even if a header declares wrong sizes.

mod chunks;
mod decompress;
mod directory;
mod page;

pub(super) use page::{ExtraSamples, Photometric, SampleFormat, Tiff};
