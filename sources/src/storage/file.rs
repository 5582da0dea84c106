//! [`OpenFile`]: an open file of a dataset, which is memory-mapped, read with system calls, in a
//! store, or in memory.
//!
//! # Invariants
//! 1. Files are mapped read-only, and this crate never writes to them. A map stays valid after its
//!    file is closed, renamed or removed. If another process truncates the file before its bytes
//!    are used, [`load_pages`] returns an error on Linux; `machine::pages` describes other systems
//!    and truncation during use. If another process overwrites the file, the mapped bytes change.
#![allow(unsafe_code)]

use std::fs::Metadata;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::Mmap;

use super::RowBytes;
use crate::error::{Error, Result};
use crate::machine::bytes::{Bytes, Unmapped, grow_to};
use crate::machine::identity::Identity;
use crate::machine::pages::{MapAccess, load_pages};
use crate::model::Object;
use crate::storage::prefetch::Remote;

/// An open file of a dataset, which detects changes.
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    content: Content,
    /// The largest number of requested checks for which [`check_once`](OpenFile::check_once) has
    /// found the file unchanged.
    last_checked: AtomicU64,
    /// The error that `check_once` returns after it has found a change.
    change_error: Mutex<Option<Error>>,
}

enum Content {
    Map { map: Mmap, identity: Identity },
    Read { file: Unmapped, identity: Identity },
    Stored { object: Object, remote: Arc<Remote> },
    Memory(Vec<u8>),
}

impl OpenFile {
    pub(crate) fn open(path: &Path, mapped: bool) -> Result<(Self, Metadata)> {
        let io = |e: std::io::Error| Error::io(path, &e);
        let file = crate::machine::file::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let identity = Identity::of(&metadata);
        let content = if mapped {
            // SAFETY: invariant 1.
            Content::Map { map: unsafe { Mmap::map(&file) }.map_err(io)?, identity }
        } else {
            let file = Unmapped { file, len: metadata.len(), path: path.to_owned() };
            Content::Read { file, identity }
        };
        Ok((Self::new(path.to_owned(), content), metadata))
    }

    #[cfg(any(test, feature = "annotations", feature = "parquet", feature = "video"))]
    pub(crate) fn in_memory(path: PathBuf, bytes: Vec<u8>) -> Self {
        Self::new(path, Content::Memory(bytes))
    }

    pub(crate) fn in_store(object: Object, remote: Arc<Remote>) -> Self {
        Self::new(PathBuf::from(&object.url), Content::Stored { object, remote })
    }

    fn new(path: PathBuf, content: Content) -> Self {
        OpenFile { path, content, last_checked: AtomicU64::new(0), change_error: Mutex::default() }
    }

    /// Returns the length at the time of opening.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Map { map, .. } => map.len() as u64,
            Content::Read { file, .. } => file.len,
            Content::Stored { object, .. } => object.len,
            Content::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Checks that the file is unchanged, unless this was already done for this value of
    /// `requested_checks`. A transient error does not count as a check. Only threads that read this
    /// file wait for the check.
    pub(crate) fn check_once(&self, requested_checks: u64) -> Result<()> {
        // A relaxed ordering suffices, because the check publishes no memory.
        if self.last_checked.load(Ordering::Relaxed) >= requested_checks {
            return Ok(());
        }
        let mut change_error = self.change_error.lock().unwrap_or_else(PoisonError::into_inner);
        if change_error.is_none() && self.last_checked.load(Ordering::Relaxed) < requested_checks {
            match self.check() {
                Ok(()) => self.last_checked.store(requested_checks, Ordering::Relaxed),
                // Do not keep the error, because the next check may succeed.
                Err(e) if e.is_transient() => return Err(e),
                Err(e) => *change_error = Some(e),
            }
        }
        change_error.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.content {
            Content::Map { identity, .. } | Content::Read { identity, .. } => {
                identity.check(&self.path, false).map(drop)
            }
            // Every read from a store asks for the version that was opened.
            Content::Stored { .. } | Content::Memory(_) => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn checked(&self) -> u64 {
        self.last_checked.load(Ordering::Relaxed)
    }

    pub(crate) fn object(&self) -> Option<(&Object, &Arc<Remote>)> {
        match &self.content {
            Content::Stored { object, remote } => Some((object, remote)),
            _ => None,
        }
    }

    /// Returns the bytes of a mapped file, which the caller must [load](OpenFile::load) before
    /// using them.
    pub(crate) fn map(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Map { map, .. } => Some(map),
            _ => None,
        }
    }

    /// Fills `out` with the bytes at `offset`. Use this function for reads that do not follow the
    /// order of a loader. Such reads are never prefetched.
    pub(crate) fn fill(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match &self.content {
            Content::Map { map, .. } => {
                let end = offset + out.len() as u64;
                let bytes = &map[offset as usize..end as usize];
                self.load(bytes, end)?;
                out.copy_from_slice(bytes);
                Ok(())
            }
            Content::Read { file, .. } => file.read(offset, out),
            Content::Stored { object, remote } => remote.read_direct(object, offset, out),
            Content::Memory(bytes) => {
                out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
                Ok(())
            }
        }
    }

    /// Like [`fill`](OpenFile::fill), but for the bytes with prefetch index `index`, which may have
    /// been prefetched. The prefetch index is the index of a sample, unless a sample needs several
    /// reads.
    pub(crate) fn fill_for(&self, index: u64, offset: u64, out: &mut [u8]) -> Result<()> {
        match &self.content {
            Content::Stored { object, remote } => remote.read(index, object, offset, out),
            _ => self.fill(offset, out),
        }
    }

    /// Returns the bytes in `range`, borrowed from the map or appended to `page`. `index` is the
    /// prefetch index of these bytes, or `None` if they are never prefetched.
    pub(crate) fn read_range(&self, index: Option<u64>, range: Range<u64>, page: &mut Vec<u8>) -> Result<RowBytes<'_>> {
        if let Some(map) = self.map() {
            let bytes = &map[range.start as usize..range.end as usize];
            self.load(bytes, range.end)?;
            return Ok(RowBytes::Borrowed(bytes));
        }
        let start = page.len();
        RowBytes::grow_page(page, range.end - range.start)?;
        let out = &mut page[start..];
        match index {
            Some(index) => self.fill_for(index, range.start, out)?,
            None => self.fill(range.start, out)?,
        }
        Ok(RowBytes::page_tail(start, page))
    }

    /// Reads `len` bytes at `offset`, or fewer at the end of the file. Use this function for reads
    /// that do not follow the order of a loader.
    pub(crate) fn get<'a>(&'a self, offset: u64, len: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let (start, end) = (offset.min(self.len()), offset.saturating_add(len).min(self.len()));
        let bytes = match self.map() {
            Some(map) => {
                let bytes = &map[start as usize..end as usize];
                self.load(bytes, end).map(|()| bytes)
            }
            None => grow_to(scratch, end - start).and_then(|out| self.fill(start, out).map(|()| &*out)),
        };
        bytes.map_err(|e| e.at_path(&self.path))
    }

    /// Loads the pages of `bytes`, a slice of the map that ends at offset `end`. A failure counts
    /// as transient, because the storage device must have failed, unless the file has become too
    /// short.
    pub(crate) fn load(&self, bytes: &[u8], end: u64) -> Result<()> {
        load_pages(bytes, MapAccess::Usual).map_err(|e| {
            let is_long_enough = std::fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() >= end);
            if is_long_enough { e.transient() } else { e }
        })
    }
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Reads the file while a dataset is opened. The pages of a map are not loaded first.
impl Bytes for OpenFile {
    fn len(&self) -> u64 {
        self.len()
    }

    fn get<'a>(&'a self, offset: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        if let Some(map) = self.map() {
            return Ok(&map[offset as usize..][..len]);
        }
        let out = grow_to(scratch, len as u64)?;
        self.fill(offset, out)?;
        Ok(out)
    }

    fn are_in_store(&self) -> bool {
        self.object().is_some()
    }
}
