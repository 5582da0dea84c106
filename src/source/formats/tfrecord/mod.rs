//! TFRecord files of `tf.train.Example`.
//!
//! 1. [`TfRecord`]: the records of all shards as a source.
//! 2. `shard`: one file, and the place of each of its records.
//! 3. `example`: the features of a record as cells.

mod example;
mod set;
mod shard;

pub use set::TfRecord;

#[cfg(test)]
#[path = "../../../../tests/fuzz/tfrecord.rs"]
mod fuzz;
