//! Reads COCO datasets, which consist of a JSON file with annotations and a folder of images.
//!
//! 1. `source`: [`Coco`], the source.
//! 2. `json`: the structure of the JSON file.
//! 3. `images`: finds the image folder.
//!
//! `data_format` registers the format.

mod data_format;
#[cfg(feature = "annotations")]
mod images;
#[cfg(feature = "annotations")]
mod json;
#[cfg(feature = "annotations")]
mod source;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "annotations")]
pub use source::Coco;
