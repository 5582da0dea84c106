//! Parquet files, such as those on the Hugging Face Hub.
//!
//! 1. `set`: [`Parquet`], the source.
//! 2. `schema`: the supported columns, and the leaves that contain their values.
//! 3. `thrift`: checks Thrift data before the library decodes it.
//! 4. `input`: reads the bytes of a local file or an object in a store.
//! 5. `footer`: reads the metadata of a file.
//! 6. `header`: parser for page headers. `index` finds the pages of a column.
//! 7. `codec`: decompresses pages. `delta` checks delta-encoded values.
//! 8. `pages`: decodes pages. `block` contains decoded values, and `nested` contains nested lists.
//! 9. `part`: one file, and cached reads of its pages.
//! 10. `files`: all files, and the order in which a loader reads their bytes.
//! 11. `cache`: the cache of decoded pages.
//!
//! The crate `parquet` ("the library") decodes footers and values. It trusts the sizes in a file,
//! so they are checked before it is called, and its panics are converted to errors. This module
//! locates and decompresses pages itself, because the library allocates whatever a page
//! decompresses to, even if the page declares a smaller size.
//!
//! `row` registers the format.

#[cfg(feature = "parquet")]
mod block;
#[cfg(feature = "parquet")]
mod cache;
#[cfg(feature = "parquet")]
mod codec;
#[cfg(feature = "parquet")]
mod delta;
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
mod part;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod remote_tests;
mod row;
#[cfg(feature = "parquet")]
mod schema;
#[cfg(feature = "parquet")]
mod set;
#[cfg(feature = "parquet")]
mod thrift;

pub(crate) use row::ROW;
#[cfg(feature = "parquet")]
pub use set::Parquet;
