//! LitData's chunks, written by `litdata.optimize`.
//!
//! 1. `index`: `index.json`, the list of chunks and their configuration.
//! 2. `tree`: the names of the values of a sample, from its structure.
//! 3. `serializer`: the encodings of values.
//! 4. `rows`: the values of a sample in its bytes.
//! 5. `set`: opens the chunks.
//!
//! `row`: its row in the table of formats.

#[cfg(feature = "chunks")]
mod index;
mod row;
#[cfg(feature = "chunks")]
mod rows;
#[cfg(feature = "chunks")]
mod serializer;
#[cfg(feature = "chunks")]
mod set;
#[cfg(feature = "chunks")]
mod tree;

pub(crate) use row::ROW;
