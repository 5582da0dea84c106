//! [`Input`]: random access to the bytes of a file.

use std::io;

/// Random access to the bytes of a file, which may be memory-mapped or in an object store, for
/// example.
pub trait Input {
    /// Returns the number of bytes in the file.
    fn len(&self) -> u64;

    /// Fills `to` with the bytes that start at `offset`.
    ///
    /// # Errors
    /// If reading fails, or if the file ends before `to` is full.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()>;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Input for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..to.len()));
        to.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Input for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, to)
    }
}

impl Input for std::fs::File {
    fn len(&self) -> u64 {
        self.metadata().map_or(0, |found| found.len())
    }

    fn read_at(&self, offset: u64, mut to: &mut [u8]) -> io::Result<()> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_exact_at(self, std::mem::take(&mut to), offset);
        #[cfg(not(unix))]
        {
            use std::io::{Read, Seek, SeekFrom};
            // Another thread may move the position of a shared handle.
            let mut own = self.try_clone()?;
            own.seek(SeekFrom::Start(offset))?;
            return own.read_exact(std::mem::take(&mut to));
        }
    }
}
