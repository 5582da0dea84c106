//! Parquet files, as the hub of Hugging Face has them.
//!
//! 1. `set`: [`Parquet`], the source.
//! 2. `schema`: the columns that are read, and where their values lie.
//! 3. `thrift`: checks what the library decodes.
//! 4. `input`: the bytes of a file on this machine or in a store.
//! 5. `footer`: the metadata of a file.
//! 6. `header`: the header of a page; `index`: the places of the pages of a column.
//! 7. `codec`: decompresses pages; `delta`: checks values that are stored as differences.
//! 8. `pages`: decodes pages; `block`: their values; `nested`: those in lists of lists.
//! 9. `part`: one file, and its pages.
//! 10. `files`: all files, and the order in which a loader needs their bytes.
//! 11. `cache`: keeps decoded pages, each decoded once, in bounded memory.
//!
//! The library `parquet` decodes footers and values. It trusts the sizes in a file, so they are
//! checked first, and its panics become errors. Pages are found and decompressed here, because the
//! library takes as much memory as a page decompresses to, whatever the page declares.
//!
//! `row`: its row in the table of formats.

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
