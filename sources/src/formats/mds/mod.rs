//! MosaicML's MDS shards, written by `streaming.MDSWriter`.
//!
//! 1. `index`: `index.json`, the list of shards and columns.
//! 2. `encoding`: the encodings of columns.
//! 3. `rows`: the columns of a sample in its bytes.
//! 4. `set`: opens the shards.
//!
//! `row`: its row in the table of formats.

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
