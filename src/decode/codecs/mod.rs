//! The built-in codecs.
//!
//! 1. `image`: the formats other than JPEG.
//! 2. `registry`: [`Codecs`], the built-in codecs and the user's; `unsupported`: the error for bytes
//!    that none of them matches.

#[cfg(feature = "formats")]
mod image;
mod registry;
mod unsupported;

pub use registry::Codecs;
