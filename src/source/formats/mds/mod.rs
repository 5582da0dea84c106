//! MosaicML's MDS shards, written by `streaming.MDSWriter`.
//!
//! 1. `index`: `index.json`, the list of shards and columns.
//! 2. `encoding`: the encodings of columns.
//! 3. `rows`: the columns of a sample in its bytes.
//! 4. `set`: opens the shards.

mod encoding;
mod index;
mod rows;
mod set;

pub(in crate::source) use set::open;
