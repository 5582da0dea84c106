//! Reads images with Pascal VOC annotations.
//!
//! 1. `source`: [`Voc`], the source.
//! 2. `xml`: parses annotation files.
//!
//! `data_format` registers the format, and `detect` recognizes its folders.

mod data_format;
mod detect;
#[cfg(feature = "annotations")]
mod source;
#[cfg(feature = "annotations")]
mod xml;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "annotations")]
pub use source::Voc;
