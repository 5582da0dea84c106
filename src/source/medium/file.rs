#![allow(unsafe_code)]
//! Files of a data set that stay open: mapped, read, or in a store.
//!
//! # Invariants
//! 1. Files are mapped for reading and never written here. A map stays valid after its file is
//!    closed, renamed or removed. If another process truncates the file before its bytes are used,
//!    [`fetch`] returns an error; its module describes truncation during use. If another process
//!    overwrites the file, the bytes change.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::source::Object;
use crate::source::bytes::{Bytes, Medium, Unmapped, room};
use crate::source::identity::Identity;
use crate::source::pages::{Map, fetch};

/// A file of a data set, and whether it has changed since it was opened.
pub(in crate::source) struct HeldFile {
    pub(in crate::source) path: PathBuf,
    pub(in crate::source) held: Held,
    /// The last number that [`look`](HeldFile::look) was called with while the file was unchanged.
    looked: AtomicU64,
    /// The error of every read once the file has changed.
    changed: Mutex<Option<Error>>,
}

/// The bytes of a file.
pub(in crate::source) enum Held {
    Map { map: Mmap, identity: Identity },
    Read(Box<dyn Medium>),
    Stored(Object),
}

impl Held {
    /// The bytes of a file on this machine.
    pub(in crate::source) fn bytes(&self) -> Box<dyn Bytes + '_> {
        match self {
            Held::Map { map, .. } => Box::new(&map[..]),
            Held::Read(medium) => Box::new(&**medium),
            Held::Stored(_) => Box::new(&[][..]),
        }
    }

    /// # Errors
    /// If the file has changed since it was opened.
    fn check(&self, path: &Path) -> Result<()> {
        match self {
            Held::Map { identity, .. } => identity.check(path, false).map(drop),
            Held::Read(medium) => medium.check(),
            // Every read asks for the version that was opened.
            Held::Stored(_) => Ok(()),
        }
    }

    fn is_file(&self) -> bool {
        match self {
            Held::Map { .. } => true,
            Held::Read(medium) => medium.is_file(),
            Held::Stored(_) => false,
        }
    }
}

/// A file that is read without a map.
struct Unchanged {
    file: Unmapped,
    identity: Identity,
}

impl Medium for Unchanged {
    fn len(&self) -> u64 {
        self.file.len
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(at, to)| self.file.read(*at, to))
    }

    fn check(&self) -> Result<()> {
        self.identity.check(&self.file.path, false).map(drop)
    }

    fn is_file(&self) -> bool {
        true
    }
}

impl HeldFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it is not a regular file, or cannot be opened or mapped.
    pub(in crate::source) fn open(path: &Path, mapped: bool) -> Result<(Self, Metadata)> {
        let io = |e: std::io::Error| Error::io(path, &e);
        let file = crate::source::file::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let identity = Identity::of(&metadata);
        let held = if mapped {
            // SAFETY: invariant 1.
            Held::Map { map: unsafe { Mmap::map(&file) }.map_err(io)?, identity }
        } else {
            let file = Unmapped { file, len: metadata.len(), path: path.to_owned() };
            Held::Read(Box::new(Unchanged { file, identity }))
        };
        Ok((Self::new(path.to_owned(), held), metadata))
    }

    /// A file that is only in memory.
    #[cfg(test)]
    pub(in crate::source) fn in_memory(bytes: Vec<u8>) -> Self {
        struct Memory(Vec<u8>);
        impl Medium for Memory {
            fn len(&self) -> u64 {
                self.0.len() as u64
            }

            fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
                ranges.iter_mut().for_each(|(at, to)| to.copy_from_slice(&self.0[*at as usize..][..to.len()]));
                Ok(())
            }

            fn check(&self) -> Result<()> {
                Ok(())
            }
        }
        Self::new(PathBuf::from("memory"), Held::Read(Box::new(Memory(bytes))))
    }

    /// Its length when it was opened.
    pub(in crate::source) fn len(&self) -> u64 {
        match &self.held {
            Held::Map { map, .. } => map.len() as u64,
            Held::Read(medium) => medium.len(),
            Held::Stored(object) => object.len,
        }
    }

    /// The object of a store.
    pub(in crate::source) fn stored(object: Object) -> Self {
        Self::new(PathBuf::from(&object.url), Held::Stored(object))
    }

    fn new(path: PathBuf, held: Held) -> Self {
        HeldFile { path, held, looked: AtomicU64::new(0), changed: Mutex::default() }
    }

    /// Checks that the file is unchanged, once for each number `looks`; a transient error repeats
    /// the check. Only threads that read from this file wait for the answer.
    ///
    /// # Errors
    /// If it has changed.
    pub(in crate::source) fn look(&self, looks: u64) -> Result<()> {
        // The check is of the file and publishes no memory, so it needs no ordering.
        if self.looked.load(Ordering::Relaxed) >= looks {
            return Ok(());
        }
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_none() && self.looked.load(Ordering::Relaxed) < looks {
            match self.held.check(&self.path) {
                Ok(()) => self.looked.store(looks, Ordering::Relaxed),
                // The store may answer next time.
                Err(e) if e.is_transient() => return Err(e),
                // The error is permanent.
                Err(e) => *changed = Some(e),
            }
        }
        changed.clone().map_or(Ok(()), Err)
    }

    /// The last number that [`look`](HeldFile::look) was called with while the file was unchanged.
    #[cfg(test)]
    pub(in crate::source) fn looked(&self) -> u64 {
        self.looked.load(Ordering::Relaxed)
    }

    /// The object, for a file in a store.
    ///
    /// # Panics
    /// For a file on this machine.
    pub(in crate::source) fn object(&self) -> &Object {
        match &self.held {
            Held::Stored(object) => object,
            _ => unreachable!("only files in a store are read ahead"),
        }
    }

    /// The `len` bytes from offset `at` of a file on this machine, or what there is of them.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(in crate::source) fn get<'a>(&'a self, at: u64, len: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let (start, end) = (at.min(self.len()), at.saturating_add(len).min(self.len()));
        let read = match &self.held {
            Held::Map { map, .. } => {
                let bytes = &map[start as usize..end as usize];
                self.load(bytes, end).map(|()| bytes)
            }
            Held::Read(medium) => {
                room(scratch, end - start).and_then(|to| medium.read_ranges(&mut [(start, &mut *to)]).map(|()| &*to))
            }
            Held::Stored(_) => unreachable!("only files on this machine are read like this"),
        };
        read.map_err(|e| e.at_path(&self.path))
    }

    /// Loads `bytes` of the file's map, which end at byte `end` of the file.
    ///
    /// # Errors
    /// If they cannot be loaded. If the file is still long enough, the medium failed, and the error
    /// may be transient.
    pub(in crate::source) fn load(&self, bytes: &[u8], end: u64) -> Result<()> {
        fetch(bytes, Map::Usual).map_err(|e| {
            let still_long = std::fs::metadata(&self.path).is_ok_and(|now| now.len() >= end);
            if still_long { e.transient() } else { e }
        })
    }
}

/// Maximum number of files that are checked at once when an epoch begins.
const MOST_CHECKED: usize = 64;

/// Whether `files` are unchanged, as far as that takes little time: a store takes longer to ask,
/// and so do many files on a network.
pub(in crate::source) fn are_unchanged<'a>(
    files: impl ExactSizeIterator<Item = &'a HeldFile> + Clone,
    looks: u64,
) -> bool {
    let quick = files.len() <= MOST_CHECKED && files.clone().all(|file| file.held.is_file());
    !quick || files.clone().all(|file| file.look(looks).is_ok())
}
