//! Reads TFRecord files of `tf.train.Example` messages.
//!
//! 1. `set`: [`TfRecord`], the source.
//! 2. `shard`: locates and reads the records in one TFRecord file.
//! 3. `example`: converts the features of a record to cells.
//!
//! `row` contains the format's entry in `DATA_FORMATS`, and `detect` recognizes its files.

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
