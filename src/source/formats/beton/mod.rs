//! FFCV's `.beton` files, version 2.
//!
//! 1. `header`: the fields, and the record of each sample.
//! 2. `rows`: the fields of a sample.
//! 3. `set`: opens a file.

mod header;
mod rows;
mod set;

pub(in crate::source) use set::open;
