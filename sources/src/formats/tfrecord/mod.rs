//! TFRecord files of `tf.train.Example`.
//!
//! 1. [`TfRecord`]: the records of all shards as a source.
//! 2. `shard`: one file, and the place of each of its records.
//! 3. `example`: the features of a record as cells.
//!
//! `row`: its row in the table of formats, and `detect`: what it is recognized by.

mod detect;
#[cfg(feature = "arrays")]
mod example;
mod row;
#[cfg(feature = "arrays")]
mod set;
#[cfg(feature = "arrays")]
mod shard;

pub(crate) use row::ROW;
#[cfg(feature = "arrays")]
pub use set::TfRecord;

#[cfg(all(test, feature = "arrays"))]
#[path = "../../../tests/fuzz/tfrecord.rs"]
mod fuzz;
