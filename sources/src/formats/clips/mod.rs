//! Reads clips from a folder of videos.
//!
//! 1. `options`: [`ClipsOptions`], which determine the frames of a clip.
//! 2. `plan`: computes the indices of these frames from the sample table of a video.
//! 3. `set`: [`Clips`], the source.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

#[cfg(feature = "video")]
mod options;
#[cfg(feature = "video")]
mod plan;
mod row;
#[cfg(feature = "video")]
mod set;

#[cfg(feature = "video")]
pub use options::ClipsOptions;
pub(crate) use row::ROW;
#[cfg(feature = "video")]
pub use set::Clips;
