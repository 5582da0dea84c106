//! Reads FFCV's `.beton` files, version 2.

mod data_format;
#[cfg(feature = "chunks")]
mod header;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;

pub(crate) use data_format::DATA_FORMAT;
