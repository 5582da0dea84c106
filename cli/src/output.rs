//! Writes the output files of commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use warpfeed::{Error, Result};

/// Writes the file at `path`, and replaces an existing file. If the disk is full or the process is
/// killed, an existing regular file stays unchanged.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let result = match fs::metadata(path) {
        // A pipe or a device, such as /dev/stdout, cannot be replaced.
        Ok(metadata) if !metadata.is_file() => fs::write(path, bytes),
        // Keep a symbolic link, and replace its target.
        Ok(_) => fs::canonicalize(path).and_then(|target| replace(&target, bytes)),
        Err(_) => replace(path, bytes),
    };
    result.map_err(|e| Error::io(path, &e))
}

fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut partial = target.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let result = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, target));
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result
}
