//! Reads LitData chunks, which `litdata.optimize` writes.

mod data_format;
#[cfg(feature = "chunks")]
mod index;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;
#[cfg(feature = "chunks")]
mod serializer;
#[cfg(feature = "chunks")]
mod tree;

pub(crate) use data_format::DATA_FORMAT;
