//! Reads LitData chunks, which `litdata.optimize` writes.
//!
//! 1. `index`: parses `index.json`, which lists the chunks and their configuration.
//! 2. `tree`: names each value of a sample after its position in the sample's structure.
//! 3. `serializer`: decodes values.
//! 4. `rows`: locates the values in a sample.
//! 5. `set`: opens the chunks.
//!
//! `row` contains the format's entry in `DATA_FORMATS`.

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
