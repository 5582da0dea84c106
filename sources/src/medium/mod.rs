//! Access to the files of a dataset, whether they are local or in an object store. A format
//! determines which bytes of which file a sample needs, and reads them the same way from every
//! medium.
//!
//! 1. `file`: [`HeldFile`], an open file: memory-mapped, read with system calls, or an object in a
//!    store.
//! 2. `files`: [`Files`], all files of a dataset. Finds the file of a sample, checks for changes,
//!    and prefetches.
//! 3. [`Part`], bytes that are borrowed from the medium or copied to a page buffer.
//! 4. `place`: [`Medium`], which knows where the files are and opens them.
//! 5. `ahead`: prefetches from stores. `stored`: reads files in a store that samples refer to.
//! 6. `download`: downloads whole files to a local folder.
//! 7. `tree`: lists a folder or a store. `siblings`: lists the files and folders next to images.
//!    `splits`: selects the files of one split. `at`: [`At`], the dataset to open.

pub(super) mod ahead;
mod at;
pub(super) mod download;
mod file;
mod files;
mod part;
mod place;
mod siblings;
pub(super) mod splits;
#[cfg(any(feature = "annotations", feature = "tables"))]
pub(super) mod stored;
pub(super) mod tree;

pub use ahead::Remote;
pub(super) use at::At;
pub(super) use file::HeldFile;
#[cfg(any(feature = "arrays", feature = "parquet"))]
pub(super) use files::are_unchanged;
pub(super) use files::{Files, of_files};
pub(super) use part::Part;
pub(super) use place::Medium;
pub(super) use siblings::Around;
