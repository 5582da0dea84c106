use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::attempt::{Attempted, Locked, try_lock};
use crate::source::{Location, Sample};

/// Destination for samples. If dropped without [`finish`](DatasetWriter::finish), it removes its files.
pub trait DatasetWriter: Send {
    /// Appends a sample.
    ///
    /// # Errors
    /// If writing fails, if the label is not a number, or if the target's format cannot represent
    /// the sample.
    fn put(&mut self, sample: &Sample<'_>) -> Result<()>;

    /// Writes pending data to disk and renames the result to the target.
    ///
    /// # Errors
    /// If no samples were put, or if writing fails. The target is then unchanged.
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// Options of a [`DatasetWriter`].
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Names of the classes by label, returned by
    /// [`Source::classes`](crate::source::Source::classes).
    pub classes: Vec<String>,
    /// Whether to replace an existing dataset of the same kind once the new one is complete.
    pub force: bool,
    /// Maximum bytes of a tar shard; `None` means one file. LMDB ignores it.
    pub shard_size: Option<u64>,
}

/// Result of a [`DatasetWriter`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Number of samples.
    pub samples: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// The database's folder, or the tar files in order.
    pub paths: Vec<PathBuf>,
}

pub(super) fn no_samples(target: &Path) -> Error {
    Error::in_source("nothing to write: no samples were put").at_path(target)
}

pub(super) fn exists(target: &Path) -> Error {
    let cause = match Location::of(target).scheme() {
        Some(_) => {
            "exists already, and objects in a store are not replaced: remove the set there, or pack to another URL"
        }
        None => "exists already: use force(true) to replace it",
    };
    Error::config(cause).at_path(target)
}

/// Returns `target` without a trailing slash, so that a suffix can be appended.
pub(super) fn without_slash(target: &Path) -> PathBuf {
    target.components().collect()
}

/// Locks `target` for one writer: the file `lock` beside it. `None` if the file system has no
/// locks.
///
/// # Errors
/// If another writer or a merge holds the lock.
pub(super) fn claim(lock: &Path, target: &Path) -> Result<Option<Locked>> {
    let folder = target.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
    match try_lock(lock)? {
        Attempted::Locked(locked) => Ok(Some(locked)),
        Attempted::Unsupported => Ok(None),
        Attempted::Held => {
            let cause = "another process is packing to this name; wait until it ends, or choose another name";
            Err(Error::config(cause).at_path(target))
        }
    }
}
