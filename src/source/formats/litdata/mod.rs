//! LitData's chunks, written by `litdata.optimize`.
//!
//! 1. `index`: `index.json`, the list of chunks and their configuration.
//! 2. `tree`: the names of the values of a sample, from its structure.
//! 3. `serializer`: the encodings of values.
//! 4. `rows`: the values of a sample in its bytes.
//! 5. `set`: opens the chunks.

mod index;
mod rows;
mod serializer;
mod set;
mod tree;

pub(in crate::source) use set::open;
