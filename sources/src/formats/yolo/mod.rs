//! Reads YOLO datasets: images with label files.

#[cfg(feature = "annotations")]
mod data;
mod data_format;
mod detect;
#[cfg(feature = "annotations")]
mod labels;
#[cfg(feature = "annotations")]
mod layout;
#[cfg(feature = "annotations")]
mod source;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "annotations")]
pub use source::Yolo;
