//! The files of a dataset: on this machine, or in a store. A format says which part of which file
//! a sample needs, and reads it in one way.
//!
//! 1. `file`: [`HeldFile`], a file that stays open: mapped, read, or an object of a store.
//! 2. `files`: [`Files`], all files of a dataset with the samples in them: finds the file of a
//!    sample, checks for changes, and fetches ahead.
//! 3. [`Part`]: bytes that the medium lends, or has copied to a page.
//! 4. `place`: [`Medium`], where the files lie; opens them.
//! 5. `ahead`: reads from stores ahead of need. `stored`: files that samples name in a store.
//! 6. `download`: brings whole files to this machine.
//! 7. `tree`: lists what lies in a folder or a store, `siblings` what lies around images, and
//!    `splits` chooses among the files. `at`: [`At`], what is opened.

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
