//! Images with the annotations of COCO: one JSON file, and a folder of images.
//!
//! 1. `set`: [`Coco`], the samples.
//! 2. `json`: the contents of the JSON file.
//! 3. `images`: finds the folder of the images.
//!
//! `row`: its row in the table of formats.

#[cfg(feature = "annotations")]
mod images;
#[cfg(feature = "annotations")]
mod json;
mod row;
#[cfg(feature = "annotations")]
mod set;

pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub use set::Coco;
