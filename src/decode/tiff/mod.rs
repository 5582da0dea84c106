//! Reads the stored values of the first page of a TIFF or BigTIFF.
//!
//! When this module was written, no existing crate supported all of the following: palettes, JPEG
//! compression with libjpeg's pixels, and planar tiles that extend beyond the image. This module
//! must not panic on an invalid file. It decodes one strip or tile at a time, and rejects strips
//! and tiles that exceed a limit, so that wrong sizes in a header cannot cause unlimited
//! allocations.

mod chunks;
mod decompress;
mod directory;
mod page;

pub(super) use page::{ExtraSamples, Photometric, SampleFormat, Tiff};
