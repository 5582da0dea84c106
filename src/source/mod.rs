//! Bytes by index.
//!
//! 1. [`Source`]: maps an index to a [`Sample`]: a few named byte fields, without a copy if the
//!    medium allows that.
//! 2. [`Folder`]: pictures in class folders.
//! 3. [`Lmdb`]: one LMDB database.
//! 4. [`Tar`]: WebDataset shards, memory-mapped or read.
//! 5. [`Memory`]: samples in memory.
//! 6. [`Concat`]: several data sets as one.
//! 7. [`Classes`]: a list of class names that numbers the labels; `relabel`: old numbers to new.
//! 8. [`open`]: chooses the source by what lies at a path.
//! 9. [`blame`]: makes an error that of a sample.

mod blame;
mod classes;
mod concat;
mod folder;
mod identity;
mod lmdb;
mod memory;
mod open;
mod pages;
mod relabel;
mod sample;
#[allow(clippy::module_inception)]
mod source;
mod tar;

pub use blame::blame;
pub use classes::Classes;
pub use concat::Concat;
pub(crate) use concat::Join;
pub use folder::Folder;
pub use lmdb::{Bare, Lmdb, MsgPack, ValueFormat};
pub use memory::{Memory, OwnedSample};
pub use open::{Options, open};
pub use sample::Sample;
pub use source::Source;
pub use tar::Tar;

pub(crate) use lmdb::{CLASSES_KEY, lmdb_error};
pub(crate) use pages::reads_ahead;
pub(crate) use tar::{CLASSES_MEMBER, KEY_RECORD};
