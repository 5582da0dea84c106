//! Pictures with the annotations of Pascal VOC.
//!
//! 1. `set`: [`Voc`], the samples.
//! 2. `xml`: one file of annotations.

mod set;
mod xml;

pub use set::Voc;
