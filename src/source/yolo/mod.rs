//! Pictures with the label files of YOLO.
//!
//! 1. `set`: [`Yolo`], the samples.
//! 2. `layout`: which pictures there are, and where their labels lie.
//! 3. `data`: `data.yaml`.
//! 4. `labels`: one label file.

mod data;
mod labels;
mod layout;
mod set;

pub use set::Yolo;
