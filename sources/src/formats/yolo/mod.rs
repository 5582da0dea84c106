//! Reads images with YOLO label files.
//!
//! 1. `set`: [`Yolo`], the source.
//! 2. `layout`: lists the images, and finds their label files.
//! 3. `data`: parses `data.yaml`.
//! 4. `labels`: parses label files.
//!
//! `row` contains the format's entry in `DATA_FORMATS`, and `detect` recognizes its folders.

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
