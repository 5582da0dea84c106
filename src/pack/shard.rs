//! [`Shard`] writes a tar shard.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use super::member::{self, END_BLOCKS};
use crate::error::{Error, Result, reserve};
use crate::source::{IndexBuilder, Sample};

const BUFFER_BYTES: usize = 1 << 20;

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
    buffer: Vec<u8>,
    bytes: u64,
    samples: u64,
    crc: crc32fast::Hasher,
    /// Path of the last sample's files, without the extension.
    last_stem: String,
    /// Buffer for the members of a sample, so that the sample is written completely or not at all.
    members: Vec<u8>,
    /// The index of the shard. `None` if no index is stored, or if the shard has too many field names
    /// or bytes for an index.
    index: Option<IndexBuilder>,
    /// The first write error. The shard may then end with an incomplete sample, so no samples can
    /// be added, and the shard cannot be finished.
    error: Option<Error>,
}

pub(super) struct ShardDigest {
    pub(super) bytes: u64,
    pub(super) crc: u32,
    /// The content of `NAME.tar.index`, if [`with_index`](Shard::with_index) was called.
    pub(super) index: Option<Vec<u8>>,
}

impl<S: Sink> Shard<S> {
    /// Begins a shard in the empty file `file`. `path` is used in error messages.
    pub(super) fn create(path: PathBuf, file: S, classes: &[String]) -> Result<Self> {
        let mut buffer = Vec::new();
        reserve(&mut buffer, BUFFER_BYTES).map_err(|e| e.at_path(&path))?;
        let mut shard = Shard {
            path,
            file,
            buffer,
            bytes: 0,
            samples: 0,
            crc: crc32fast::Hasher::new(),
            last_stem: String::new(),
            members: Vec::new(),
            index: None,
            error: None,
        };
        shard.write(&member::classes_member(classes)?)?;
        Ok(shard)
    }

    /// Collects the index of the shard, which must be empty.
    pub(super) fn with_index(mut self, classes: &[String]) -> Self {
        self.index = Some(IndexBuilder::new(classes));
        self
    }

    /// Appends a sample, unless the shard already contains samples and would exceed `max_bytes`
    /// bytes. Returns whether the sample was appended.
    pub(super) fn put(&mut self, sample: &Sample<'_>, max_bytes: Option<u64>) -> Result<bool> {
        self.check()?;
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        let mut fields = Vec::new();
        let stem = member::append_sample(sample, &self.last_stem, &mut members, |name, range| {
            if self.index.is_some() {
                fields.push((name.to_owned(), range));
            }
        })?;
        let new_bytes = self.bytes + (members.len() + END_BLOCKS.len()) as u64;
        let has_space = self.samples == 0 || max_bytes.is_none_or(|max_bytes| new_bytes <= max_bytes);
        if has_space {
            let start = self.bytes;
            self.write(&members)?;
            if let Some(index) = &mut self.index {
                index.begin_sample(sample.key());
                let mut add = |(name, range): &(String, Range<usize>)| {
                    index.push_field(name, start + range.start as u64, range.len() as u64)
                };
                // Without an index, readers scan the shard.
                if fields.iter().try_for_each(&mut add).is_err() {
                    self.index = None;
                }
            }
            self.samples += 1;
            self.last_stem = stem;
        }
        self.members = members;
        Ok(has_space)
    }

    /// Writes the end of the archive, and flushes the shard to the disk.
    pub(super) fn finish(&mut self) -> Result<ShardDigest> {
        self.check()?;
        self.write(&END_BLOCKS)?;
        let result = self.flush().and_then(|()| self.file.flush()).and_then(|()| self.file.sync());
        result.map_err(|e| self.fail(&e))?;
        let index = self.index.as_ref().and_then(|index| index.finish(self.bytes));
        Ok(ShardDigest { bytes: self.bytes, crc: self.crc.clone().finalize(), index })
    }

    pub(super) fn into_sink(self) -> S {
        self.file
    }

    fn check(&self) -> Result<()> {
        self.error.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_buffered(bytes).map_err(|e| self.fail(&e))?;
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends `bytes` to the buffer. If they do not fit, first writes the buffer to the file. If
    /// they are larger than the whole buffer, writes them to the file directly.
    fn write_buffered(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() > BUFFER_BYTES {
            return self.file.write_all(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn fail(&mut self, e: &io::Error) -> Error {
        // If an upload fails, the I/O error contains an [`Error`] of this crate.
        let original = e.get_ref().and_then(|e| e.downcast_ref::<Error>()).cloned();
        let error = original.unwrap_or_else(|| Error::io(&self.path, e));
        self.error = Some(error.clone());
        error
    }
}
