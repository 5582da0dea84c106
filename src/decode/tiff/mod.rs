//! Reads the stored values of the first page of a TIFF or BigTIFF.
//!
//! No existing crate supports palettes, JPEG compression with libjpeg's pixels, and planar tiles
//! that extend beyond the image. This module never panics, and holds the pixels of at most one
//! strip or tile at a time, even if a header declares wrong sizes.

mod chunks;
mod decompress;
mod directory;
mod page;

pub(super) use page::{ExtraSamples, Photometric, SampleFormat, Tiff};
