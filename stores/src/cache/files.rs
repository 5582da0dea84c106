//! Stores whole files in the folder of a cache, for formats that need local files, such as LMDB and
//! HDF5.
//!
//! The files of a dataset are in the `files/KEY` folder, where KEY is a hash of the dataset's URL
//! and of the objects' URLs, lengths, versions and servers. This folder contains the list of the
//! objects in `objects`, the files in `data`, and the journal of received parts in `arrived`. Once
//! all parts have been received, the folder also contains the checksums and modification times of
//! the files in `complete`.
//!
//! A process that uses the files holds a shared lock on `files/KEY.lock` until the process ends, so
//! other processes do not remove a dataset in use. The process that downloads the files also locks
//! `files/KEY.fill`. A damaged file is replaced instead of changed, because other processes may
//! have mapped it. `files/used` contains the total size of all datasets in bytes, and the
//! `files/room.lock` lock protects this number.
//!
//! A process may be killed at any moment. The next process resumes each file after the last part in
//! the journal, or downloads the file again if its checksum is wrong. The folder of a dataset is
//! renamed before it is removed, so that an incomplete removal is never mistaken for a dataset.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use crc32fast::Hasher;
use warpfeed_sources::internal::counted;
use warpfeed_sources::{Error, Result};
use warpfeed_sources::{Object, ReadParts, is_stopped};

use super::folder::{FILES, Folder, none_if_missing};
use super::listing::{self, Listing};
use crate::runtime::PerProcess;

/// Size in bytes of the parts in which files are downloaded.
const PART_BYTES: u64 = 8 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time without a received part. After that, other processes stop waiting for the
/// downloading process.
const WAIT_TIMEOUT: Duration = Duration::from_secs(600);
const LOG_INTERVAL: Duration = Duration::from_secs(10);
const RECORD_LEN: usize = 24;
const USED: &str = "used";
const REMOVED: &str = "removed";

/// The locks of the datasets that this process uses, held until the process ends.
static ACQUIRED_LOCKS: PerProcess<Mutex<Vec<(PathBuf, File)>>> = PerProcess::new();

fn lock_acquired_locks() -> Result<MutexGuard<'static, Vec<(PathBuf, File)>>> {
    Ok(ACQUIRED_LOCKS.get(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the total size of all whole files, in bytes, or 0 if `files/used` does not contain a
/// number.
pub(super) fn total_bytes(folder: &Folder) -> io::Result<u64> {
    let bytes = none_if_missing(fs::read(folder.path.join(FILES).join(USED)))?;
    Ok(bytes.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?))).unwrap_or(0))
}

/// A dataset of whole files. `base` is the common prefix of the objects' URLs, `names` contains the
/// path of each file below `data`, and `path` is the folder `files/KEY`.
struct Dataset<'a> {
    base: &'a str,
    objects: &'a [Object],
    names: Vec<PathBuf>,
    path: PathBuf,
}

/// Downloads `objects` to `folder`, which may contain `limit` bytes of files and blocks, and
/// returns the folder of the files. Downloads only the parts that the folder does not contain yet.
/// Calls `shrink` before a download, because whole files reduce the space for blocks.
///
/// Fails if the objects do not fit, if an object has no strong version or no valid file name, or if
/// a download or a wait for another process fails.
pub(super) fn download(
    folder: &Folder,
    limit: u64,
    base: &str,
    objects: &[Object],
    read: &ReadParts<'_>,
    shrink: impl Fn(),
) -> Result<PathBuf> {
    let dataset = Dataset::new(folder, base, objects)?;
    let bytes = disk_bytes(objects);
    if bytes > limit {
        let cause = format!(
            "the cache is too small: these files have {bytes} bytes, but the limit of the cache is {limit} bytes \
             (cache_bytes); raise the limit, or copy the dataset to this machine"
        );
        return Err(Error::config(cause).at_path(base));
    }
    let failed = |e: io::Error| Error::io(&dataset.path, &e);
    let is_acquired = || Ok::<_, Error>(lock_acquired_locks()?.iter().any(|(path, _)| *path == dataset.path));
    if is_acquired()? && dataset.is_complete().map_err(failed)? {
        return Ok(dataset.data_folder());
    }
    let use_lock = lock_file(&dataset.path.with_extension("lock")).map_err(failed)?;
    // Wait for the lock. A process holds it exclusively only while it removes the files.
    dataset.wait(|| try_shared(&use_lock))?;
    if !dataset.is_complete().map_err(failed)? {
        let fill_lock = lock_file(&dataset.path.with_extension("fill")).map_err(failed)?;
        dataset.wait(|| try_exclusive(&fill_lock))?;
        // Another process may have downloaded the files in the meantime.
        if !dataset.is_complete().map_err(failed)? {
            free_space(folder, limit, &dataset)?;
            shrink();
            dataset.download_parts(read)?;
        }
    }
    if !is_acquired()? {
        lock_acquired_locks()?.push((dataset.path.clone(), use_lock));
    }
    Ok(dataset.data_folder())
}

fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

fn try_exclusive(file: &File) -> io::Result<bool> {
    is_locked(file.try_lock())
}

fn try_shared(file: &File) -> io::Result<bool> {
    is_locked(file.try_lock_shared())
}

fn is_locked(result: std::result::Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

fn disk_bytes(objects: &[Object]) -> u64 {
    objects.iter().map(|object| object.len.next_multiple_of(4096)).sum()
}

/// Removes datasets that no process is using until `dataset` fits within `limit`, starting with the
/// oldest download. Then writes the object list of `dataset` and the new total size of all
/// datasets. Fails if `dataset` does not fit.
fn free_space(folder: &Folder, limit: u64, dataset: &Dataset<'_>) -> Result<()> {
    let files = folder.path.join(FILES);
    let failed = |e: io::Error| Error::io(&files, &e);
    let space_lock = lock_file(&files.join("room.lock")).map_err(failed)?;
    dataset.wait(|| try_exclusive(&space_lock))?;
    let needed_bytes = disk_bytes(dataset.objects);
    let (mut others, mut sum) = (Vec::new(), needed_bytes);
    for (path, listing) in datasets(folder).map_err(failed)?.into_iter().filter(|(path, _)| *path != dataset.path) {
        // The size of a dataset without its list is unknown, so remove it even if there is enough
        // space.
        let Some(listing) = listing else {
            others.push((0, path, 0));
            continue;
        };
        sum += disk_bytes(&listing.objects);
        others.push((listing.time, path, disk_bytes(&listing.objects)));
    }
    others.sort();
    for (_, path, size) in others {
        if sum <= limit && size > 0 {
            break;
        }
        if remove(&path).map_err(failed)? {
            sum -= size;
        }
    }
    if sum > limit {
        let cause = format!(
            "the cache is too small: these files have {needed_bytes} bytes, files in use have {} bytes, and the \
             limit of \
             the cache is {limit} bytes (cache_bytes)",
            sum - needed_bytes
        );
        return Err(Error::config(cause).at_path(dataset.base));
    }
    fs::create_dir_all(dataset.data_folder()).map_err(failed)?;
    let listing = Listing {
        time: listing::unix_time_s(),
        prefix: dataset.base.trim_end_matches('/').to_owned(),
        objects: dataset.objects.to_vec(),
    };
    listing::write(folder, &dataset.path.join("objects"), &listing.encode()).map_err(failed)?;
    listing::write(folder, &files.join(USED), &sum.to_le_bytes()).map_err(failed)
}

/// Removes the files of a dataset. Returns `false` if a process is using them.
fn remove(path: &Path) -> io::Result<bool> {
    let lock = lock_file(&path.with_extension("lock"))?;
    if !try_exclusive(&lock)? {
        return Ok(false);
    }
    let removed_path = path.with_extension(REMOVED);
    fs::rename(path, &removed_path)?;
    fs::remove_dir_all(removed_path)?;
    Ok(true)
}

/// Returns the folder of each dataset and the list of its objects, or `None` if the list is missing
/// or damaged. Deletes folders of datasets that were not removed completely.
pub(super) fn datasets(folder: &Folder) -> io::Result<Vec<(PathBuf, Option<Listing>)>> {
    let entries = match fs::read_dir(folder.path.join(FILES)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut datasets = Vec::new();
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_key = |name: &str| name.len() == 32 && u128::from_str_radix(name, 16).is_ok();
        let (stem, extension) = (path.file_stem().unwrap_or_default(), path.extension());
        if !entry.file_type()?.is_dir() || !stem.to_str().is_some_and(is_key) {
            continue;
        }
        if extension.is_some_and(|extension| extension == REMOVED) {
            // Another process is removing the dataset, or was killed while removing it.
            let _ = fs::remove_dir_all(&path);
        } else if name.to_str().is_some_and(is_key) {
            let listing = Listing::load(&path.join("objects"))?;
            datasets.push((path, listing));
        }
    }
    Ok(datasets)
}

/// Returns the URL of each dataset, followed by its server if it has one, with the number of files
/// and their total size on disk in bytes. A dataset counts even if its download is incomplete.
pub(super) fn contents(folder: &Folder) -> io::Result<Vec<(String, (u64, u64))>> {
    let cached = datasets(folder)?.into_iter().filter_map(|(_, listing)| listing);
    let objects_of = cached.map(|Listing { prefix, objects, .. }| {
        let server = objects.first().and_then(|object| object.server.as_ref());
        let server = server.map(|server| format!(" at {server}")).unwrap_or_default();
        (format!("{prefix}{server}"), (objects.len() as u64, disk_bytes(&objects)))
    });
    Ok(objects_of.collect())
}

/// Drops the files that do not match their checksums. They are downloaded again when the dataset is
/// next opened. Removes a dataset if its list of objects is missing or damaged and no process is
/// using the dataset. Skips datasets that a process is downloading or removing. Returns the number
/// of dropped files, without those of incomplete downloads, plus the number of removed datasets.
pub(super) fn check(folder: &Folder) -> Result<u64> {
    let failed = |e: io::Error| Error::io(&folder.path, &e);
    let mut damaged = 0;
    for (path, listing) in datasets(folder).map_err(failed)? {
        let lock = lock_file(&path.with_extension("lock")).map_err(failed)?;
        let fill_lock = lock_file(&path.with_extension("fill")).map_err(failed)?;
        if !try_shared(&lock).map_err(failed)? || !try_exclusive(&fill_lock).map_err(failed)? {
            continue;
        }
        let Some(Listing { prefix, objects, .. }) = listing else {
            lock.unlock().map_err(failed)?;
            damaged += u64::from(remove(&path).map_err(failed)?);
            continue;
        };
        let dataset = Dataset::new(folder, &prefix, &objects)?;
        let is_complete = dataset.read_complete().map_err(failed)?.is_some();
        let progress = dataset.read_progress().map_err(failed)?;
        let damaged_count = progress
            .iter()
            .zip(&objects)
            .filter(|((received, _), object)| is_complete && *received != object.len)
            .count();
        if damaged_count > 0 {
            remove_file(&dataset.path.join("complete")).map_err(failed)?;
            damaged += damaged_count as u64;
        }
    }
    Ok(damaged)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes all datasets, except those that a process is using.
pub(super) fn empty(folder: &Folder) -> io::Result<()> {
    let files = folder.path.join(FILES);
    if !files.is_dir() {
        return Ok(());
    }
    let space_lock = lock_file(&files.join("room.lock"))?;
    space_lock.lock()?;
    let mut total: u64 = 0;
    for (path, listing) in datasets(folder)? {
        if !remove(&path)? {
            total += listing.map_or(0, |listing| disk_bytes(&listing.objects));
        }
    }
    listing::write(folder, &files.join(USED), &total.to_le_bytes())
}

impl<'a> Dataset<'a> {
    fn new(folder: &Folder, base: &'a str, objects: &'a [Object]) -> Result<Self> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        let mut add = |bytes: &[u8]| {
            for &byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
                hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
            }
        };
        for object in objects {
            if object.strong_tag().is_none() {
                let cause = "the server sends no strong version (ETag) of this object, so it cannot be cached; \
                             copy the dataset to this machine";
                return Err(Error::config(cause).at_path(&object.url));
            }
            let name = object.url.strip_prefix(base.trim_end_matches('/')).map(|name| name.trim_start_matches('/'));
            let name = PathBuf::from(name.unwrap_or_default());
            if name.as_os_str().is_empty() || !name.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(Error::in_source("this name is not a valid file name on this machine: rename the object")
                    .at_path(&object.url));
            }
            add(object.url.as_bytes());
            add(&object.len.to_le_bytes());
            add(object.tag.as_deref().unwrap_or_default().as_bytes());
            add(object.server.as_deref().unwrap_or_default().as_bytes());
            if !seen.insert(name.clone()) {
                return Err(
                    Error::in_source("two objects map to the same file: rename one of them").at_path(&object.url)
                );
            }
            names.push(name);
        }
        add(base.trim_end_matches('/').as_bytes());
        let path = folder.path.join(FILES).join(format!("{hash:032x}"));
        Ok(Dataset { base, objects, names, path })
    }

    fn data_folder(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Waits until `try_lock` returns true. The system releases the lock if the process that holds
    /// it dies. Fails if that process receives no part of the files for too long, or if the reads
    /// of this thread are canceled.
    fn wait(&self, try_lock: impl Fn() -> io::Result<bool>) -> Result<()> {
        let journal_len = || fs::metadata(self.path.join("arrived")).map_or(0, |metadata| metadata.len());
        let (mut last_len, mut last_change, mut is_logged) = (journal_len(), Instant::now(), false);
        while !try_lock().map_err(|e| Error::io(&self.path, &e))? {
            if is_stopped() {
                return Err(
                    Error::new(warpfeed_sources::ErrorKind::Io, "waiting for files was canceled").at_path(self.base)
                );
            }
            if !std::mem::replace(&mut is_logged, true) {
                tracing::info!("{}: waiting for another process that is downloading these files", self.base);
            }
            let current_len = journal_len();
            if current_len != last_len {
                (last_len, last_change) = (current_len, Instant::now());
            } else if last_change.elapsed() > WAIT_TIMEOUT {
                let cause = format!(
                    "another process is downloading these files, but has received nothing for {} s: \
                     end that process if it is suspended",
                    WAIT_TIMEOUT.as_secs()
                );
                return Err(Error::new(warpfeed_sources::ErrorKind::Io, cause).at_path(self.base));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns the CRC-32 (4 bytes) and the modification time in nanoseconds since 1970 (8 bytes)
    /// of each file, or `None` if the files are incomplete. Both numbers are little-endian.
    fn read_complete(&self) -> io::Result<Option<Vec<[u8; 12]>>> {
        let complete = match fs::read(self.path.join("complete")) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let (records, rest) = complete.as_chunks::<12>();
        Ok((records.len() == self.objects.len() && rest.is_empty()).then(|| records.to_vec()))
    }

    /// Returns whether all files are complete. Checks the content of a file only if its
    /// modification time or its length has changed since the download.
    fn is_complete(&self) -> io::Result<bool> {
        let Some(records) = self.read_complete()? else { return Ok(false) };
        for ((record, name), object) in records.iter().zip(&self.names).zip(self.objects) {
            let path = self.data_folder().join(name);
            let (checksum, time) = record.split_at(4);
            let now = none_if_missing(modification_time(&path))?;
            let is_unmodified = now.is_some_and(|(len, now)| len == object.len && now.to_le_bytes() == time);
            if !is_unmodified
                && compute_checksum(&path, object.len)?.is_none_or(|actual| actual.to_le_bytes() != checksum)
            {
                tracing::warn!("{}: damaged; fetching again", path.display());
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn download_parts(&self, read: &ReadParts<'_>) -> Result<()> {
        let failed = |e: io::Error| Error::io(&self.path, &e);
        let mut progress = self.read_progress().map_err(failed)?;
        let total: u64 = self.objects.iter().map(|object| object.len).sum();
        let mut received_bytes: u64 = progress.iter().map(|(len, _)| len).sum();
        let count = counted(self.objects.len(), "file", "files");
        tracing::info!("{}: downloading {count} ({total} bytes) to {}", self.base, self.path.display());
        let mut last_log = Instant::now();
        let journal = self.path.join("arrived");
        let mut journal = OpenOptions::new().create(true).append(true).open(journal).map_err(failed)?;
        let mut parts: Vec<(usize, Range<u64>)> = Vec::new();
        for (number, object) in self.objects.iter().enumerate() {
            let starts = (progress[number].0..object.len).step_by(PART_BYTES as usize);
            parts.extend(starts.map(|start| (number, start..object.len.min(start + PART_BYTES))));
        }
        let requested_ranges: Vec<_> =
            parts.iter().map(|(number, range)| (&self.objects[*number], range.clone())).collect();
        let mut next_part = parts.iter();
        read(&requested_ranges, &mut |bytes| {
            let too_many = || Error::in_source("received more parts than requested").at_path(self.base);
            let (number, range) = next_part.next().cloned().ok_or_else(too_many)?;
            if bytes.len() as u64 != range.end - range.start {
                let cause = format!("received {} bytes instead of {}", bytes.len(), range.end - range.start);
                return Err(Error::in_source(cause).at_path(&self.objects[number].url));
            }
            progress[number].1.update(&bytes);
            progress[number].0 = range.end;
            let path = self.data_folder().join(&self.names[number]);
            append(&path, range.start, &bytes).map_err(|e| Error::io(&path, &e))?;
            let record = record(number, range.end, progress[number].1.clone().finalize());
            journal.write_all(&record).map_err(failed)?;
            received_bytes += bytes.len() as u64;
            if last_log.elapsed() > LOG_INTERVAL {
                last_log = Instant::now();
                tracing::info!("{}: {received_bytes} of {total} bytes downloaded", self.base);
            }
            Ok(())
        })?;
        if next_part.next().is_some() {
            return Err(Error::in_source("received fewer parts than requested").at_path(self.base));
        }
        let mut complete = Vec::new();
        for ((name, object), (_, hasher)) in self.names.iter().zip(self.objects).zip(progress) {
            let path = self.data_folder().join(name);
            if object.len == 0 {
                append(&path, 0, &[]).map_err(|e| Error::io(&path, &e))?;
            }
            File::open(&path).and_then(|file| file.sync_all()).map_err(|e| Error::io(&path, &e))?;
            complete.extend(hasher.finalize().to_le_bytes());
            complete.extend(modification_time(&path).map_err(|e| Error::io(&path, &e))?.1.to_le_bytes());
        }
        let partial = self.path.join("complete.partial");
        let result =
            File::create(&partial).and_then(|mut file| file.write_all(&complete).and_then(|()| file.sync_all()));
        result.and_then(|()| fs::rename(&partial, self.path.join("complete"))).map_err(failed)
    }

    /// Returns the number of received bytes of each file, and a hasher that has processed these
    /// bytes. Drops files that do not match the journal.
    fn read_progress(&self) -> io::Result<Vec<(u64, Hasher)>> {
        let bytes = match fs::read(self.path.join("arrived")) {
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut latest = vec![None; self.objects.len()];
        for bytes in bytes.as_chunks::<RECORD_LEN>().0 {
            let number = |offset: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]));
            let checksum = u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
            let file = usize::try_from(number(0)).ok().filter(|&file| file < latest.len());
            if let Some(file) = file.filter(|&file| record(file, number(8), checksum) == *bytes) {
                latest[file] = Some((number(8), checksum));
            }
        }
        // Remove an incomplete record at the end, because it would shift all later records.
        if bytes.len() % RECORD_LEN > 0 {
            let file = OpenOptions::new().write(true).open(self.path.join("arrived"))?;
            file.set_len((bytes.len() - bytes.len() % RECORD_LEN) as u64)?;
        }
        let sizes = latest.into_iter().zip(&self.names).zip(self.objects).map(|((latest, name), object)| {
            let path = self.data_folder().join(name);
            // An incomplete file may end with a part without a record. A complete file must have
            // exactly the recorded length.
            let disk_len = none_if_missing(fs::metadata(&path))?.map(|file| file.len());
            let fits = |len: u64| len < object.len || disk_len == Some(len);
            if let Some((len, checksum)) = latest.filter(|&(len, _)| len <= object.len && fits(len))
                && let Some(hasher) = hash_prefix(&path, len)?
                && hasher.clone().finalize() == checksum
            {
                return Ok((len, hasher));
            }
            // Remove the file instead of changing it, because other processes may have mapped it.
            remove_file(&path)?;
            Ok((0, Hasher::new()))
        });
        sizes.collect()
    }
}

fn append(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    if offset == 0 {
        fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
    }
    let mut file = lock_file(path)?;
    file.set_len(offset)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// Encodes a record of the journal: the index of the file, the number of its received bytes, their
/// CRC-32, and the CRC-32 of the record.
fn record(index: usize, len: u64, checksum: u32) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    record[..8].copy_from_slice(&(index as u64).to_le_bytes());
    record[8..16].copy_from_slice(&len.to_le_bytes());
    record[16..20].copy_from_slice(&checksum.to_le_bytes());
    let record_checksum = crc32fast::hash(&record[..20]);
    record[20..].copy_from_slice(&record_checksum.to_le_bytes());
    record
}

/// Returns the length of a file, and its modification time in nanoseconds since 1970.
fn modification_time(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    let time = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((metadata.len(), time.as_nanos() as u64))
}

fn compute_checksum(path: &Path, len: u64) -> io::Result<Option<u32>> {
    match none_if_missing(fs::metadata(path))? {
        Some(metadata) if metadata.len() == len => Ok(hash_prefix(path, len)?.map(Hasher::finalize)),
        _ => Ok(None),
    }
}

fn hash_prefix(path: &Path, len: u64) -> io::Result<Option<Hasher>> {
    let Some(file) = none_if_missing(File::open(path))? else { return Ok(None) };
    let (mut file, mut hasher, mut remaining) = (file.take(len), Hasher::new(), len);
    let mut buffer = [0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((remaining == 0).then_some(hasher)),
            n => {
                hasher.update(&buffer[..n]);
                remaining -= n as u64;
            }
        }
    }
}
