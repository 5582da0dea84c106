//! Reads images with Pascal VOC annotations.
//!
//! 1. `set`: [`Voc`], the source.
//! 2. `xml`: parses annotation files.
//!
//! `row` contains the format's entry in `DATA_FORMATS`, and `detect` recognizes its folders.

mod detect;
mod row;
#[cfg(feature = "annotations")]
mod set;
#[cfg(feature = "annotations")]
mod xml;

pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub use set::Voc;
