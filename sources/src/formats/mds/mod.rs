//! Reads MosaicML's MDS shards, which `streaming.MDSWriter` writes.
//!
//! 1. `index`: parses `index.json`, which lists the shards and the columns.
//! 2. `encoding`: decodes values.
//! 3. `rows`: locates the columns in a sample.
//! 4. `set`: opens the shards.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

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
