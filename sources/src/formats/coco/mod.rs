//! Reads COCO datasets, which consist of a JSON file with annotations and a folder of images.

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
