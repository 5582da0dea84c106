//! Reads FFCV's `.beton` files, version 2.
//!
//! 1. `header`: parses the file header and the descriptions of the fields.
//! 2. `layout`: locates and converts the values of a sample.
//! 3. `open`: opens a file.
//!
//! `data_format` registers the format.

mod data_format;
#[cfg(feature = "chunks")]
mod header;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;

pub(crate) use data_format::DATA_FORMAT;
