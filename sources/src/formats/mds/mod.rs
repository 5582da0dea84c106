//! Reads MosaicML's MDS shards, which `streaming.MDSWriter` writes.
//!
//! 1. `index`: parses `index.json`, which lists the shards and the columns.
//! 2. `encoding`: decodes values.
//! 3. `layout`: locates the columns in a sample.
//! 4. `open`: builds the source from an index and its shards.
//!
//! `data_format` registers the format.

mod data_format;
#[cfg(feature = "chunks")]
mod encoding;
#[cfg(feature = "chunks")]
mod index;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;

pub(crate) use data_format::DATA_FORMAT;
