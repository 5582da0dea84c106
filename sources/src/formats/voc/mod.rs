//! Images with Pascal VOC annotations.
//!
//! 1. `set`: [`Voc`], the source.
//! 2. `xml`: parser for annotation files.
//!
//! `row` registers the format, and `detect` detects its folders.

mod detect;
mod row;
#[cfg(feature = "annotations")]
mod set;
#[cfg(feature = "annotations")]
mod xml;

pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub use set::Voc;
