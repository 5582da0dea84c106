//! Reads the files of a dataset, local or in an object store. The code of a format says which bytes
//! of which file it needs, and rarely depends on where the file is.
//!
//! 1. `file`: [`OpenFile`], an open file: memory-mapped, read with system calls, or in a store.
//! 2. `files`: [`Files`], all files of a dataset. Finds the file that contains a sample, checks for
//!    changes, and prefetches.
//! 3. `row_bytes`: [`RowBytes`], bytes that are borrowed from a file or copied to a buffer.
//! 4. `storage`: [`Storage`], which opens files on this machine or in a store.
//! 5. `ahead`: prefetches from stores. `referenced`: reads files in a store to which samples of
//!    a table or of annotations refer.
//! 6. `download`: downloads whole files to this machine.
//! 7. `tree`: lists a folder on this machine or in a store. `siblings`: finds the annotations
//!    near images. `splits`: selects the files of a split. `location`: [`DatasetLocation`], the
//!    path or URL of a dataset.

pub(super) mod ahead;
pub(super) mod download;
mod file;
mod files;
mod location;
#[cfg(any(feature = "annotations", feature = "tables"))]
pub(super) mod referenced;
mod row_bytes;
mod siblings;
pub(super) mod splits;
#[allow(clippy::module_inception)]
mod storage;
pub(super) mod tree;

pub use ahead::Remote;
pub(super) use file::OpenFile;
#[cfg(any(feature = "arrays", feature = "parquet"))]
pub(super) use files::are_unchanged;
pub(super) use files::{Files, delegate_to_files};
pub(super) use location::DatasetLocation;
pub(super) use row_bytes::RowBytes;
pub(super) use siblings::Siblings;
pub(super) use storage::Storage;
