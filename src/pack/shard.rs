//! [`Shard`]: writes a tar shard.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use super::member::{self, END};
use crate::error::{Error, Result, reserve};
use crate::source::Sample;

/// Size of the buffer in bytes.
const BUFFER: usize = 1 << 20;

pub(super) trait Sink: Write {
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

pub(super) struct Shard<S: Sink> {
    path: PathBuf,
    file: S,
    /// Bytes that have not been written yet. The shard does not use a `BufWriter`, which would
    /// abort the process if it could not allocate its buffer.
    pending: Vec<u8>,
    bytes: u64,
    samples: u64,
    crc: crc32fast::Hasher,
    /// Path of the last sample's files, without the extension.
    last: String,
    /// The members of a sample, so that a sample is written completely or not at all.
    gathered: Vec<u8>,
    /// The first write error. The shard may then end with an incomplete sample, so no samples can
    /// be added, and the shard cannot be finished.
    failed: Option<Error>,
}

pub(super) struct Finished {
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

impl<S: Sink> Shard<S> {
    /// Begins a shard in the empty file `file`. `path` is used in error messages.
    pub(super) fn begin(path: PathBuf, file: S, classes: &[String]) -> Result<Self> {
        let mut pending = Vec::new();
        reserve(&mut pending, BUFFER).map_err(|e| e.at_path(&path))?;
        let mut shard = Shard {
            path,
            file,
            pending,
            bytes: 0,
            samples: 0,
            crc: crc32fast::Hasher::new(),
            last: String::new(),
            gathered: Vec::new(),
            failed: None,
        };
        shard.write(&member::classes_member(classes)?)?;
        Ok(shard)
    }

    /// Appends a sample, unless the shard already contains samples and would exceed `limit` bytes.
    /// Returns whether the sample was appended.
    pub(super) fn put(&mut self, sample: &Sample<'_>, limit: Option<u64>) -> Result<bool> {
        self.check()?;
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        let stem = member::gather(sample, &self.last, &mut gathered)?;
        let after = self.bytes + (gathered.len() + END.len()) as u64;
        let fits = self.samples == 0 || limit.is_none_or(|limit| after <= limit);
        if fits {
            self.write(&gathered)?;
            self.samples += 1;
            self.last = stem;
        }
        self.gathered = gathered;
        Ok(fits)
    }

    /// Writes the end of the archive, and flushes the shard to the disk.
    pub(super) fn finish(&mut self) -> Result<Finished> {
        self.check()?;
        self.write(&END)?;
        let written = self.flush().and_then(|()| self.file.flush()).and_then(|()| self.file.sync());
        written.map_err(|e| self.fail(&e))?;
        Ok(Finished { bytes: self.bytes, crc: self.crc.clone().finalize() })
    }

    pub(super) fn into_sink(self) -> S {
        self.file
    }

    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer(bytes).map_err(|e| self.fail(&e))?;
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends `bytes` to the buffer. If they do not fit, writes the buffer to the file first.
    fn buffer(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.pending.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() > BUFFER {
            return self.file.write_all(bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    fn fail(&mut self, e: &io::Error) -> Error {
        // If an upload fails, the I/O error contains an [`Error`] of this crate.
        let original = e.get_ref().and_then(|e| e.downcast_ref::<Error>()).cloned();
        let error = original.unwrap_or_else(|| Error::io(&self.path, e));
        self.failed = Some(error.clone());
        error
    }
}
