use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::Sample;

/// A sink for samples. Dropped without [`finish`](Writer::finish), it removes what it wrote.
pub trait Writer: Send {
    /// Adds a sample behind those before it.
    ///
    /// # Errors
    /// If the disk does not take it, its label is not a number, or it is of a form that the target
    /// cannot hold.
    fn put(&mut self, sample: &Sample<'_>) -> Result<()>;

    /// Writes what is outstanding to the disk and gives the target its name.
    ///
    /// # Errors
    /// If there were no samples, or the disk does not take it; the target is then not there, or as
    /// it was before.
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// What a [`Writer`] is told beforehand.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Names of the classes by label; they come back from
    /// [`Source::classes`](crate::source::Source::classes).
    pub classes: Vec<String>,
    /// Whether a data set of the same kind that is there already is replaced, once the new one is
    /// whole.
    pub force: bool,
    /// Bytes after which a new tar shard is begun, a single file if `None`. No effect on LMDB.
    pub shard_size: Option<u64>,
}

/// What a [`Writer`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    Error::config("exists already, and replacing it was not asked for (`.force(true)`, or `warpfeed pack --force`)")
        .at_path(target)
}

/// `target` without a slash at its end, behind which no name can be continued.
pub(super) fn without_slash(target: &Path) -> PathBuf {
    target.components().collect()
}

/// `target` with `.partial` behind it.
pub(super) fn partial(target: &Path) -> PathBuf {
    let mut path = target.as_os_str().to_owned();
    path.push(".partial");
    path.into()
}

/// Makes the names in the folder of `target` survive a power cut. Not every file system can do it,
/// and none loses data for want of it.
pub(super) fn sync_folder_of(target: &Path) {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Removes a file that may be absent.
pub(super) fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, &e)),
        _ => Ok(()),
    }
}
