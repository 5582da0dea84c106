//! Images with YOLO label files.
//!
//! 1. `set`: [`Yolo`], the samples.
//! 2. `layout`: the images, and the paths of their label files.
//! 3. `data`: `data.yaml`.
//! 4. `labels`: a label file.
//!
//! `row`: its row in the table of formats, and `detect`: what it is recognized by.

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
