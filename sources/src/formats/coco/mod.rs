//! Images with COCO annotations, which consist of one JSON file and a folder of images.
//!
//! 1. `set`: [`Coco`], the source.
//! 2. `json`: the structure of the JSON file.
//! 3. `images`: finds the image folder.
//!
//! `row` registers the format.

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
