//! MosaicML's MDS shards, written by `streaming.MDSWriter`.
//!
//! 1. `index`: parser for `index.json`, which lists the shards and the columns.
//! 2. `encoding`: decodes values.
//! 3. `rows`: locates the columns in a sample.
//! 4. `set`: opens the shards.
//!
//! `row` registers the format.

#[cfg(feature = "chunks")]
mod encoding;
#[cfg(feature = "chunks")]
mod index;
mod row;
#[cfg(feature = "chunks")]
mod rows;
#[cfg(feature = "chunks")]
mod set;

pub(crate) use row::ROW;
