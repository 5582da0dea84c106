//! Memory-mapped WebDataset shards.
//!
//! 1. `header`: one tar header and its PAX records.
//! 2. `index`: all headers of a shard, as samples.
//! 3. `sidecar`: the index kept beside the shard.
//! 4. `shards`: from a path to the list of shards.
//!
//! # Invariants
//! 1. Shards are mapped for reading and never written here. A map stays valid after its file is closed, renamed or removed; a file that
//!    another process cuts short is caught by [`fetch`] (see there), one that it overwrites yields other bytes.
//! 2. Every range of an [`Index`] lies inside the map: `scan` takes them from the map, `sidecar` compares them to its length.
#![allow(unsafe_code)]

mod header;
mod index;
mod shards;
mod sidecar;

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use rayon::prelude::*;

pub(crate) use header::KEY_RECORD;
pub(super) use header::is_tar;
pub(crate) use index::CLASSES_MEMBER;
use index::Index;
pub(super) use shards::{has_braces, tars_in};

use super::identity::Identity;
use super::pages::fetch;
use super::{Sample, Source};
use crate::error::{Error, ErrorKind, Result};

/// From this size on a shard's index is kept beside it: reading the headers of a smaller one takes no longer than reading the index.
const KEEP_INDEX: usize = 16 << 20;

/// Samples in tar files by WebDataset's rules, without copying: fields borrow from the memory map.
///
/// - **Fields.** Neighbouring files that share a path up to the first dot of the base name are one sample: `n014/x.jpg` and
///   `n014/x.cls` have the key `n014/x` and the fields `jpg` and `cls`. Field names are in lower case, `jpg` for both of JPEG's extensions.
/// - **Labels** are decimal text in the field `cls`. The **names of the classes** stand in a member called `__classes__`, a JSON array;
///   WebDataset passes over members of this form. All shards that have it must agree.
/// - **Formats.** POSIX (ustar and PAX) and GNU tar, uncompressed. Folders, links, hidden files and files without an extension are
///   passed over.
///
/// **The index.** Opening reads the headers of all shards in parallel. For a shard of 16 MiB and more the result is kept in
/// `NAME.tar.index` beside it, if the folder can be written; it is made anew when the tar's size or time has changed, and can be deleted at
/// any time.
///
/// All shards are mapped on opening: that takes addresses, not memory, and no file stays open, so that ten thousand shards meet no limit
/// on open files.
#[derive(Debug)]
pub struct Tar {
    shards: Vec<Shard>,
    /// Index of the first sample of each shard, and the number of all.
    starts: Vec<usize>,
    classes: Vec<String>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    identity: Identity,
    map: Mmap,
    index: Index,
}

impl Tar {
    /// Opens one tar file, all `*.tar` of a folder in the order of their names, or those of a pattern such as `train-{000..099}.tar`
    /// (also `{a,b}`, and several of them).
    ///
    /// # Errors
    /// If one of them does not exist, is no tar file or a damaged one (with the offset), or there are no samples.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let paths = shards::expand(path)?;
        let shards: Vec<Shard> = match paths.len() {
            1 => vec![Shard::open(&paths[0])?],
            // Cold headers are waited for, not computed, hence more threads than cores. The pool is gone before the loader's starts.
            n => rayon::ThreadPoolBuilder::new()
                .num_threads(n.min(16))
                .build()
                .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?
                .install(|| paths.par_iter().map(|path| Shard::open(path)).collect::<Vec<_>>())
                // In order, so that of several bad shards the first is named, whichever thread was faster.
                .into_iter()
                .collect::<Result<_>>()?,
        };
        let mut starts = vec![0];
        let mut named: Option<&Shard> = None;
        for shard in &shards {
            starts.push(starts[starts.len() - 1] + shard.index.len());
            if !shard.index.classes.is_empty() {
                let first = named.get_or_insert(shard);
                if first.index.classes != shard.index.classes {
                    let cause = format!("names of the classes differ from those in {}", first.path.display());
                    return Err(Error::source(cause).at_path(&shard.path));
                }
            }
        }
        let classes = named.map_or_else(Vec::new, |shard| shard.index.classes.clone());
        let tar = Tar { shards, starts, classes };
        if tar.is_empty() {
            let cause = format!("no samples in {} tar files: none holds a file with an extension", tar.shards.len());
            return Err(Error::source(cause).at_path(path));
        }
        Ok(tar)
    }
}

impl Shard {
    fn open(path: &Path) -> Result<Self> {
        let io = |e: std::io::Error| Error::io(path, &e);
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(Error::source("not a file").at_path(path));
        }
        // SAFETY: invariant 1.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let index = match sidecar::load(path, &metadata) {
            // The map may be of a file that has changed since; its length decides what can be read.
            Some(index) if metadata.len() == map.len() as u64 => index,
            _ => {
                if map.get(..2) == Some(&[0x1f, 0x8b]) {
                    return Err(Error::source("compressed with gzip; a map can only be read at random uncompressed")
                        .at_path(path));
                }
                let index = Index::scan(&map).map_err(|e| e.at_path(path))?;
                if map.len() >= KEEP_INDEX
                    && let Err(e) = sidecar::store(path, &metadata, &index)
                {
                    tracing::debug!("{}: no index kept: {e}", path.display());
                }
                index
            }
        };
        Ok(Shard { path: path.to_owned(), identity: Identity::of(&metadata), map, index })
    }
}

impl Shard {
    /// The error of pages up to byte `end` that cannot be had. If the file still has them, the medium failed, perhaps for a moment.
    fn lost(&self, error: Error, end: usize) -> Error {
        let still_long = std::fs::metadata(&self.path).is_ok_and(|now| now.len() >= end as u64);
        let error = if still_long { error.transient() } else { error };
        error.at_path(&self.path)
    }
}

impl Tar {
    /// The shard that sample `index` is in, the sample's key and its fields.
    fn locate(&self, index: usize) -> (&Shard, &str, &[index::Field]) {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        // Of shards without samples, which begin where the next one does, the last one before `index` is not empty.
        let number = self.starts.partition_point(|&start| start <= index) - 1;
        let shard = &self.shards[number];
        let (key, fields) = shard.index.sample(index - self.starts[number]);
        (shard, key, fields)
    }
}

impl Source for Tar {
    fn len(&self) -> usize {
        self.starts[self.shards.len()]
    }

    fn read<'a>(&'a self, index: usize, _scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (shard, key, fields) = self.locate(index);
        let bytes = |field: &index::Field| &shard.map[field.offset as usize..][..field.len as usize];
        let mut sample = Sample::new(key);
        for field in fields {
            sample.push(&shard.index.names[field.name as usize], bytes(field)).map_err(|e| e.at_path(&shard.path))?;
        }
        // Files of a sample lie side by side, so one request brings all of them in.
        if let (Some(first), Some(last)) = (fields.first(), fields.last())
            && let Some(all) = shard.map.get(first.offset as usize..(last.offset + last.len) as usize)
        {
            fetch(all).map_err(|e| shard.lost(e, (last.offset + last.len) as usize))?;
        }
        Ok(sample)
    }

    fn check(&self) -> Result<()> {
        self.shards.iter().try_for_each(|shard| shard.identity.check(&shard.path, false))
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let (shard, key, fields) = self.locate(index);
        let Some(field) = fields.iter().find(|field| shard.index.names[field.name as usize] == "cls") else {
            return Ok(None);
        };
        let bytes = &shard.map[field.offset as usize..][..field.len as usize];
        fetch(bytes)
            .and_then(|()| Sample::new(key).with_field("cls", bytes)?.label())
            .map_err(|e| e.at_path(&shard.path))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "tar"
    }
}

#[cfg(test)]
#[path = "../../../tests/fuzz/tar.rs"]
mod fuzz;
