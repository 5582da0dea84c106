//! LitData chunks, written by `litdata.optimize`.
//!
//! 1. `index`: parser for `index.json`, which lists the chunks and their configuration.
//! 2. `tree`: derives the names of a sample's values from its structure.
//! 3. `serializer`: decodes values.
//! 4. `rows`: locates the values in a sample.
//! 5. `set`: opens the chunks.
//!
//! `row` registers the format.

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
