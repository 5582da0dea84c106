//! Reads Parquet files, the most common format on the Hugging Face Hub.
//!
//! 1. `source`: [`Parquet`], the source.
//! 2. `schema`: the columns of a file, and the leaf columns that contain their values.
//! 3. `thrift`: parses Thrift's compact encoding, and checks it before the library decodes it.
//! 4. `input`: reads bytes from a local file or an object in a store.
//! 5. `footer`: reads the metadata of a file.
//! 6. `header`: parses page headers. `index` locates the pages of a column.
//! 7. `codec`: decompresses pages. `delta` checks delta-encoded values.
//! 8. `pages`: decodes pages. `block` contains decoded pages, and `nested` contains nested lists.
//! 9. `file`: one file. Reads its pages through the cache.
//! 10. `files`: all files of a dataset, and the order in which a loader prefetches their bytes.
//!     `prefetcher`: the prefetcher of a loader.
//! 11. `cache`: the cache of decoded pages.
//! 12. `values`: reads single values, for formats that store their data in Parquet.
//!
//! The `parquet` crate ("the library") decodes footers and values. It trusts the sizes in a file,
//! so this module checks them first, and converts the library's panics to errors. This module also
//! locates and decompresses pages itself, because the library would decompress a page to any size,
//! even if the page declares a smaller size.
//!
//! `data_format` registers the format.

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
