//! The [decoders](super::decoder) of PNG, WebP, GIF, BMP and TIFF.
//!
//! A decoder reads the header when it is opened. It writes pixels as they are stored, of one to four
//! channels and before the EXIF orientation. [`image`](super::image) converts them to RGB.

mod bmp;
mod gif;
mod png;
mod tiff;
mod webp;

pub(super) use bmp::open as bmp;
pub(super) use gif::open as gif;
pub(super) use png::open as png;
pub(super) use tiff::open as tiff;
pub(super) use webp::open as webp;
