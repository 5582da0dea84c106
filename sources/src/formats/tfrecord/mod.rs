//! Reads TFRecord files of `tf.train.Example` messages.
//!
//! 1. `source`: [`TfRecord`], the source.
//! 2. `shard`: locates and reads the records in one TFRecord file.
//! 3. `example`: converts the features of a record to cells.
//!
//! `data_format` registers the format, and `detect` recognizes its files.

mod data_format;
mod detect;
#[cfg(feature = "arrays")]
mod example;
#[cfg(feature = "arrays")]
mod shard;
#[cfg(feature = "arrays")]
mod source;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "arrays")]
pub use source::TfRecord;

#[cfg(all(test, feature = "arrays"))]
#[path = "../../../tests/fuzz/tfrecord.rs"]
mod fuzz;
