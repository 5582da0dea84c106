//! The files of a data set: on this machine, or in a store. A format says which part of which file
//! a sample needs, and reads it in one way.
//!
//! 1. `file`: [`HeldFile`], a file that stays open: mapped, read, or an object of a store.
//! 2. `files`: [`Files`], all files of a data set with the samples in them: finds the file of a
//!    sample, checks for changes, and fetches ahead.
//! 3. `place`: [`Medium`], where the files lie; opens them.
//! 4. `attempt`: files under unique names while they are written, beside their targets, and locks.

pub(crate) mod attempt;
mod file;
mod files;
mod place;

pub(super) use file::HeldFile;
pub(super) use files::Files;
#[cfg(any(feature = "arrays", feature = "parquet"))]
pub(super) use files::are_unchanged;
pub(super) use place::Medium;
