//! [`TarWriter`] writes a tar file or tar shards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::names::ShardNames;
use super::shard::Shard;
use super::writer::{DatasetWriter, WriteOptions, Written, exists_error, lock_target, no_samples_error};
use crate::error::{Error, Result};
use crate::source::temp_files::{self, Locked, remove_abandoned_of, remove_if_exists, sync_folder_of};
use crate::source::{MANIFEST_SUFFIX, Sample};

/// Marks the temporary files of this writer. A [`Pack`](super::Pack) marks its files differently,
/// because a later run can continue with them.
const NEW_SUFFIX: &str = ".new";

/// Writes WebDataset shards, which [`Tar`](crate::source::Tar), WebDataset and `tar` can read.
///
/// Each field of a sample is stored as `KEY.FIELD`, and the label as `KEY.cls`. Headers have the
/// POSIX ustar format. A PAX header precedes them if ustar cannot represent a name or size, or if
/// the key is replaced. Owners and times are zero, so that the same samples result in the same
/// bytes.
///
/// **Keys.** In WebDataset, a key ends at the first dot of its last component, and adjacent files
/// with the same key form a sample. Readers would misinterpret a key with a dot in its last
/// component, with an empty component, with the component `.` or `..`, or with a zero byte. The
/// file names contain `_` instead, and `~` is added if the previous sample of the shard has the
/// same name. The PAX record `WARPFEED.key` then contains the original key, which
/// [`Tar`](crate::source::Tar) reads and other readers ignore.
///
/// **Shards.** With [`WriteOptions::shard_size`], `OUT.tar` becomes `OUT-000000.tar`,
/// `OUT-000001.tar`, … Only a shard of a single sample may exceed this size. If there are class
/// names, each shard contains them in the member `__classes__`.
pub struct TarWriter {
    names: ShardNames,
    options: WriteOptions,
    /// Final paths of the shards. The last shard may still be open.
    paths: Vec<PathBuf>,
    /// Paths under which the shards are written.
    partial_paths: Vec<PathBuf>,
    open_shard: Option<Shard<File>>,
    /// Total size of the finished shards, in bytes.
    bytes: u64,
    samples: u64,
    /// The error of a shard that could not be ended. No samples can then be added, and
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
    /// Creates a writer for `target`. The shards have temporary names until
    /// [`finish`](DatasetWriter::finish) renames them. If the file system supports locks, also
    /// removes the temporary files that an interrupted writer left for this target.
    ///
    /// # Errors
    /// If the target or one of its shards exists and `force` is not set, if an existing target is
    /// not a file, if another process is packing to the same target, or if the folder of the target
    /// cannot be used.
    pub fn create(target: impl AsRef<Path>, options: &WriteOptions) -> Result<Self> {
        let names = ShardNames::new(target.as_ref(), options.shard_size.is_some());
        let check_target = || match names.existing_shards()?.first() {
            Some(old_shard) if !options.force => Err(exists_error(old_shard)),
            Some(old_shard) if !old_shard.is_file() => {
                Err(Error::config("already exists and is not a file; force does not replace it").at_path(old_shard))
            }
            _ => Ok(()),
        };
        check_target()?;
        let lock = lock_target(&names.sibling_path(".lock.partial"), &names.target)?;
        // The previous holder of the lock may have created the target.
        check_target()?;
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
        let shard = Shard::create(partial_path.clone(), file, &self.options.classes);
        self.open_shard = Some(shard.inspect_err(|_| _ = fs::remove_file(&partial_path))?);
        self.paths.push(path);
        self.partial_paths.push(partial_path);
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
        let max_bytes = self.options.shard_size;
        if !self.open_shard.as_mut().expect("begun").put(sample, max_bytes)? {
            self.end_shard()?;
            self.begin_shard()?;
            self.open_shard.as_mut().expect("begun").put(sample, max_bytes)?;
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
        // If the first sample could not be written, `end_shard` returns the error.
        self.end_shard()?;
        if self.samples == 0 {
            return Err(no_samples_error(&self.names.target));
        }
        let old_paths = self.names.existing_shards()?;
        if let (Some(old_path), false) = (old_paths.first(), self.options.force) {
            return Err(exists_error(old_path));
        }
        if self.options.shard_size.is_some() && self.options.force {
            // Remove the old shards first, so that old and new shards are never mixed.
            remove_if_exists(&self.names.sibling_path(MANIFEST_SUFFIX))?;
            old_paths.iter().try_for_each(|path| remove_if_exists(path))?;
            sync_folder_of(&self.names.target);
        }
        // Rename the first shard last, so that an interruption leaves a visibly incomplete dataset.
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
