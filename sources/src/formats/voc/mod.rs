//! Reads images with Pascal VOC annotations.

mod data_format;
mod detect;
#[cfg(feature = "annotations")]
mod source;
#[cfg(feature = "annotations")]
mod xml;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "annotations")]
pub use source::Voc;
