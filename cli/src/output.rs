//! Writes the files that commands make.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use warpfeed::{Error, Result};

/// Writes `bytes` to the file `path`. If that fails, because the disk is full or the process ends, a
/// file that is there stays as it is.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = match fs::metadata(path) {
        // A pipe or a device, such as /dev/stdout, cannot be replaced.
        Ok(found) if !found.is_file() => fs::write(path, bytes),
        // A link stays, and its target is replaced.
        Ok(_) => fs::canonicalize(path).and_then(|target| replace(&target, bytes)),
        Err(_) => replace(path, bytes),
    };
    written.map_err(|e| Error::io(path, &e))
}

/// Writes a file next to `target`, and renames it.
fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut partial = target.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, target));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}
