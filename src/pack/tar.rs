//! [`TarWriter`]: writes a tar file or tar shards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::names::ShardNames;
use super::shard::Shard;
use super::writer::{DatasetWriter, WriteOptions, Written, claim, exists_error, no_samples_error};
use crate::error::{Error, Result};
use crate::source::temp_files::{self, Locked, remove_abandoned_of, remove_if_there, sync_folder_of};
use crate::source::{MANIFEST_SUFFIX, Sample};

/// Suffix of a shard that is being written. The complete shards of an unmerged
/// [`Pack`](super::Pack) have a different suffix.
const NEW_SUFFIX: &str = ".new";

/// Writes WebDataset shards, which [`Tar`](crate::source::Tar), WebDataset and `tar` can read.
///
/// Each field of a sample is stored as `KEY.FIELD`, and the label as `KEY.cls`. Headers have the
/// POSIX ustar format, preceded by a PAX header if a name, size or key requires one. Owners and times
/// are zero, so that the same samples result in the same bytes.
///
/// **Keys.** In WebDataset, a key ends at the first dot of its last component, and adjacent files
/// with the same key form a sample. Readers would misinterpret a key with a dot in its last
/// component, with an empty component, with the component `.` or `..`, with a zero byte, or equal
/// to the previous key. A similar name replaces such a key, and the PAX record `WARPFEED.key`
/// contains the original. [`Tar`](crate::source::Tar) reads this record, and other readers ignore
/// it.
///
/// **Shards.** With [`WriteOptions::shard_size`], `OUT.tar` becomes `OUT-000000.tar`,
/// `OUT-000001.tar`, … Only a shard of a single sample may exceed this size. Each shard contains
/// the class names in the member `__classes__`.
pub struct TarWriter {
    names: ShardNames,
    options: WriteOptions,
    /// Final paths of the shards. The last shard may still be open.
    paths: Vec<PathBuf>,
    /// Temporary paths of the shards, until all shards are complete.
    partial_paths: Vec<PathBuf>,
    open_shard: Option<Shard<File>>,
    /// Total size of the finished shards, in bytes.
    bytes: u64,
    samples: u64,
    /// The first error that left a shard incomplete. No samples can then be added, and
    /// [`finish`](DatasetWriter::finish) returns the error.
    error: Option<Error>,
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
    /// Creates a writer for `target`. Files are written under temporary names, which
    /// [`finish`](DatasetWriter::finish) renames. Removes files of interrupted writers.
    ///
    /// # Errors
    /// If the target or one of its shards exists and `force` is not set, if an existing target is
    /// not a file, or if another process is packing to the same target.
    pub fn create(target: impl AsRef<Path>, options: &WriteOptions) -> Result<Self> {
        let names = ShardNames::new(target.as_ref(), options.shard_size.is_some());
        let check = || match names.existing_shards()?.first() {
            Some(old) if !options.force => Err(exists_error(old)),
            Some(old) if !old.is_file() => {
                Err(Error::config("already exists and is not a file; force does not replace it").at_path(old))
            }
            _ => Ok(()),
        };
        check()?;
        let lock = claim(&names.sibling_path(".lock.partial"), &names.target)?;
        // The previous holder of the lock may have created the target.
        check()?;
        if lock.is_some() {
            remove_abandoned_of(&names.target, |name| {
                name.strip_suffix(NEW_SUFFIX).is_some_and(|name| names.matches(name))
            })?;
        }
        Ok(TarWriter {
            names,
            options: options.clone(),
            paths: Vec::new(),
            partial_paths: Vec::new(),
            open_shard: None,
            bytes: 0,
            samples: 0,
            error: None,
            _lock: lock,
        })
    }

    fn check_intact(&self) -> Result<()> {
        self.error.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn begin_shard(&mut self) -> Result<()> {
        let path = self.names.shard_path(self.paths.len() as u64);
        let mut temporary_name = path.clone().into_os_string();
        temporary_name.push(NEW_SUFFIX);
        let (partial_path, file) =
            temp_files::create(Path::new(&temporary_name)).map_err(|e| Error::io(temporary_name, &e))?;
        self.paths.push(path);
        self.partial_paths.push(partial_path.clone());
        self.open_shard = Some(Shard::create(partial_path, file, &self.options.classes)?);
        Ok(())
    }

    fn end_shard(&mut self) -> Result<()> {
        let Some(mut open_shard) = self.open_shard.take() else { return Ok(()) };
        self.bytes += open_shard.finish().inspect_err(|e| self.error = Some(e.clone()))?.bytes;
        Ok(())
    }

    fn append(&mut self, sample: &Sample<'_>) -> Result<()> {
        if self.open_shard.is_none() {
            self.begin_shard()?;
        }
        let limit = self.options.shard_size;
        if !self.open_shard.as_mut().expect("begun").put(sample, limit)? {
            self.end_shard()?;
            self.begin_shard()?;
            self.open_shard.as_mut().expect("begun").put(sample, limit)?;
        }
        Ok(())
    }
}

impl DatasetWriter for TarWriter {
    fn put(&mut self, sample: &Sample<'_>) -> Result<()> {
        self.check_intact()?;
        self.append(sample)?;
        self.samples += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.check_intact()?;
        if self.samples == 0 {
            return Err(no_samples_error(&self.names.target));
        }
        self.end_shard()?;
        let old_paths = self.names.existing_shards()?;
        if let (Some(old_path), false) = (old_paths.first(), self.options.force) {
            return Err(exists_error(old_path));
        }
        if self.options.shard_size.is_some() && self.options.force {
            // Remove the old shards first, so that old and new shards are never mixed.
            remove_if_there(&self.names.sibling_path(MANIFEST_SUFFIX))?;
            old_paths.iter().try_for_each(|path| remove_if_there(path))?;
            sync_folder_of(&self.names.target);
        }
        // Rename the first shard last: as long as it is missing, the dataset is incomplete.
        for (partial, path) in self.partial_paths.iter().zip(&self.paths).rev() {
            fs::rename(partial, path).map_err(|e| Error::io(path, &e))?;
        }
        sync_folder_of(&self.names.target);
        Ok(Written { samples: self.samples, bytes: self.bytes, paths: self.paths.clone() })
    }
}

impl Drop for TarWriter {
    fn drop(&mut self) {
        self.open_shard = None;
        for partial in &self.partial_paths {
            let _ = fs::remove_file(partial);
        }
    }
}
