//! TFRecord files that contain `tf.train.Example` messages.
//!
//! 1. [`TfRecord`]: the source.
//! 2. `shard`: one TFRecord file, and the offsets of its records.
//! 3. `example`: parser that converts the features of a record to cells.
//!
//! `row` registers the format, and `detect` detects its files.

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
