//! Images with the annotations of Pascal VOC.
//!
//! 1. `set`: [`Voc`], the samples.
//! 2. `xml`: one file of annotations.
//!
//! `row`: its row in the table of formats, and `detect`: what it is recognized by.

mod detect;
mod row;
#[cfg(feature = "annotations")]
mod set;
#[cfg(feature = "annotations")]
mod xml;

pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub use set::Voc;
