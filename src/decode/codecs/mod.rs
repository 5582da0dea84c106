//! The built-in codecs.
//!
//! 1. `image`: the codec for formats other than JPEG.
//! 2. `registry`: [`Codecs`], the built-in and custom codecs; `unsupported`: the error for bytes
//!    that no codec matches.

#[cfg(feature = "formats")]
mod image;
mod registry;
mod unsupported;

pub use registry::Codecs;
