//! FFCV's `.beton` files, version 2.
//!
//! 1. `header`: parser for the fields, and their offsets in a record.
//! 2. `rows`: locates and converts the values of a sample.
//! 3. `set`: opens a file.
//!
//! `row` registers the format.

#[cfg(feature = "chunks")]
mod header;
mod row;
#[cfg(feature = "chunks")]
mod rows;
#[cfg(feature = "chunks")]
mod set;

pub(crate) use row::ROW;
