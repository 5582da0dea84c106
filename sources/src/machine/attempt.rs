//! Files under unique names while they are written, and locks.
//!
//! A process holds a lock on what it writes. The lock ends with the process, so what a killed
//! process left behind is told from what a running one still writes.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// End of the name of everything that is not complete.
pub const PARTIAL: &str = ".partial";

/// A locked file, which is removed when it is dropped.
pub struct Locked {
    path: PathBuf,
    _file: File,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Result of an attempt to lock a file.
pub enum Attempted {
    /// The caller has the lock.
    Locked(Locked),
    /// Another process or thread holds the lock.
    Held,
    /// There is no folder, it is read-only, or the file system has no locks.
    Unsupported,
}

/// Creates the file `path` and locks it, without waiting.
pub fn try_lock(path: &Path) -> Result<Attempted> {
    loop {
        let Ok(file) = File::options().write(true).create(true).truncate(false).open(path) else {
            return Ok(Attempted::Unsupported);
        };
        match file.try_lock() {
            // Its owner removes the file before it releases it.
            Ok(()) if is_at(&file, path) => {
                return Ok(Attempted::Locked(Locked { path: path.to_owned(), _file: file }));
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Attempted::Held),
            Err(TryLockError::Error(e)) => {
                tracing::warn!("{}: {e}; do not pack or merge twice at the same time", path.display());
                remove_if_there(path)?;
                return Ok(Attempted::Unsupported);
            }
        }
    }
}

/// Returns `path` with an end that no other process chooses.
pub fn unique(path: &Path) -> PathBuf {
    let mut unique = path.as_os_str().to_owned();
    // The pid alone is the same in many containers that share a folder.
    unique.push(format!(".{:016x}{PARTIAL}", random()));
    unique.into()
}

/// A number that no other process has.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Creates a file with a [unique] name, and locks it, so that no other process takes it for
/// abandoned.
pub fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let unique = unique(path);
        let file = File::create_new(&unique)?;
        match file.try_lock() {
            // Another process may have taken it for abandoned before it was locked.
            Err(TryLockError::WouldBlock) => {}
            Ok(()) if !unique.exists() => {}
            // Where files cannot be locked, they are not removed either.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((unique, file)),
        }
        let _ = fs::remove_file(&unique);
    }
}

/// Removes the file at `path`, unless a process is writing it.
pub fn remove_abandoned(path: &Path) -> Result<()> {
    // Its writer holds a lock on it. NFS locks only files that are open for writing.
    if let Ok(file) = File::options().write(true).open(path)
        && file.try_lock().is_ok()
    {
        remove_if_there(path)?;
    }
    Ok(())
}

/// Removes what killed processes left beside `target`: files and folders with a [unique] name of
/// a file whose own name `is_own`. The caller holds the lock of the target.
pub fn remove_abandoned_of(target: &Path, is_own: impl Fn(&str) -> bool) -> Result<()> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, &e))? {
        let entry = entry.map_err(|e| Error::io(folder, &e))?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.strip_suffix(PARTIAL)?.rsplit_once('.'));
        if parts.is_some_and(|(own, end)| is_hex(end) && is_own(own)) {
            let path = entry.path();
            tracing::info!("{}: left by a process that was ended, and removed", path.display());
            match path.is_dir() {
                true => fs::remove_dir_all(&path).map_err(|e| Error::io(&path, &e))?,
                false => remove_if_there(&path)?,
            }
        }
    }
    Ok(())
}

/// Whether `text` is a number as [`unique`] writes it.
pub fn is_hex(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether `path` still names the open `file`, which is locked and has no content.
fn is_at(file: &File, path: &Path) -> bool {
    // Elsewhere the standard library lacks file numbers. A random length tells files apart.
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

/// Syncs the folder of `target`, so that a rename survives a power failure. Errors are ignored.
pub fn sync_folder_of(target: &Path) {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Removes a file that may be absent.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, &e)),
        _ => Ok(()),
    }
}
