//! FFCV's `.beton` files, version 2.
//!
//! 1. `header`: the fields, and the record of each sample.
//! 2. `rows`: the fields of a sample.
//! 3. `set`: opens a file.
//!
//! `row`: its row in the table of formats.

#[cfg(feature = "chunks")]
mod header;
mod row;
#[cfg(feature = "chunks")]
mod rows;
#[cfg(feature = "chunks")]
mod set;

pub(crate) use row::ROW;
