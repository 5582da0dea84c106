//! Creates temporary files with unique names, and locks files.
//!
//! A process locks each temporary file that it writes. The system releases the lock when the
//! process exits, even if it was killed. A temporary file that another process can lock is
//! therefore treated as abandoned.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Suffix of incomplete files.
pub const PARTIAL: &str = ".partial";

/// A locked file. Dropping this value removes the file.
pub struct Locked {
    path: PathBuf,
    _file: File,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The result of [`try_lock`].
pub enum LockAttempt {
    /// The caller holds the lock.
    Locked(Locked),
    /// Another process or thread holds the lock.
    HeldElsewhere,
    /// The lock file cannot be created, or the file system does not support locks.
    Unsupported,
}

/// Tries to lock the file at `path`, without waiting. Creates the file if it does not exist.
pub fn try_lock(path: &Path) -> Result<LockAttempt> {
    loop {
        let Ok(file) = File::options().write(true).create(true).truncate(false).open(path) else {
            return Ok(LockAttempt::Unsupported);
        };
        match file.try_lock() {
            // The previous owner may have removed the file just before it released the lock. `path`
            // then refers to nothing, or to a new file.
            Ok(()) if is_same_file(&file, path) => {
                return Ok(LockAttempt::Locked(Locked { path: path.to_owned(), _file: file }));
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(LockAttempt::HeldElsewhere),
            Err(TryLockError::Error(e)) => {
                tracing::warn!(
                    "{}: cannot lock this file ({e}); run only one pack or merge in this folder at a time",
                    path.display()
                );
                remove_if_exists(path)?;
                return Ok(LockAttempt::Unsupported);
            }
        }
    }
}

/// Returns `path` with a random suffix, so that each process uses a different name.
pub fn unique(path: &Path) -> PathBuf {
    let mut unique = path.as_os_str().to_owned();
    // Processes in different containers often have the same pid, so the pid alone is not unique in
    // a shared folder.
    unique.push(format!(".{:016x}{PARTIAL}", random()));
    unique.into()
}

/// Returns a random number. Processes that start at the same time get independent numbers.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Creates a file with a [unique] name, and locks it. Without the lock, another process could
/// mistake the file for an abandoned one and remove it.
pub fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let unique = unique(path);
        let file = File::create_new(&unique)?;
        match file.try_lock() {
            // Another process considered the file abandoned and locked it first, to remove it. Try
            // a new name.
            Err(TryLockError::WouldBlock) => {}
            Ok(()) if !unique.exists() => {}
            // If the file system does not support locks, no process removes abandoned files.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((unique, file)),
        }
        let _ = fs::remove_file(&unique);
    }
}

/// Removes the file at `path` unless a process is still writing it. Returns whether the file was
/// removed.
pub fn remove_abandoned(path: &Path) -> Result<bool> {
    // A process that is writing the file holds its lock. NFS can lock only files that are open for
    // writing.
    let Ok(file) = File::options().write(true).open(path) else { return Ok(false) };
    if file.try_lock().is_err() {
        return Ok(false);
    }
    remove_if_exists(path)?;
    Ok(true)
}

/// Removes files and folders next to `target` that killed processes left behind. The names of such
/// files are [unique] names of files for which `is_own` returns true. Files that a process has
/// locked remain. The caller must hold the lock for `target`.
pub fn remove_abandoned_of(target: &Path, is_own: impl Fn(&str) -> bool) -> Result<()> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        let entry = entry.map_err(|e| Error::io(folder, &e))?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.strip_suffix(PARTIAL)?.rsplit_once('.'));
        if parts.is_some_and(|(file_name, random)| is_hex_u64(random) && is_own(file_name)) {
            let path = entry.path();
            let is_removed = match path.is_dir() {
                true => fs::remove_dir_all(&path).map(|()| true).map_err(|e| Error::io(&path, &e))?,
                false => remove_abandoned(&path)?,
            };
            if is_removed {
                tracing::info!("{}: removed this file, which was left behind by a killed process", path.display());
            }
        }
    }
    Ok(())
}

/// Returns whether `text` has the format of the random number in a [unique] name.
pub fn is_hex_u64(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether `file` is at `path`. `file` must be locked and empty.
fn is_same_file(file: &File, path: &Path) -> bool {
    // Outside Unix, the standard library does not expose file IDs, so give the file a random length
    // to identify it.
    #[cfg(not(unix))]
    if file.set_len(random() % (1 << 20)).is_err() {
        return false;
    }
    let Ok((open, named)) = file.metadata().and_then(|open| Ok((open, fs::metadata(path)?))) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (open.dev(), open.ino()) == (named.dev(), named.ino())
    }
    #[cfg(not(unix))]
    {
        open.len() == named.len()
    }
}

/// Syncs the folder that contains `target`, so that a rename survives a power failure. Ignores
/// errors.
pub fn sync_folder_of(target: &Path) {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Removes the file at `path` if it exists.
pub fn remove_if_exists(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, &e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_no_process_writes_are_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("data.bin");
        let (partial, file) = create(&target).unwrap();
        let other = unique(&folder.path().join("other.bin"));
        fs::write(&other, "").unwrap();
        let remove = || remove_abandoned_of(&target, |name| name == "data.bin").unwrap();
        remove();
        assert!(partial.exists(), "removed a file that is still locked");
        drop(file);
        remove();
        assert_eq!((partial.exists(), other.exists()), (false, true));
    }
}
