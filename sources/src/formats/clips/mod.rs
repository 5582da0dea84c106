//! Reads clips from a folder of videos.
//!
//! 1. `options`: [`ClipsOptions`], which determine the frames of a clip.
//! 2. `plan`: computes the indices of these frames from the sample table of a video.
//! 3. `source`: [`Clips`], the source.
//!
//! `data_format` registers the format.

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
