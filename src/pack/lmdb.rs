//! [`LmdbWriter`] writes an LMDB database.

use std::fs;
use std::path::{Path, PathBuf};

use lmdb::{DatabaseFlags, EnvironmentFlags, Transaction, WriteFlags};
use rmp::encode::{write_array_len, write_bin, write_map_len, write_sint, write_str};

use super::writer::{DatasetWriter, WriteOptions, Written, exists_error, lock_target, no_samples_error, without_slash};
use crate::error::{Error, ErrorKind, Result, reserve};
use crate::source::temp_files::{Locked, remove_abandoned_of, remove_if_exists, sync_folder_of, unique};
use crate::source::{CLASSES_KEY, Sample, lmdb_error};

/// Number of digits of a key. Keys are padded with zeros, so that they are sorted numerically.
const KEY_DIGITS: usize = 10;
const MAX_SAMPLES: u64 = 10_u64.pow(KEY_DIGITS as u32);

/// A transaction is committed when it has at least this many bytes. Apart from the data, a commit
/// writes only a few pages, so larger transactions would not be faster.
const COMMIT_BYTES: usize = 32 << 20;

/// Initial size of the map in bytes. The size is doubled when the map is full.
const INITIAL_MAP_BYTES: usize = 64 << 20;

/// Writes an LMDB database for [`Lmdb`](crate::source::Lmdb), or for Python's `lmdb` and `msgpack`.
///
/// The target is a folder that contains `data.mdb`, as `lmdb.open` expects. The database's keys are
/// decimal numbers of ten digits, starting at `0000000000`. The values are MessagePack maps that
/// contain the sample's key as `__key__`, the fields as bytes, and the label, if there is one, as
/// the integer `cls`. The class names, if there are any, are stored under `__classes__`.
pub struct LmdbWriter {
    environment: Option<lmdb::Environment>,
    database: lmdb::Database,
    map_size: usize,
    target: PathBuf,
    /// The temporary folder. At the end, it is renamed to the target, or its data file replaces the
    /// data file of an existing target. No other process writes to the folder.
    folder: PathBuf,
    options: WriteOptions,
    values: Vec<u8>,
    value_ends: Vec<usize>,
    samples: u64,
    _lock: Option<Locked>,
}

impl std::fmt::Debug for LmdbWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LmdbWriter")
            .field("target", &self.target)
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}

impl LmdbWriter {
    /// Creates a database in a temporary folder next to `target`. [`finish`](DatasetWriter::finish)
    /// moves the database to `target`. If the file system supports locks, also removes files that
    /// interrupted writers of this target have left.
    ///
    /// # Errors
    /// If the target exists and `force` is not set, if the target exists and is not a folder with a
    /// database, if another process is packing to the same target, or if writing fails.
    pub fn create(target: impl AsRef<Path>, options: &WriteOptions) -> Result<Self> {
        let target = without_slash(target.as_ref());
        check_target(&target, options.force)?;
        let mut lock_path = target.clone().into_os_string();
        lock_path.push(".lock.partial");
        let lock = lock_target(Path::new(&lock_path), &target)?;
        // The previous holder of the lock may have created the target.
        check_target(&target, options.force)?;
        if lock.is_some() {
            let file_name = target.file_name().unwrap_or_default();
            remove_abandoned_of(&target, |name| file_name == name)?;
        }
        let folder = unique(&target);
        fs::create_dir(&folder).map_err(|e| Error::io(&folder, &e))?;
        // No other process uses the folder before it is renamed. Locks are therefore unnecessary,
        // and flushing the data to the disk once, at the end, is enough.
        let flags = EnvironmentFlags::NO_LOCK | EnvironmentFlags::NO_SYNC;
        let result =
            lmdb::Environment::new().set_flags(flags).set_map_size(INITIAL_MAP_BYTES).open(&folder).and_then(|env| {
                let database = env.create_db(None, DatabaseFlags::empty())?;
                Ok((env, database))
            });
        let (environment, database) = result.map_err(|e| {
            let _ = fs::remove_dir_all(&folder);
            lmdb_error(&folder, e)
        })?;
        Ok(LmdbWriter {
            environment: Some(environment),
            database,
            map_size: INITIAL_MAP_BYTES,
            target,
            folder,
            options: options.clone(),
            values: Vec::new(),
            value_ends: Vec::new(),
            samples: 0,
            _lock: lock,
        })
    }

    /// Writes the pending values, and then `last_entry`, in a transaction. If the map is full,
    /// doubles its size and repeats the transaction.
    fn commit(&mut self, last_entry: Option<(&str, &[u8])>) -> Result<()> {
        let environment = self.environment.as_ref().expect("the environment is open until `finish`");
        let first_number = self.samples - self.value_ends.len() as u64;
        let try_once = || {
            let mut txn = environment.begin_rw_txn()?;
            let mut start = 0;
            for (number, &end) in (first_number..).zip(&self.value_ends) {
                let key = format!("{number:0KEY_DIGITS$}");
                txn.put(self.database, &key, &&self.values[start..end], WriteFlags::APPEND)?;
                start = end;
            }
            if let Some((key, value)) = last_entry {
                txn.put(self.database, &key, &value, WriteFlags::APPEND)?;
            }
            txn.commit()
        };
        loop {
            match try_once() {
                Ok(()) => break,
                Err(lmdb::Error::MapFull) => {
                    // Without an open transaction, the map may be resized. The only transaction has
                    // just been aborted.
                    self.map_size *= 2;
                    environment.set_map_size(self.map_size).map_err(|e| lmdb_error(&self.folder, e))?;
                }
                // LMDB returns EIO if data was written only partially.
                Err(lmdb::Error::Other(libc::EIO)) => {
                    let cause = "the write failed (errno EIO from lmdb): is the disk full?";
                    return Err(Error::new(ErrorKind::Io, cause).at_path(&self.folder));
                }
                Err(e) => return Err(lmdb_error(&self.folder, e)),
            }
        }
        self.values.clear();
        self.value_ends.clear();
        Ok(())
    }

    fn finish_files(&mut self) -> Result<Written> {
        if self.samples == 0 {
            return Err(no_samples_error(&self.target));
        }
        let mut class_names = Vec::new();
        if !self.options.classes.is_empty() {
            write_array_len(&mut class_names, self.options.classes.len() as u32).expect(IN_MEMORY);
            self.options.classes.iter().for_each(|name| write_str(&mut class_names, name).expect(IN_MEMORY));
        }
        self.commit((!class_names.is_empty()).then_some((CLASSES_KEY, &class_names)))?;

        let folder = self.folder.clone();
        let environment = self.environment.take().expect("the environment is open until `finish`");
        environment.sync(true).map_err(|e| lmdb_error(&folder, e))?;
        drop(environment);
        let data_path = folder.join("data.mdb");
        let bytes = fs::metadata(&data_path).map_err(|e| Error::io(&data_path, &e))?.len();

        check_target(&self.target, self.options.force)?;
        if self.target.exists() {
            // Replace the data file atomically, and remove its old lock file. Processes that have
            // opened both files can still use them.
            remove_if_exists(&self.target.join("lock.mdb"))?;
            let old_data_path = self.target.join("data.mdb");
            fs::rename(&data_path, &old_data_path).map_err(|e| Error::io(&old_data_path, &e))?;
            fs::remove_dir_all(&folder).map_err(|e| Error::io(&folder, &e))?;
            sync_folder_of(&old_data_path);
        } else {
            fs::rename(&folder, &self.target).map_err(|e| Error::io(&self.target, &e))?;
        }
        sync_folder_of(&self.target);
        Ok(Written { samples: self.samples, bytes, paths: vec![self.target.clone()] })
    }
}

const IN_MEMORY: &str = "writing to a Vec cannot fail";

impl DatasetWriter for LmdbWriter {
    fn put(&mut self, sample: &Sample<'_>) -> Result<()> {
        if self.samples == MAX_SAMPLES {
            return Err(Error::in_source(format!(
                "the dataset has more than {MAX_SAMPLES} samples, the maximum for keys of {KEY_DIGITS} digits"
            ))
            .at_path(&self.target));
        }
        let label = sample.label()?;
        if sample.field("__key__").is_some() {
            return Err(Error::in_source("a field cannot be named \"__key__\": it is reserved for the key"));
        }
        let values: Vec<_> = sample.fields().iter().map(|(name, value)| (name, value.encoded(name))).collect();
        if let Some((name, value_bytes)) = values.iter().find(|(_, value_bytes)| value_bytes.len() > u32::MAX as usize)
        {
            let (actual_bytes, max_bytes) = (value_bytes.len(), u32::MAX);
            return Err(Error::in_source(format!(
                "field {name:?} has {actual_bytes} bytes, but MessagePack allows at most {max_bytes}"
            )));
        }
        let out = &mut self.values;
        // MessagePack encodes a number, or the length of a name or field, in at most nine bytes.
        let name_bytes = sample.key().len() + values.iter().map(|(name, _)| name.len()).sum::<usize>();
        let value_bytes = values.iter().map(|(_, value_bytes)| value_bytes.len()).sum::<usize>();
        reserve(out, name_bytes + value_bytes + 9 * (2 * values.len() + 5) + "__key__cls".len())?;
        write_map_len(out, 1 + values.len() as u32 + u32::from(label.is_some())).expect(IN_MEMORY);
        write_str(out, "__key__").expect(IN_MEMORY);
        write_str(out, sample.key()).expect(IN_MEMORY);
        for (name, value_bytes) in values {
            write_str(out, name).expect(IN_MEMORY);
            write_bin(out, &value_bytes).expect(IN_MEMORY);
        }
        if let Some(label) = label {
            write_str(out, "cls").expect(IN_MEMORY);
            write_sint(out, label).expect(IN_MEMORY);
        }
        self.value_ends.push(out.len());
        self.samples += 1;
        if self.values.len() >= COMMIT_BYTES {
            self.commit(None)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.finish_files()
    }
}

impl Drop for LmdbWriter {
    fn drop(&mut self) {
        self.environment = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn check_target(target: &Path, force: bool) -> Result<()> {
    match fs::symlink_metadata(target) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io(target, &e)),
        Ok(_) if !force => Err(exists_error(target)),
        Ok(_) if target.join("data.mdb").is_file() => Ok(()),
        Ok(_) => {
            Err(Error::config("already exists and is not an LMDB folder (no data.mdb); force does not replace it")
                .at_path(target))
        }
    }
}
