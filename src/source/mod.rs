//! Bytes by index.
//!
//! 1. [`Folder`]: pictures in class folders.
//! 2. [`Lmdb`]: one LMDB database.
//! 3. [`Tar`]: WebDataset shards, memory-mapped or read.
//! 4. [`Memory`]: samples in memory.
//! 5. [`Concat`]: several data sets as one.
//!
//! A [`Source`] maps an index to a [`Sample`], a handful of named byte fields, without copying
//! where the medium allows. [`open`] finds out from a path which one it is.

mod concat;
mod folder;
mod identity;
mod lmdb;
mod memory;
mod open;
mod pages;
mod sample;
mod tar;

pub use concat::Concat;
pub(crate) use concat::Join;
pub use folder::Folder;
pub use lmdb::{Bare, Layout, Lmdb, MsgPack};
pub use memory::{Memory, OwnedSample};
pub use open::{open, open_unmapped};
pub use sample::{IMAGE_FIELDS, Sample};
pub use tar::Tar;

pub(crate) use lmdb::{CLASSES_KEY, lmdb_error};
pub(crate) use pages::reads_ahead;
pub(crate) use tar::{CLASSES_MEMBER, KEY_RECORD};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};

/// A data set: `len` samples that can be read in any order, from many threads at once.
pub trait Source: Send + Sync {
    /// Number of samples. It never changes while the source is open.
    fn len(&self) -> usize;

    /// Whether there are no samples at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads sample `index`, which is less than [`len`](Source::len).
    ///
    /// The fields may borrow from the source (a memory map) or from `scratch`, which the source may
    /// fill as it likes; its memory is kept from sample to sample. Nothing else needs to be
    /// allocated.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) or [`ErrorKind::Source`](crate::ErrorKind::Source)
    /// with the file; the loader adds the sample.
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>>;

    /// Tells which samples will be read next. A loader calls it once for each batch, in the order of
    /// the batches, before it waits for memory to put the batch into. By then at most
    /// [`prefetch`](crate::Loader::prefetch) + 2 batches are told of that the consumer has not got.
    /// `samples` are the batch's own, in its order; the same sample may come twice.
    ///
    /// For a source that can fetch ahead: row groups, blocks of a network file, pages of a cache.
    /// It should start that and return: the next batch is told of after this call. By default
    /// nothing is done. A batch that was told of may never be read, since an epoch can be broken
    /// off. A panic is an error of the batch.
    fn upcoming(&self, _samples: &[u64]) {}

    /// Whether the medium is still what was opened. Asked at the start of every epoch, from one of
    /// the loader's threads, while nothing else is prefetched: it should take no longer than a few
    /// looks at files. An error ends the epoch before its first batch.
    ///
    /// A file that was written to in place (a shard only; a database may be) is an error. One that
    /// was removed, or replaced by another, is a warning, since the file that was opened is still
    /// there to be read. [`Lmdb`] looks at its file at once. [`Tar`] looks at each shard when the
    /// first sample of it is read after this call: the error is that sample's.
    ///
    /// # Errors
    /// [`ErrorKind::Source`](crate::ErrorKind::Source) with the file.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The label of sample `index`, as [`read`](Source::read) has it. For sources that know it
    /// without reading the whole sample, which by default it does.
    ///
    /// # Errors
    /// As [`read`](Source::read), or a label that is no number.
    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        self.read(index, scratch)?.label()
    }

    /// The file that sample `index` lies in, for errors that name it: a picture of its own, a
    /// shard, a database. None by default, for what lies in no file.
    fn path(&self, _index: usize) -> Option<PathBuf> {
        None
    }

    /// Which of several data sets sample `index` comes from, where they were joined as by
    /// [`Concat`]; else 0.
    fn part(&self, _index: usize) -> usize {
        0
    }

    /// Names of the classes by label, if the medium knows them.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// What it is, for messages and statistics: `folder`, `lmdb`, `tar`, `memory`, or a name of
    /// your own.
    fn kind(&self) -> &'static str {
        "custom"
    }
}

/// A shared source is a source: what [`open`] gives goes into
/// [`Loader::source`](crate::Loader::source) as it is.
impl<S: Source + ?Sized> Source for Arc<S> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn is_empty(&self) -> bool {
        (**self).is_empty()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        (**self).read(index, scratch)
    }

    fn upcoming(&self, samples: &[u64]) {
        (**self).upcoming(samples);
    }

    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        (**self).label(index, scratch)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        (**self).path(index)
    }

    fn part(&self, index: usize) -> usize {
        (**self).part(index)
    }

    fn classes(&self) -> &[String] {
        (**self).classes()
    }

    fn kind(&self) -> &'static str {
        (**self).kind()
    }
}

/// `error` as one of sample `index` of `source`, with its key (empty if that could not be read) and
/// its [file](Source::path). The loader makes all its errors of samples by this; it is for programs
/// that read a source themselves.
pub fn blame(source: &dyn Source, index: usize, key: &str, error: Error) -> Error {
    let error = error.at_sample(index as u64, key);
    // The path may be the user's code, and what it panics with says less than the error at hand.
    match catch_unwind(AssertUnwindSafe(|| source.path(index))) {
        Ok(Some(path)) => error.at_path(path),
        _ => error,
    }
}
