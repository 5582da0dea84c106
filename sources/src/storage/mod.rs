//! Reads the files of a dataset, local or in an object store. Formats request ranges of bytes, and
//! rarely depend on where a file is stored.

pub(super) mod download;
mod file;
mod files;
mod location;
pub(super) mod prefetch;
#[cfg(any(feature = "annotations", feature = "tables"))]
pub(super) mod referenced;
mod row_bytes;
mod siblings;
pub(super) mod splits;
#[allow(clippy::module_inception)]
mod storage;
pub(super) mod tree;

pub(super) use file::OpenFile;
#[cfg(any(feature = "arrays", feature = "parquet"))]
pub(super) use files::are_unchanged;
pub(super) use files::{Files, delegate_to_files};
pub(super) use location::DatasetLocation;
pub use prefetch::Remote;
pub(super) use row_bytes::RowBytes;
pub(super) use siblings::Siblings;
pub(super) use storage::Storage;
