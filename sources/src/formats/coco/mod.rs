//! Pictures with the annotations of COCO: one JSON file, and a folder of pictures.
//!
//! 1. `set`: [`Coco`], the samples.
//! 2. `json`: the contents of the JSON file.
//! 3. `pictures`: finds the folder of the pictures.
//!
//! `row`: its row in the table of formats.

#[cfg(feature = "annotations")]
mod json;
#[cfg(feature = "annotations")]
mod pictures;
mod row;
#[cfg(feature = "annotations")]
mod set;

pub(crate) use row::ROW;
#[cfg(feature = "annotations")]
pub use set::Coco;
