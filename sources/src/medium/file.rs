#![allow(unsafe_code)]
//! Open files of a dataset: memory-mapped, read with system calls, in a store, or in memory.
//!
//! # Invariants
//! 1. Files are mapped read-only, and this crate never writes to them. A map stays valid after its
//!    file is closed, renamed or removed. If another process truncates the file before its bytes
//!    are used, [`fetch`] returns an error; the module of `fetch` describes truncation during use.
//!    If another process overwrites the file, the mapped bytes change.

use std::fs::Metadata;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::Mmap;

use super::Part;
use crate::error::{Error, Result};
use crate::machine::bytes::{Bytes, Unmapped, room};
use crate::machine::identity::Identity;
use crate::machine::pages::{Map, fetch};
use crate::medium::ahead::Remote;
use crate::model::Object;

/// An open file of a dataset. Detects changes to the file.
pub(crate) struct HeldFile {
    /// Path of the file, or URL of the object.
    pub(crate) path: PathBuf,
    held: Held,
    /// Latest value of `looks` for which [`look`](HeldFile::look) found the file unchanged.
    looked: AtomicU64,
    /// The error that every read returns once the file has changed.
    changed: Mutex<Option<Error>>,
}

/// The bytes of a file.
enum Held {
    Map { map: Mmap, identity: Identity },
    Read { file: Unmapped, identity: Identity },
    Stored { object: Object, remote: Arc<Remote> },
    Memory(Vec<u8>),
}

impl HeldFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it is not a regular file, or cannot be opened or mapped.
    pub(crate) fn open(path: &Path, mapped: bool) -> Result<(Self, Metadata)> {
        let io = |e: std::io::Error| Error::io(path, &e);
        let file = crate::machine::file::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let identity = Identity::of(&metadata);
        let held = if mapped {
            // SAFETY: invariant 1.
            Held::Map { map: unsafe { Mmap::map(&file) }.map_err(io)?, identity }
        } else {
            let file = Unmapped { file, len: metadata.len(), path: path.to_owned() };
            Held::Read { file, identity }
        };
        Ok((Self::new(path.to_owned(), held), metadata))
    }

    /// Creates an in-memory file with the content `bytes`. `path` is used in error messages.
    #[cfg(any(test, feature = "annotations"))]
    pub(crate) fn in_memory(path: PathBuf, bytes: Vec<u8>) -> Self {
        Self::new(path, Held::Memory(bytes))
    }

    /// Opens an object of the store `remote`.
    pub(crate) fn stored(object: Object, remote: Arc<Remote>) -> Self {
        Self::new(PathBuf::from(&object.url), Held::Stored { object, remote })
    }

    fn new(path: PathBuf, held: Held) -> Self {
        HeldFile { path, held, looked: AtomicU64::new(0), changed: Mutex::default() }
    }

    /// Returns the length that the file had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        match &self.held {
            Held::Map { map, .. } => map.len() as u64,
            Held::Read { file, .. } => file.len,
            Held::Stored { object, .. } => object.len,
            Held::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Checks that the file is unchanged, once per value of `looks`. A check that ends in a
    /// transient error is repeated by the next call. Only threads that read this file wait for the
    /// check.
    ///
    /// # Errors
    /// If it has changed.
    pub(crate) fn look(&self, looks: u64) -> Result<()> {
        // Relaxed suffices, because the check concerns the file and publishes no memory.
        if self.looked.load(Ordering::Relaxed) >= looks {
            return Ok(());
        }
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_none() && self.looked.load(Ordering::Relaxed) < looks {
            match self.check() {
                Ok(()) => self.looked.store(looks, Ordering::Relaxed),
                // The next check may succeed.
                Err(e) if e.is_transient() => return Err(e),
                // The error is permanent.
                Err(e) => *changed = Some(e),
            }
        }
        changed.clone().map_or(Ok(()), Err)
    }

    /// Checks that the file is unchanged.
    ///
    /// # Errors
    /// If it has changed.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.held {
            Held::Map { identity, .. } | Held::Read { identity, .. } => identity.check(&self.path, false).map(drop),
            // Every read from a store requests the version that was opened, so no check is needed.
            Held::Stored { .. } | Held::Memory(_) => Ok(()),
        }
    }

    /// Returns the latest value of `looks` for which [`look`](HeldFile::look) found the file
    /// unchanged.
    #[cfg(test)]
    pub(crate) fn looked(&self) -> u64 {
        self.looked.load(Ordering::Relaxed)
    }

    /// Returns the object and its store, if the file is in a store.
    pub(crate) fn object(&self) -> Option<(&Object, &Arc<Remote>)> {
        match &self.held {
            Held::Stored { object, remote } => Some((object, remote)),
            _ => None,
        }
    }

    /// Returns the bytes of a mapped file. They must be [loaded](HeldFile::load) before they are
    /// used.
    pub(crate) fn map(&self) -> Option<&[u8]> {
        match &self.held {
            Held::Map { map, .. } => Some(map),
            _ => None,
        }
    }

    /// Fills `to` with the bytes from offset `at` on. Meant for reads outside the loader's order,
    /// which are never prefetched.
    ///
    /// # Errors
    /// If the file is shorter or cannot be read.
    pub(crate) fn fill(&self, at: u64, to: &mut [u8]) -> Result<()> {
        match &self.held {
            Held::Map { map, .. } => {
                let end = at + to.len() as u64;
                let bytes = &map[at as usize..end as usize];
                self.load(bytes, end)?;
                to.copy_from_slice(bytes);
                Ok(())
            }
            Held::Read { file, .. } => file.read(at, to),
            Held::Stored { object, remote } => remote.direct(object, at, to),
            Held::Memory(bytes) => {
                to.copy_from_slice(&bytes[at as usize..][..to.len()]);
                Ok(())
            }
        }
    }

    /// Like [`fill`](HeldFile::fill), for the read with index `number` in a loader's order, which
    /// may have been prefetched.
    ///
    /// # Errors
    /// The errors of [`fill`](HeldFile::fill).
    pub(crate) fn fill_for(&self, number: u64, at: u64, to: &mut [u8]) -> Result<()> {
        match &self.held {
            Held::Stored { object, remote } => remote.read(number, object, at, to),
            _ => self.fill(at, to),
        }
    }

    /// Returns the bytes in `range`, either borrowed from the map or appended to `page`. `number`
    /// is the index of the read if it belongs to the loader's order.
    ///
    /// # Errors
    /// The errors of [`fill`](HeldFile::fill). Also fails if the range exceeds the size limit of a
    /// value.
    pub(crate) fn part(&self, number: Option<u64>, range: Range<u64>, page: &mut Vec<u8>) -> Result<Part<'_>> {
        if let Some(map) = self.map() {
            let bytes = &map[range.start as usize..range.end as usize];
            self.load(bytes, range.end)?;
            return Ok(Part::Borrowed(bytes));
        }
        let start = page.len();
        Part::append(page, range.end - range.start)?;
        let to = &mut page[start..];
        match number {
            Some(number) => self.fill_for(number, range.start, to)?,
            None => self.fill(range.start, to)?,
        }
        Ok(Part::since(start, page))
    }

    /// Reads up to `len` bytes from offset `at` on. Returns fewer bytes at the end of the file.
    /// Meant for reads outside the loader's order.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    pub(crate) fn get<'a>(&'a self, at: u64, len: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let (start, end) = (at.min(self.len()), at.saturating_add(len).min(self.len()));
        let read = match self.map() {
            Some(map) => {
                let bytes = &map[start as usize..end as usize];
                self.load(bytes, end).map(|()| bytes)
            }
            None => room(scratch, end - start).and_then(|to| self.fill(start, to).map(|()| &*to)),
        };
        read.map_err(|e| e.at_path(&self.path))
    }

    /// Loads the pages of `bytes`, which is a slice of the file's map that ends at offset `end` of
    /// the file.
    ///
    /// # Errors
    /// If the pages cannot be loaded. If the file is still long enough, the storage device failed,
    /// so the error is marked as transient.
    pub(crate) fn load(&self, bytes: &[u8], end: u64) -> Result<()> {
        fetch(bytes, Map::Usual).map_err(|e| {
            let still_long = std::fs::metadata(&self.path).is_ok_and(|now| now.len() >= end);
            if still_long { e.transient() } else { e }
        })
    }
}

impl std::fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Used while a dataset is opened. Bytes of a map are returned without loading their pages first.
impl Bytes for HeldFile {
    fn len(&self) -> u64 {
        self.len()
    }

    fn get<'a>(&'a self, at: u64, len: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        if let Some(map) = self.map() {
            return Ok(&map[at as usize..][..len]);
        }
        let to = room(scratch, len as u64)?;
        self.fill(at, to)?;
        Ok(to)
    }

    fn are_stored(&self) -> bool {
        self.object().is_some()
    }
}
