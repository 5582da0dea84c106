//! Bytes of a large file: a memory map, or positioned reads.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};

/// Bytes with random access.
pub(crate) trait Bytes {
    fn len(&self) -> u64;

    /// The `len` bytes from offset `at`, which must lie inside. They may be read into `scratch`.
    fn get<'a>(&'a self, at: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]>;

    /// Whether each read is a request to a store.
    fn are_stored(&self) -> bool {
        false
    }
}

impl Bytes for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn get<'a>(&'a self, at: u64, len: usize, _scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        Ok(&self[at as usize..][..len])
    }
}

/// A file that had `len` bytes when it was opened.
#[derive(Debug)]
pub(crate) struct Unmapped {
    pub(crate) file: File,
    pub(crate) len: u64,
    pub(crate) path: PathBuf,
}

impl Unmapped {
    /// Fills `buffer` from offset `at`.
    ///
    /// # Errors
    /// If the file is shorter, or cannot be read.
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, buffer, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Error::in_source(format!(
                "{} bytes from offset {at} on cannot be read: the file had {} bytes and was cut short while open",
                buffer.len(),
                self.len
            ))
            .at_path(&self.path),
            _ => Error::io(&self.path, &e),
        })
    }
}

/// Maximum number of bytes of one sample, as for a file in a folder.
const MOST: u64 = 1 << 31;

/// Returns `len` bytes of `scratch`. `scratch` never shrinks, so no byte is zeroed once it has room
/// for the largest sample.
///
/// # Errors
/// If `len` exceeds 2 GiB or the available memory.
pub(crate) fn room(scratch: &mut Vec<u8>, len: u64) -> Result<&mut [u8]> {
    if len > MOST {
        return Err(Error::in_source(format!("cannot read {len} bytes at once; the limit is {MOST}")));
    }
    let len = len as usize;
    if scratch.len() < len {
        scratch
            .try_reserve(len - scratch.len())
            .map_err(|_| Error::new(ErrorKind::Memory, format!("no memory to read {len} bytes")))?;
        scratch.resize(len, 0);
    }
    Ok(&mut scratch[..len])
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (buffer, at) = (&mut buffer[n..], at + n as u64),
        }
    }
    Ok(())
}
