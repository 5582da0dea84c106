//! Opens and reads the files that a data set names.
//!
//! A list, a table or annotations may name any file. A pipe would block the worker that
//! opens it, and a device may never end. So only regular files are opened, and reads are bounded.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Component, Path};

/// Initial size of a buffer. It grows to at most twice the largest file, so that one `read` fetches
/// a file and a second one sees its end.
pub(super) const FIRST_READ: usize = 64 << 10;

/// Maximum size of a file of a sample. A larger file is refused before it fills the memory.
pub(super) const MAX_FILE: u64 = 1 << 31;

/// Whether a path in the data is relative and without `..`.
pub(super) fn is_below(path: &str) -> bool {
    let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.is_empty() && Path::new(path).components().all(stays)
}

/// Opens a regular file. Does not block on other kinds of file.
///
/// # Errors
/// If it is a pipe, a socket, a device or a folder, or cannot be opened.
pub(super) fn open(path: impl AsRef<Path>) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Without the flag, opening a pipe waits for its writer. Reads of regular files ignore it.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let found = if kind.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
    Err(Error::new(ErrorKind::InvalidInput, format!("{found}, not a regular file")))
}

/// Reads a regular file of up to `most` bytes.
///
/// # Errors
/// If it is larger, is not a regular file, cannot be read, or does not fit into memory.
pub(super) fn read(path: impl AsRef<Path>, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    append(open(path)?, &mut bytes, most)?;
    Ok(bytes)
}

/// Reads a UTF-8 text of up to `most` bytes.
///
/// # Errors
/// The errors of [`read`]. Also if the text is not UTF-8.
pub(super) fn read_text(path: impl AsRef<Path>, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?).map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

/// Appends the rest of `file`, at most `most` bytes, to `bytes`.
///
/// # Errors
/// If the rest is longer, cannot be read, or does not fit into memory.
pub(super) fn append(file: File, bytes: &mut Vec<u8>, most: u64) -> Result<()> {
    let len = file.metadata()?.len();
    if len > most {
        return Err(too_large(most));
    }
    bytes.try_reserve(len as usize).map_err(|_| no_memory(len))?;
    let read = file.take(most.saturating_add(1)).read_to_end(bytes)?;
    if read as u64 > most { Err(too_large(most)) } else { Ok(()) }
}

/// Reads `file` to its end, into `scratch` from byte `from` on. Returns the end in `scratch`.
///
/// `scratch` keeps its length from file to file, so no byte is zeroed once it is as long as the
/// longest file. This saves the two system calls with which `File::read_to_end` gets the size.
pub(super) fn read_whole(file: &mut File, scratch: &mut Vec<u8>, from: usize) -> Result<usize> {
    let mut len = from;
    loop {
        if len == scratch.len() {
            if (len - from) as u64 >= MAX_FILE {
                return Err(too_large(MAX_FILE));
            }
            let longer = (2 * len).max(FIRST_READ);
            scratch.try_reserve(longer - len).map_err(|_| no_memory(longer as u64))?;
            scratch.resize(longer, 0);
        }
        match file.read(&mut scratch[len..]) {
            Ok(0) => return Ok(len),
            Ok(n) => len += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn too_large(most: u64) -> Error {
    Error::other(format!("the file has more than {most} bytes, which is the limit"))
}

fn no_memory(bytes: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes of the file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_up_to_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(read(&path, 4).unwrap_err().to_string().contains("more than 4 bytes"));
        assert_eq!(open(folder.path()).unwrap_err().to_string(), "a folder, not a regular file");
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[cfg(unix)]
    #[test]
    fn a_device_that_never_ends_is_refused_and_a_sparse_file_too() {
        let e = open("/dev/zero").unwrap_err();
        assert_eq!(e.to_string(), "a pipe, a socket or a device, not a regular file");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(read(&path, MAX_FILE).unwrap_err().to_string().contains("which is the limit"));
    }
}
