//! The built-in codecs.
//!
//! 1. `image`: the codec for PNG, WebP, GIF, BMP and TIFF.
//! 2. `registry`: [`Codecs`], which chooses the codec for an image. `unsupported`: the error for
//!    bytes that no codec matches.

#[cfg(feature = "formats")]
mod image;
mod registry;
mod unsupported;

pub use registry::Codecs;
