//! Data sets: samples by index.
//!
//! 1. [`Source`]: maps an index to a [`Sample`] of a few named fields. A field is bytes or a typed
//!    [`Value`], without a copy if the medium allows that.
//! 2. [`Folder`]: pictures in class folders.
//! 3. [`Lmdb`]: one LMDB database.
//! 4. [`Tar`]: WebDataset shards, memory-mapped or read.
//! 5. [`Coco`], [`Yolo`], [`Voc`]: pictures with boxes, masks and points.
//! 6. [`Table`]: a CSV, TSV or JSON-lines file: paths of pictures, labels, numbers and text.
//! 7. [`Memory`]: samples in memory.
//! 8. [`Concat`]: several data sets as one.
//! 9. [`Classes`]: a list of class names that numbers the labels; `relabel`: old numbers to new.
//! 10. [`open`]: chooses the source by the content of a path; `formats` has the table of formats.
//!     [`Store`]: files that are not on this machine, by URL; [`Reply`] takes what it reads,
//!     and [`Keep`] keeps it on this machine.
//! 11. [`Lookahead`]: the future reads of a loader, for sources that fetch ahead.
//! 12. [`sample_error`]: adds the sample to an error. `retry`: reads again after transient errors.
//!
//! `ahead` reads from stores ahead of need. `annotated` lists the fields of an annotated picture.
//! `layout` recognises data sets by their files. `file` reads whole files, and `parallel` opens many
//! of them. `kept` writes and reads the indexes next to data sets, and
//! `hash` is their hash.

mod ahead;
#[cfg(feature = "annotations")]
mod annotated;
mod bytes;
mod classes;
#[cfg(feature = "annotations")]
mod coco;
mod concat;
mod file;
mod folder;
mod formats;
mod hash;
mod identity;
mod kept;
mod layout;
#[cfg(feature = "lmdb")]
mod lmdb;
mod lookahead;
mod memory;
mod open;
mod options;
mod pages;
mod parallel;
mod relabel;
mod retry;
mod sample;
mod sample_error;
#[allow(clippy::module_inception)]
mod source;
mod store;
#[cfg(feature = "tables")]
mod table;
mod tar;
mod value;
#[cfg(feature = "annotations")]
mod voc;
#[cfg(feature = "annotations")]
mod yolo;

pub use classes::Classes;
#[cfg(feature = "annotations")]
pub use coco::Coco;
pub use concat::Concat;
pub(crate) use concat::Join;
pub use folder::Folder;
pub use formats::{DATA_FORMATS, DataFormat};
#[cfg(feature = "lmdb")]
pub use lmdb::{Bare, Lmdb, MsgPack, ValueFormat};
pub use lookahead::{Follow, Lookahead, NextUse, Place};
pub use memory::{Memory, OwnedSample};
pub use open::open;
pub use options::Options;
pub use sample::Sample;
pub use sample_error::sample_error;
pub use source::Source;
pub(crate) use store::Stores;
pub use store::{Keep, Location, Object, Reply, Store};
#[cfg(feature = "tables")]
pub use table::{Table, TableOptions};
pub use tar::Tar;
pub use value::{Lists, Number, Numbers, Value};
#[cfg(feature = "annotations")]
pub use voc::Voc;
#[cfg(feature = "annotations")]
pub use yolo::Yolo;

#[cfg(all(feature = "lmdb", feature = "pack"))]
pub(crate) use lmdb::{CLASSES_KEY, lmdb_error};
pub(crate) use pages::reads_ahead;
pub(crate) use retry::{RETRIES, check_retries, retried};
#[cfg(feature = "pack")]
pub(crate) use tar::{CLASSES_MEMBER, KEY_RECORD};

#[cfg(all(test, feature = "annotations", feature = "tables"))]
#[path = "../../tests/fuzz/sets.rs"]
mod fuzz;
