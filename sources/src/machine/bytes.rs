//! Random access to the bytes of a large file, through a memory map or positioned reads.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};

pub(crate) trait Bytes {
    fn len(&self) -> u64;

    /// Returns the `len` bytes at `offset`, which must be within the sequence. The implementation
    /// may read them into `scratch`.
    fn get<'a>(&'a self, offset: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]>;

    /// Returns whether each `get` sends a request to a store.
    fn are_in_store(&self) -> bool {
        false
    }
}

impl Bytes for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn get<'a>(&'a self, offset: u64, len: usize, _scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        Ok(&self[offset as usize..][..len])
    }
}

/// A file that is not memory-mapped, and its length when it was opened.
#[derive(Debug)]
pub(crate) struct Unmapped {
    pub(crate) file: File,
    pub(crate) len: u64,
    pub(crate) path: PathBuf,
}

impl Unmapped {
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, buffer, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Error::in_source(format!(
                "cannot read {} bytes from offset {offset}: the file had {} bytes, and was truncated while open",
                buffer.len(),
                self.len
            ))
            .at_path(&self.path),
            _ => Error::io(&self.path, &e),
        })
    }
}

/// Maximum size of one read, equal to the maximum size of a file in a folder.
const MAX_READ_BYTES: u64 = 1 << 31;

/// Returns the first `len` bytes of `scratch`. The buffer grows if needed but never shrinks, so
/// that no bytes have to be zeroed once it fits the largest sample. Fails if `len` exceeds 2 GiB or
/// memory cannot be allocated.
pub(crate) fn grow_to(scratch: &mut Vec<u8>, len: u64) -> Result<&mut [u8]> {
    if len > MAX_READ_BYTES {
        return Err(Error::in_source(format!("cannot read {len} bytes at once; the limit is {MAX_READ_BYTES}")));
    }
    let len = len as usize;
    if scratch.len() < len {
        scratch
            .try_reserve(len - scratch.len())
            .map_err(|_| Error::new(ErrorKind::Memory, format!("cannot allocate {len} bytes to read")))?;
        scratch.resize(len, 0);
    }
    Ok(&mut scratch[..len])
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (buffer, offset) = (&mut buffer[n..], offset + n as u64),
        }
    }
    Ok(())
}
