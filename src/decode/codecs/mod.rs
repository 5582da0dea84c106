#[cfg(feature = "formats")]
mod image;
mod registry;
mod unsupported;

pub use registry::Codecs;
