//! Reads MosaicML's MDS shards, which `streaming.MDSWriter` writes.

mod data_format;
#[cfg(feature = "chunks")]
mod encoding;
#[cfg(feature = "chunks")]
mod index;
#[cfg(feature = "chunks")]
mod layout;
#[cfg(feature = "chunks")]
mod open;

pub(crate) use data_format::DATA_FORMAT;
