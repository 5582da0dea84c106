//! Pictures with the annotations of COCO: one JSON file, and a folder of pictures.
//!
//! 1. `set`: [`Coco`], the samples.
//! 2. `json`: the contents of the JSON file.
//! 3. `pictures`: finds the folder of the pictures.

mod json;
mod pictures;
mod set;

pub use set::Coco;
