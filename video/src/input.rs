//! [`Input`] provides random access to the bytes of a file.

use std::io;

/// Random access to the bytes of a file, which may be memory-mapped or in an object store.
pub trait Input {
    /// Returns the number of bytes in the file.
    fn len(&self) -> u64;

    /// Fills `out` with the bytes that start at `offset`.
    ///
    /// # Errors
    /// If reading fails, or if the file ends before `out` is full.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Input for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let source = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..out.len()));
        out.copy_from_slice(source.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Input for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, out)
    }
}

impl Input for std::fs::File {
    fn len(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_exact_at(self, std::mem::take(&mut out), offset);
        #[cfg(windows)]
        {
            let mut offset = offset;
            while !out.is_empty() {
                match std::os::windows::fs::FileExt::seek_read(self, out, offset)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => (out, offset) = (&mut out[n..], offset + n as u64),
                }
            }
            return Ok(());
        }
    }
}
