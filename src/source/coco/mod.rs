//! Pictures with the annotations of COCO: one JSON file, and a folder of pictures.
//!
//! 1. `set`: [`Coco`], the samples.
//! 2. `json`: what is taken of the JSON file.
//! 3. `pictures`: where the pictures are looked for.

mod json;
mod pictures;
mod set;

pub use set::Coco;
