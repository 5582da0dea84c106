//! Opens and reads the files that a dataset names.
//!
//! A list, a table or annotations may name any file. A pipe would block the worker that
//! opens it, and a device may never end. So only regular files are opened, and reads are bounded.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Component, Path};
use std::time::Duration;

use crate::error;

/// Initial size of a buffer. It grows to at most twice the largest file, so that one `read` fetches
/// a file and a second one sees its end.
pub(crate) const FIRST_READ: usize = 64 << 10;

/// Maximum size of a file of a sample. A larger file is refused before it fills the memory.
pub(crate) const MAX_FILE: u64 = 1 << 31;

thread_local! {
    /// Bytes that the files of the sample that this thread reads may still have.
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Left {
    bytes: u64,
    of: u64,
}

/// Runs `read`, which reads a sample. Files of more than `most` bytes together are refused before
/// they fill the memory.
pub fn within<T>(most: u64, read: impl FnOnce() -> T) -> T {
    struct Restore(Option<Left>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _restore = Restore(LEFT.replace(Some(Left { bytes: most, of: most })));
    read()
}

/// Counts `bytes` of a file that is being read.
///
/// # Errors
/// If the sample then has more than its limit.
fn count(bytes: u64) -> Result<()> {
    let Some(left) = LEFT.get() else { return Ok(()) };
    let Some(bytes) = left.bytes.checked_sub(bytes) else {
        let sum = (left.of - left.bytes).saturating_add(bytes);
        return Err(Error::other(format!(
            "the sample has {sum} bytes or more, the limit is {} (max_sample_bytes)",
            left.of
        )));
    };
    LEFT.set(Some(Left { bytes, ..left }));
    Ok(())
}

/// Whether a path in the data is relative and without `..`.
pub(crate) fn is_below(path: &str) -> bool {
    let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.is_empty() && Path::new(path).components().all(stays)
}

/// Opens a regular file. Does not block on other kinds of file.
///
/// # Errors
/// If it is a pipe, a socket, a device or a folder, or cannot be opened.
pub(crate) fn open(path: impl AsRef<Path>) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Without the flag, opening a pipe waits for its writer. Reads of regular files ignore it.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let opened = options.open(path.as_ref());
    // Windows denies access to a folder.
    if cfg!(windows) && opened.is_err() && path.as_ref().is_dir() {
        return Err(Error::new(ErrorKind::InvalidInput, "a folder, not a regular file"));
    }
    let file = opened?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let found = if kind.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
    Err(Error::new(ErrorKind::InvalidInput, format!("{found}, not a regular file")))
}

/// What `path` leads to. `None` if nothing is there.
///
/// # Errors
/// If the system cannot tell. `Path::is_dir` would say no, and another dataset would be opened.
pub(crate) fn found(path: &Path) -> error::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput) => {
            Ok(None)
        }
        #[cfg(unix)]
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENAMETOOLONG)) => Ok(None),
        Err(e) => Err(error::Error::io(path, &e)),
    }
}

/// Whether `path` leads to anything.
///
/// # Errors
/// If the system cannot tell.
pub(crate) fn exists(path: impl AsRef<Path>) -> error::Result<bool> {
    Ok(found(path.as_ref())?.is_some())
}

/// Whether `path` leads to a folder.
///
/// # Errors
/// If the system cannot tell.
pub(crate) fn is_folder(path: impl AsRef<Path>) -> error::Result<bool> {
    Ok(found(path.as_ref())?.is_some_and(|found| found.is_dir()))
}

/// Whether `name` has this extension, in capitals or not.
pub(crate) fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case(extension))
}

/// Whether `path` leads to a regular file.
///
/// # Errors
/// If the system cannot tell.
pub(crate) fn is_file(path: impl AsRef<Path>) -> error::Result<bool> {
    Ok(found(path.as_ref())?.is_some_and(|found| found.is_file()))
}

/// Renames a file, and replaces the file `to`. Windows refuses that for a moment while another
/// process or a scanner has one of them open, so there it is tried for a second.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let mut tries = if cfg!(windows) { 100 } else { 1 };
    loop {
        tries -= 1;
        match fs::rename(from, to) {
            // `ErrorKind` lacks sharing violations.
            Err(e) if tries > 0 && (e.kind() == ErrorKind::PermissionDenied || e.raw_os_error() == Some(32)) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            renamed => return renamed,
        }
    }
}

/// Reads a regular file of up to `most` bytes.
///
/// # Errors
/// If it is larger, is not a regular file, cannot be read, or does not fit into memory.
pub(crate) fn read(path: impl AsRef<Path>, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    append(open(path)?, &mut bytes, most)?;
    Ok(bytes)
}

/// Appends the file of a sample, of up to 2 GiB, to `bytes`, for a
/// [`Source`](crate::Source) of your own whose samples are files.
///
/// # Errors
/// If it cannot be read, is larger, does not fit into memory, or is a folder, a pipe or a device.
pub fn append_file(path: impl AsRef<Path>, bytes: &mut Vec<u8>) -> error::Result<()> {
    let path = path.as_ref();
    let appended = open(path).and_then(|file| append(file, bytes, MAX_FILE));
    appended.map_err(|e| error::Error::io(path, &e))
}

/// The first `len` bytes of a regular file.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn start(path: &Path, len: usize) -> error::Result<Vec<u8>> {
    let mut start = Vec::new();
    let read = open(path).and_then(|file| file.take(len as u64).read_to_end(&mut start));
    read.map_err(|e| error::Error::io(path, &e))?;
    Ok(start)
}

/// Reads a UTF-8 text of up to `most` bytes.
///
/// # Errors
/// The errors of [`read`]. Also if the text is not UTF-8.
pub(crate) fn read_text(path: impl AsRef<Path>, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?).map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

/// Appends the rest of `file`, at most `most` bytes, to `bytes`.
///
/// # Errors
/// If the rest is longer, cannot be read, or does not fit into memory.
pub(crate) fn append(file: File, bytes: &mut Vec<u8>, most: u64) -> Result<()> {
    let len = file.metadata()?.len();
    if len > most {
        return Err(too_large(most));
    }
    count(len)?;
    bytes.try_reserve(len as usize).map_err(|_| no_memory(len))?;
    let read = file.take(most.saturating_add(1)).read_to_end(bytes)?;
    if read as u64 > most { Err(too_large(most)) } else { Ok(()) }
}

/// Reads `file` to its end, into `scratch` from byte `from` on. Returns the end in `scratch`.
///
/// `scratch` keeps its length from file to file, so no byte is zeroed once it is as long as the
/// longest file. This saves the two system calls with which `File::read_to_end` gets the size.
pub(crate) fn read_whole(file: &mut File, scratch: &mut Vec<u8>, from: usize) -> Result<usize> {
    let mut len = from;
    loop {
        if len == scratch.len() {
            if (len - from) as u64 >= MAX_FILE {
                return Err(too_large(MAX_FILE));
            }
            if len > from && LEFT.get().is_some_and(|left| (len - from) as u64 > left.bytes) {
                break;
            }
            let longer = (2 * len).max(FIRST_READ);
            scratch.try_reserve(longer - len).map_err(|_| no_memory(longer as u64))?;
            scratch.resize(longer, 0);
        }
        match file.read(&mut scratch[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    count((len - from) as u64)?;
    Ok(len)
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

    #[test]
    fn the_files_of_a_sample_share_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![7; bytes]).unwrap();
            path
        };
        let (six, large) = (path("six", 6), path("large", 1 << 20));
        let twice = || [read(&six, MAX_FILE), read(&six, MAX_FILE)];
        assert!(within(12, || twice().iter().all(Result::is_ok)) && twice().iter().all(Result::is_ok));
        let [first, second] = within(11, twice);
        let said = second.unwrap_err().to_string();
        assert!(
            first.is_ok() && said == "the sample has 12 bytes or more, the limit is 11 (max_sample_bytes)",
            "{said}"
        );
        let mut scratch = Vec::new();
        let mut whole = |most| within(most, || read_whole(&mut open(&large).unwrap(), &mut scratch, 0));
        assert!(whole((1 << 20) - 1).is_err());
        assert_eq!(whole(1 << 20).unwrap(), 1 << 20);
        let mut scratch = Vec::new();
        assert!(within(100, || read_whole(&mut open(&large).unwrap(), &mut scratch, 0)).is_err());
        assert!(scratch.len() <= FIRST_READ, "{} bytes were read", scratch.len());
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
