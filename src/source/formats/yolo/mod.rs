//! Pictures with YOLO label files.
//!
//! 1. `set`: [`Yolo`], the samples.
//! 2. `layout`: the pictures, and the paths of their label files.
//! 3. `data`: `data.yaml`.
//! 4. `labels`: a label file.

mod data;
mod labels;
mod layout;
mod set;

pub use set::Yolo;
