//! Reads clips from a folder of videos.

mod data_format;
#[cfg(feature = "video")]
mod options;
#[cfg(feature = "video")]
mod plan;
#[cfg(feature = "video")]
mod source;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "video")]
pub use options::ClipsOptions;
#[cfg(feature = "video")]
pub use source::Clips;
