//! Opens and reads the files that a dataset refers to.
//!
//! A list, a table or annotations may refer to any path. Opening a pipe would block the worker, and
//! reading a device might never end, so only regular files are opened, and reads have a size limit.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Component, Path};
use std::time::Duration;

use crate::error;

/// Initial size of a read buffer. The buffer is doubled when a file fills it. Once it is larger
/// than every file, reading a file takes two system calls. The second one returns 0.
pub(crate) const FIRST_READ_BYTES: usize = 64 << 10;

/// Maximum size of a file, in bytes. The limit prevents a huge file from exhausting memory.
pub(crate) const MAX_FILE: u64 = 1 << 31;

thread_local! {
    /// The byte budget for the sample that this thread is reading.
    static BUDGET: Cell<Option<ByteBudget>> = const { Cell::new(None) };
}

/// Byte budget for all files of one sample.
#[derive(Clone, Copy)]
struct ByteBudget {
    remaining: u64,
    total: u64,
}

/// Runs `read`, which reads a sample. Reading fails if the sample's files have more than
/// `max_bytes` bytes in total, so that one sample cannot exhaust memory.
pub fn within<T>(max_bytes: u64, read: impl FnOnce() -> T) -> T {
    struct Restore(Option<ByteBudget>);
    impl Drop for Restore {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }
    let _restore = Restore(BUDGET.replace(Some(ByteBudget { remaining: max_bytes, total: max_bytes })));
    read()
}

fn charge(bytes: u64) -> Result<()> {
    let Some(budget) = BUDGET.get() else { return Ok(()) };
    let Some(remaining) = budget.remaining.checked_sub(bytes) else {
        let sum = (budget.total - budget.remaining).saturating_add(bytes);
        let limit = budget.total;
        let cause = format!("the sample has at least {sum} bytes, but max_sample_bytes is {limit}");
        return Err(Error::new(ErrorKind::FileTooLarge, cause));
    };
    BUDGET.set(Some(ByteBudget { remaining, ..budget }));
    Ok(())
}

/// Returns whether a path in a dataset file is relative and contains no `..`.
pub(crate) fn is_below(path: &str) -> bool {
    let stays = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.is_empty() && Path::new(path).components().all(stays)
}

/// Opens a regular file. Fails instead of blocking for pipes, sockets, devices and folders.
pub(crate) fn open(path: impl AsRef<Path>) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Without `O_NONBLOCK`, opening a pipe would wait for a writer. The flag does not affect
        // regular files.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let opened = options.open(path.as_ref());
    // On Windows, opening a folder fails with "access denied".
    if cfg!(windows) && opened.is_err() && path.as_ref().is_dir() {
        return Err(Error::new(ErrorKind::InvalidInput, "a folder, not a regular file"));
    }
    let file = opened?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let what = if kind.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
    Err(Error::new(ErrorKind::InvalidInput, format!("{what}, not a regular file")))
}

/// Returns the metadata of `path`, or `None` if nothing exists there or the path is invalid. Unlike
/// `Path::is_dir`, this function reports I/O errors, because treating an error as "not a folder"
/// would select the wrong format.
pub(crate) fn metadata(path: &Path) -> error::Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(info) => Ok(Some(info)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput) => {
            Ok(None)
        }
        #[cfg(unix)]
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENAMETOOLONG)) => Ok(None),
        Err(e) => Err(error::Error::io(path, &e)),
    }
}

pub(crate) fn exists(path: impl AsRef<Path>) -> error::Result<bool> {
    Ok(metadata(path.as_ref())?.is_some())
}

pub(crate) fn is_folder(path: impl AsRef<Path>) -> error::Result<bool> {
    Ok(metadata(path.as_ref())?.is_some_and(|info| info.is_dir()))
}

pub(crate) fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case(extension))
}

pub(crate) fn is_file(path: impl AsRef<Path>) -> error::Result<bool> {
    Ok(metadata(path.as_ref())?.is_some_and(|info| info.is_file()))
}

/// Renames `from` to `to`, and replaces an existing file. On Windows, retries for up to a second,
/// because a rename fails while another process, such as a virus scanner, has either file open.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let mut tries = if cfg!(windows) { 100 } else { 1 };
    loop {
        tries -= 1;
        match fs::rename(from, to) {
            // 32 is `ERROR_SHARING_VIOLATION`, for which `ErrorKind` has no variant.
            Err(e) if tries > 0 && (e.kind() == ErrorKind::PermissionDenied || e.raw_os_error() == Some(32)) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            renamed => return renamed,
        }
    }
}

pub(crate) fn read(path: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    append(open(path)?, &mut bytes, max_bytes)?;
    Ok(bytes)
}

/// Appends the content of a file of up to 2 GiB to `bytes`. This function is meant for custom
/// [`Source`](crate::Source) implementations.
///
/// # Errors
/// If the file cannot be read, exceeds 2 GiB, does not fit in memory, or is a folder, a pipe or a
/// device. Also fails if the sample would exceed the loader's `max_sample_bytes`.
pub fn append_file(path: impl AsRef<Path>, bytes: &mut Vec<u8>) -> error::Result<()> {
    let path = path.as_ref();
    let appended = open(path).and_then(|file| append(file, bytes, MAX_FILE));
    appended.map_err(|e| error::Error::io(path, &e))
}

pub(crate) fn read_head(path: &Path, len: usize) -> error::Result<Vec<u8>> {
    let mut head = Vec::new();
    let read = open(path).and_then(|file| file.take(len as u64).read_to_end(&mut head));
    read.map_err(|e| error::Error::io(path, &e))?;
    Ok(head)
}

pub(crate) fn read_text(path: impl AsRef<Path>, max_bytes: u64) -> Result<String> {
    String::from_utf8(read(path, max_bytes)?).map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

pub(crate) fn append(file: File, bytes: &mut Vec<u8>, max_bytes: u64) -> Result<()> {
    let len = file.metadata()?.len();
    if len > max_bytes {
        return Err(too_large(max_bytes));
    }
    charge(len)?;
    bytes.try_reserve(len as usize).map_err(|_| no_memory(len))?;
    let read = file.take(max_bytes.saturating_add(1)).read_to_end(bytes)?;
    if read as u64 > max_bytes { Err(too_large(max_bytes)) } else { Ok(()) }
}

/// Reads `file` to its end, writes the bytes to `scratch` at offset `from`, and returns the offset
/// in `scratch` at which the bytes end. Fails if the file exceeds [`MAX_FILE`] bytes.
///
/// `scratch` never shrinks, so bytes have to be zeroed only when it grows. Unlike
/// `File::read_to_end`, this function does not need two system calls to determine the file size.
pub(crate) fn read_whole(file: &mut File, scratch: &mut Vec<u8>, from: usize) -> Result<usize> {
    read_up_to(file, scratch, from, MAX_FILE as usize)
}

fn read_up_to(file: &mut File, scratch: &mut Vec<u8>, from: usize, max_bytes: usize) -> Result<usize> {
    // One byte more than the limit shows that the file is too large.
    let max_len = from.saturating_add(max_bytes).saturating_add(1);
    let mut len = from;
    loop {
        if len == max_len {
            return Err(too_large(max_bytes as u64));
        }
        if len == scratch.len() {
            if len > from && BUDGET.get().is_some_and(|budget| (len - from) as u64 > budget.remaining) {
                break;
            }
            let new_len = len.saturating_mul(2).max(FIRST_READ_BYTES).min(max_len);
            scratch.try_reserve(new_len - len).map_err(|_| no_memory(new_len as u64))?;
            scratch.resize(new_len, 0);
        }
        let end = scratch.len().min(max_len);
        match file.read(&mut scratch[len..end]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    charge((len - from) as u64)?;
    Ok(len)
}

fn too_large(max_bytes: u64) -> Error {
    Error::other(format!("the file exceeds the limit of {max_bytes} bytes"))
}

fn no_memory(bytes: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {bytes} bytes for the file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_size_limit_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(read(&path, 4).unwrap_err().to_string().contains("exceeds the limit of 4 bytes"));
        assert_eq!(open(folder.path()).unwrap_err().to_string(), "a folder, not a regular file");
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn the_size_limit_does_not_depend_on_the_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        for (buffer_len, from) in [(0, 0), (3, 0), (5, 0), (100, 0), (3, 3), (5, 3), (8, 3), (100, 3)] {
            let read = |max_bytes| {
                let mut scratch = vec![7; buffer_len];
                let end = read_up_to(&mut open(&path).unwrap(), &mut scratch, from, max_bytes)?;
                Ok::<_, Error>(scratch[from..end].to_vec())
            };
            assert_eq!(read(5).unwrap(), b"12345", "a buffer of {buffer_len} bytes, read from {from}");
            let e = read(4).unwrap_err().to_string();
            assert_eq!(e, "the file exceeds the limit of 4 bytes", "a buffer of {buffer_len} bytes, read from {from}");
        }
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
        let message = second.unwrap_err().to_string();
        let expected = "the sample has at least 12 bytes, but max_sample_bytes is 11";
        assert!(first.is_ok() && message == expected, "{message}");
        let mut scratch = Vec::new();
        let mut read_file = |max_bytes| within(max_bytes, || read_whole(&mut open(&large).unwrap(), &mut scratch, 0));
        assert!(read_file((1 << 20) - 1).is_err());
        assert_eq!(read_file(1 << 20).unwrap(), 1 << 20);
        let mut scratch = Vec::new();
        assert!(within(100, || read_whole(&mut open(&large).unwrap(), &mut scratch, 0)).is_err());
        assert!(scratch.len() <= FIRST_READ_BYTES, "{} bytes were read", scratch.len());
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_oversized_sparse_files_are_refused() {
        let e = open("/dev/zero").unwrap_err();
        assert_eq!(e.to_string(), "a pipe, a socket or a device, not a regular file");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(read(&path, MAX_FILE).unwrap_err().to_string().contains("exceeds the limit of"));
    }
}
