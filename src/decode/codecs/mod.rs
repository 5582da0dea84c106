//! [`Codecs`], which chooses the codec for an image.

#[cfg(feature = "formats")]
mod image;
mod registry;
mod unsupported;

pub use registry::Codecs;
