//! The [decoders](super::decoder) for PNG, WebP, GIF, BMP and TIFF.
//!
//! The decoders write pixels with one to four channels, without applying the EXIF orientation.
//! [`image`](super::image) converts these pixels to RGB.

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
