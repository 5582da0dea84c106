//! Reads FFCV's `.beton` files, version 2.
//!
//! 1. `header`: parses the file header and the descriptions of the fields.
//! 2. `rows`: locates and converts the values of a sample.
//! 3. `set`: opens a file.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

#[cfg(feature = "chunks")]
mod header;
mod row;
#[cfg(feature = "chunks")]
mod rows;
#[cfg(feature = "chunks")]
mod set;

pub(crate) use row::ROW;
