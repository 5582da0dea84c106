//! Reads YOLO datasets: images with label files.
//!
//! 1. `source`: [`Yolo`], the source.
//! 2. `layout`: lists the images, and derives the paths of their label files.
//! 3. `data`: parses `data.yaml`.
//! 4. `labels`: parses label files.
//!
//! `data_format` describes the format for the registry, and `detect` recognizes its folders.

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
