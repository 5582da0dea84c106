//! Reads COCO datasets, which consist of a JSON file with annotations and a folder of images.
//!
//! 1. `set`: [`Coco`], the source.
//! 2. `json`: the structure of the JSON file.
//! 3. `images`: finds the image folder.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

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
