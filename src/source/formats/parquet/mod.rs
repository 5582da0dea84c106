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

mod block;
mod cache;
mod codec;
mod delta;
mod files;
mod footer;
mod header;
mod index;
mod input;
#[cfg(test)]
mod lists_tests;
mod nested;
mod pages;
mod part;
#[cfg(test)]
mod remote_tests;
mod schema;
mod set;
mod thrift;

pub use set::Parquet;
