//! The trait [`DatasetWriter`], and the lock of a writer's target.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::temp_files::{LockAttempt, Locked, try_lock};
use crate::source::{Location, Sample};

/// Writes samples to a dataset. A writer that is dropped without a call to
/// [`finish`](DatasetWriter::finish) must remove its files.
pub trait DatasetWriter: Send {
    /// Appends a sample.
    ///
    /// # Errors
    /// If writing fails, if the label is not a number, or if the format of the target cannot
    /// represent the sample.
    fn put(&mut self, sample: &Sample<'_>) -> Result<()>;

    /// Flushes all data to the disk, and renames the files to the target.
    ///
    /// # Errors
    /// If no samples were written, if the target now exists and must not be replaced, or if writing
    /// fails.
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// Options of a [`DatasetWriter`].
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Class names, indexed by label, as returned by
    /// [`Source::classes`](crate::source::Source::classes).
    pub classes: Vec<String>,
    /// Whether to replace an existing dataset of the same format once the new one is complete.
    pub force: bool,
    /// Maximum size of a tar shard in bytes, or `None` to write a single file. Only a shard of a
    /// single sample may be larger. LMDB targets ignore this option.
    pub shard_size: Option<u64>,
}

/// Result of a [`DatasetWriter`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Number of samples that were written.
    pub samples: u64,
    /// Total size in bytes of all files.
    pub bytes: u64,
    /// Folder of the LMDB database, or the tar files in order.
    pub paths: Vec<PathBuf>,
}

pub(super) fn no_samples_error(target: &Path) -> Error {
    Error::in_source("there are no samples to write").at_path(target)
}

pub(super) fn exists_error(target: &Path) -> Error {
    let cause = match Location::parse(target).scheme() {
        Some(_) => {
            "already exists, and objects in a store are not replaced: delete the dataset, or pack to a different URL"
        }
        None => "already exists: use force(true) to replace it",
    };
    Error::config(cause).at_path(target)
}

/// Removes a trailing slash, so that a suffix can be appended to the name.
pub(super) fn without_slash(target: &Path) -> PathBuf {
    target.components().collect()
}

/// Locks `target` with the lock file `lock_path`. Creates the folder of the target if necessary.
/// Returns `None` if the lock file cannot be created, or if the file system does not support locks.
/// Fails if another writer, or a merge, holds the lock.
pub(super) fn lock_target(lock_path: &Path, target: &Path) -> Result<Option<Locked>> {
    let folder = target.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
    match try_lock(lock_path)? {
        LockAttempt::Locked(locked) => Ok(Some(locked)),
        LockAttempt::Unsupported => Ok(None),
        LockAttempt::HeldElsewhere => {
            let cause =
                "another process is packing to the same target: wait until it has finished, or choose a different name";
            Err(Error::config(cause).at_path(target))
        }
    }
}
