//! Images with YOLO label files.
//!
//! 1. `set`: [`Yolo`], the source.
//! 2. `layout`: the images, and the paths of their label files.
//! 3. `data`: parser for `data.yaml`.
//! 4. `labels`: parser for label files.
//!
//! `row` registers the format, and `detect` detects its folders.

#[cfg(feature = "annotations")]
mod data;
mod detect;
#[cfg(feature = "annotations")]
mod labels;
#[cfg(feature = "annotations")]
mod layout;
mod row;
#[cfg(feature = "annotations")]
mod set;

pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub use set::Yolo;
