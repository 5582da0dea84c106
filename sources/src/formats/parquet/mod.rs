//! Reads Parquet files, the most common format on the Hugging Face Hub.
//!
//! The `parquet` crate ("the library") decodes footers and values. It trusts the sizes in a file,
//! so this module checks them first, and converts the library's panics to errors. This module also
//! locates and decompresses pages itself, because the library may decompress a page to more bytes
//! than its header declares.

#[cfg(feature = "parquet")]
mod block;
#[cfg(feature = "parquet")]
mod cache;
#[cfg(feature = "parquet")]
mod codec;
mod data_format;
#[cfg(feature = "parquet")]
mod delta;
#[cfg(feature = "parquet")]
mod file;
#[cfg(feature = "parquet")]
mod files;
#[cfg(feature = "parquet")]
mod footer;
#[cfg(feature = "parquet")]
mod header;
#[cfg(feature = "parquet")]
mod index;
#[cfg(feature = "parquet")]
mod input;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod lists_tests;
#[cfg(feature = "parquet")]
mod nested;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
mod prefetcher;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod remote_tests;
#[cfg(feature = "parquet")]
mod schema;
#[cfg(feature = "parquet")]
mod source;
#[cfg(feature = "parquet")]
mod thrift;
#[cfg(feature = "parquet")]
mod values;

pub(crate) use data_format::DATA_FORMAT;
#[cfg(feature = "parquet")]
pub(crate) use files::SampleRows;
#[cfg(feature = "parquet")]
pub use source::Parquet;
#[cfg(feature = "parquet")]
pub(crate) use values::Rows;
