use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::names::Names;
use super::shard::Shard;
use super::writer::{DatasetWriter, WriteOptions, Written, claim, exists, no_samples};
use crate::error::{Error, Result};
use crate::source::attempt::{self, Locked, remove_abandoned_of, remove_if_there, sync_folder_of};
use crate::source::{MANIFEST_END, Sample};

/// Follows the name of a shard while it is written. Without it, the shard would have the name of a
/// complete one of a [`Pack`](super::Pack), before its merge.
const NEW: &str = ".new";

/// Writes WebDataset shards that [`Tar`](crate::source::Tar), WebDataset and `tar` read.
///
/// A sample's fields are the files `KEY.FIELD`, its label the file `KEY.cls`. Headers are POSIX
/// ustar, with a PAX header where a name or size needs one. Owner and time are zero, so the same
/// samples give the same bytes.
///
/// **Keys.** WebDataset ends a key at the first dot of its last component, and joins neighboring
/// files with the same key into one sample. It would misread a key that has such a dot, an empty
/// component or `..`, or that repeats the previous key. Such a key is written under a similar name.
/// The PAX record `WARPFEED.key` holds the true key for [`Tar`](crate::source::Tar); other readers
/// ignore it.
///
/// **Shards.** With [`WriteOptions::shard_size`], `OUT.tar` becomes `OUT-000000.tar`,
/// `OUT-000001.tar`, … A shard exceeds the size only if a single sample does. Each shard holds the
/// class names in the member `__classes__`.
pub struct TarWriter {
    names: Names,
    options: WriteOptions,
    /// Final names of the shards so far. The last one is open.
    paths: Vec<PathBuf>,
    /// The names that they have until all are complete.
    partials: Vec<PathBuf>,
    open: Option<Shard<File>>,
    /// Bytes of the finished shards.
    bytes: u64,
    samples: u64,
    /// First error that left a shard incomplete. Nothing more can be added or finished.
    failed: Option<Error>,
    /// Excludes other writers of the target.
    _lock: Option<Locked>,
}

impl std::fmt::Debug for TarWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarWriter")
            .field("target", &self.names.target)
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}

impl TarWriter {
    /// Begins a tar file that [`finish`](DatasetWriter::finish) puts at `target`, or shards with numbers
    /// before its extension. What an interrupted run left behind is removed.
    ///
    /// # Errors
    /// If the target, or a shard of that name, exists and `force` is not set, or if another process
    /// is packing to it.
    pub fn create(target: impl AsRef<Path>, options: &WriteOptions) -> Result<Self> {
        let names = Names::new(target.as_ref(), options.shard_size.is_some());
        let check = || match names.existing()?.first() {
            Some(old) if !options.force => Err(exists(old)),
            Some(old) if !old.is_file() => Err(Error::config("exists and is not a file; not replaced").at_path(old)),
            _ => Ok(()),
        };
        check()?;
        let lock = claim(&names.beside(".lock.partial"), &names.target)?;
        // The process that had the lock may have finished meanwhile.
        check()?;
        if lock.is_some() {
            remove_abandoned_of(&names.target, |name| name.strip_suffix(NEW).is_some_and(|name| names.has(name)))?;
        }
        Ok(TarWriter {
            names,
            options: options.clone(),
            paths: Vec::new(),
            partials: Vec::new(),
            open: None,
            bytes: 0,
            samples: 0,
            failed: None,
            _lock: lock,
        })
    }

    fn check_whole(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn begin_shard(&mut self) -> Result<()> {
        let path = self.names.shard(self.paths.len() as u64);
        let mut new = path.clone().into_os_string();
        new.push(NEW);
        let (partial, file) = attempt::create(Path::new(&new)).map_err(|e| Error::io(new, &e))?;
        self.paths.push(path);
        self.partials.push(partial.clone());
        self.open = Some(Shard::begin(partial, file, &self.options.classes)?);
        Ok(())
    }

    fn end_shard(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        self.bytes += open.finish().inspect_err(|e| self.failed = Some(e.clone()))?.bytes;
        Ok(())
    }

    fn append(&mut self, sample: &Sample<'_>) -> Result<()> {
        if self.open.is_none() {
            self.begin_shard()?;
        }
        let limit = self.options.shard_size;
        if !self.open.as_mut().expect("begun").put(sample, limit)? {
            self.end_shard()?;
            self.begin_shard()?;
            self.open.as_mut().expect("begun").put(sample, limit)?;
        }
        Ok(())
    }
}

impl DatasetWriter for TarWriter {
    fn put(&mut self, sample: &Sample<'_>) -> Result<()> {
        self.check_whole()?;
        self.append(sample)?;
        self.samples += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.check_whole()?;
        if self.samples == 0 {
            return Err(no_samples(&self.names.target));
        }
        self.end_shard()?;
        let old = self.names.existing()?;
        if let (Some(old), false) = (old.first(), self.options.force) {
            return Err(exists(old));
        }
        if self.options.shard_size.is_some() && self.options.force {
            // The old set goes first, so that its shards are never among the new ones.
            remove_if_there(&self.names.beside(MANIFEST_END))?;
            old.iter().try_for_each(|path| remove_if_there(path))?;
            sync_folder_of(&self.names.target);
        }
        // Renames the first shard last, so that an interrupted set visibly lacks its beginning.
        for (partial, path) in self.partials.iter().zip(&self.paths).rev() {
            fs::rename(partial, path).map_err(|e| Error::io(path, &e))?;
        }
        sync_folder_of(&self.names.target);
        Ok(Written { samples: self.samples, bytes: self.bytes, paths: self.paths.clone() })
    }
}

impl Drop for TarWriter {
    /// Removes unfinished `.partial` files.
    fn drop(&mut self) {
        self.open = None;
        for partial in &self.partials {
            let _ = fs::remove_file(partial);
        }
    }
}
