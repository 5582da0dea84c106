//! The built-in codecs.
//!
//! 1. `image`: the codec for all formats other than JPEG.
//! 2. `registry`: [`Codecs`], which chooses the codec for an image. `unsupported`: the error for
//!    bytes that no codec matches.

#[cfg(feature = "formats")]
mod image;
mod registry;
mod unsupported;

pub use registry::Codecs;
