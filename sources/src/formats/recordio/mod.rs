//! Reads RecordIO files, MXNet's format for images with labels.

mod data_format;
#[cfg(feature = "chunks")]
mod index;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;
#[cfg(feature = "chunks")]
mod record;

pub(crate) use data_format::DATA_FORMAT;
