//! Reads LitData chunks, which `litdata.optimize` writes.
//!
//! 1. `index`: parses `index.json`, which lists the chunks and their configuration.
//! 2. `tree`: names each value of a sample after its position in the sample's structure.
//! 3. `serializer`: decodes values.
//! 4. `layout`: locates the values in a sample.
//! 5. `open`: opens the chunks.
//!
//! `data_format` registers the format.

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
