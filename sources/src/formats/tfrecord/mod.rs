//! Reads TFRecord files of `tf.train.Example` messages.

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
