//! Combines the blocks in the memory of this process with the blocks in the shared folder.
//!
//! A read waits for the disk access of another thread or for the folder's lock only if it finds a
//! damaged block. The memory tier and the folder's index each have a mutex, which is held only for
//! computation. To change the folder, a thread acquires the journal's mutex, then the folder's
//! lock, and finally, only briefly, the mutex of the index.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpfeed_sources::{BatchIndex, Lookahead, Object, ReadParts, Store, Tier};
use warpfeed_sources::{Error, Result};

use super::block::{self, BlockRange};
use super::eviction::{BlockKey, Index, Owner};
use super::folder::{Folder, Journal, Record};
use super::{CacheStats, files, listing};

pub(super) struct TieredCache {
    folder: Option<Folder>,
    /// Maximum number of bytes of files and blocks in the folder.
    max_disk_bytes: u64,
    /// Whether blocks can be written. Becomes false after the first error while the folder is
    /// changed, such as a full disk.
    is_writable: AtomicBool,
    memory: Mutex<MemoryTier>,
    /// The journal. A thread holds the mutex while it changes the folder, so that other threads
    /// wait for this mutex instead of the folder's lock.
    journal: Mutex<Journal>,
    disk: Mutex<DiskTier>,
    last_loader_id: AtomicU64,
    /// ID of the process that opened the cache. A forked child cannot use the cache, because a
    /// mutex that another thread held at the fork would stay locked forever.
    process_id: u32,
    counts: Counters,
}

/// Maximum number of evictions per write. If a lowered limit or a large block requires more
/// evictions, the remaining ones happen at the next writes.
const MAX_EVICTIONS: usize = 256;

struct MemoryTier {
    index: Index,
    blocks: HashMap<BlockKey, Block>,
    /// Maps the id of each loader to its id in the index.
    loader_ids: HashMap<u64, u64>,
}

struct DiskTier {
    index: Index,
    /// Blocks that the journal lists but that have no file.
    missing: HashSet<BlockKey>,
    loader_ids: HashMap<u64, u64>,
}

struct Block {
    object: Object,
    offset: u64,
    owner: Owner,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Counters {
    memory_hits: AtomicU64,
    memory_bytes: AtomicU64,
    disk_hits: AtomicU64,
    disk_bytes: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
    written_bytes: AtomicU64,
    damaged: AtomicU64,
}

impl TieredCache {
    /// Opens the cache in the folder at `path`. Limits the folder to `max_disk_bytes` bytes, and
    /// the blocks in memory to `max_memory_bytes` bytes. An I/O error, for example in a read-only
    /// folder, causes only a warning.
    pub(super) fn open(path: &Path, max_disk_bytes: u64, max_memory_bytes: u64) -> Result<Self> {
        let (folder, is_writable) = match Folder::open(path)? {
            Ok(folder) => (Some(folder), true),
            Err(e) => {
                // Existing blocks may still be readable.
                let folder = Folder::open_existing(path).ok();
                warn(path, &e, if folder.is_some() { "nothing new is cached" } else { "nothing is cached" });
                (folder, false)
            }
        };
        let cache = Self::new(folder, is_writable, max_disk_bytes, max_memory_bytes);
        cache.with_locked_folder(|_, _, _| Ok(()));
        Ok(cache)
    }

    pub(super) fn in_memory(bytes: u64) -> Self {
        Self::new(None, false, 0, bytes)
    }

    fn new(folder: Option<Folder>, is_writable: bool, max_disk_bytes: u64, max_memory_bytes: u64) -> Self {
        TieredCache {
            folder,
            max_disk_bytes,
            is_writable: AtomicBool::new(is_writable),
            memory: Mutex::new(MemoryTier {
                index: Index::new(max_memory_bytes),
                blocks: HashMap::new(),
                loader_ids: HashMap::new(),
            }),
            journal: Mutex::default(),
            disk: Mutex::new(DiskTier {
                index: Index::new(max_disk_bytes),
                missing: HashSet::new(),
                loader_ids: HashMap::new(),
            }),
            last_loader_id: AtomicU64::new(0),
            process_id: std::process::id(),
            counts: Counters::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, MemoryTier> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, DiskTier> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this process opened the cache. If a different process did, logs a warning
    /// once.
    fn is_own_process(&self) -> bool {
        static IS_LOGGED: AtomicBool = AtomicBool::new(false);
        let is_own = std::process::id() == self.process_id;
        if !is_own && !IS_LOGGED.swap(true, Relaxed) {
            tracing::warn!(
                "the cache was opened before this process was forked, so nothing is cached: open the cache after the fork"
            );
        }
        is_own
    }

    /// Runs `change` while the folder is locked and the index is up to date, so no other process
    /// can add or remove blocks. Skips `change` if the folder is not writable, or if another
    /// process holds the lock for too long. After an error, the cache no longer writes to the
    /// folder.
    fn with_locked_folder(&self, change: impl FnOnce(&Folder, &mut Journal, &Mutex<DiskTier>) -> io::Result<()>) {
        let Some(folder) = self.folder.as_ref().filter(|_| self.is_writable.load(Relaxed)) else { return };
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let result = folder.lock().and_then(|lock| {
            let Some(_lock) = lock else { return Ok(()) };
            // Reads need the index, so its mutex is not held during I/O.
            let (update, file_bytes) = (journal.read_update(folder)?, files::total_bytes(folder)?);
            let sparse_blocks = {
                let mut disk = self.disk();
                let index = &mut disk.index;
                index.apply_update(&update);
                index.set_limit(self.max_disk_bytes.saturating_sub(file_bytes));
                journal
                    .is_sparse(index.len())
                    .then(|| index.iter().map(|(key, size, owner)| (key, (size, owner))).collect())
            };
            if let Some(blocks) = sparse_blocks {
                journal.write(folder, &blocks)?;
            }
            change(folder, &mut journal, &self.disk)
        });
        drop(journal);
        if let Err(e) = result {
            self.stop_writing(&folder.path, &e);
        }
    }

    fn stop_writing(&self, path: &Path, e: &io::Error) {
        if self.is_writable.swap(false, Relaxed) {
            warn(path, e, "nothing more is cached");
        }
    }

    /// Fills `out` with the bytes of `object` at `offset`, if exactly this range is cached, and
    /// returns the tier that contained them.
    pub(super) fn get(&self, object: &Object, offset: u64, out: &mut [u8]) -> Option<Tier> {
        if !self.is_own_process() || object.strong_tag().is_none() {
            return None;
        }
        let range = BlockRange { object, offset, len: out.len() as u64 };
        let key = range.key();
        if self.get_in_memory(key, range, out) {
            self.counts.memory_hits.fetch_add(1, Relaxed);
            self.counts.memory_bytes.fetch_add(range.len, Relaxed);
            return Some(Tier::Memory);
        }
        if self.get_in_folder(key, range, out) {
            self.counts.disk_hits.fetch_add(1, Relaxed);
            self.counts.disk_bytes.fetch_add(range.len, Relaxed);
            return Some(Tier::Disk);
        }
        None
    }

    pub(super) fn count_miss(&self, bytes: usize) {
        self.counts.misses.fetch_add(1, Relaxed);
        self.counts.missed_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn contains(&self, object: &Object, offset: u64, len: u64) -> bool {
        if !self.is_own_process() || object.strong_tag().is_none() {
            return false;
        }
        let key = BlockRange { object, offset, len }.key();
        if self.memory().blocks.contains_key(&key) {
            return true;
        }
        // This index may lack blocks of other processes.
        let disk = self.disk();
        let unknown = !disk.index.contains(key) || disk.missing.contains(&key);
        drop(disk);
        let Some(folder) = &self.folder else { return false };
        !unknown || folder.block_path(key).exists()
    }

    fn get_in_memory(&self, key: BlockKey, range: BlockRange<'_>, out: &mut [u8]) -> bool {
        let mut memory = self.memory();
        let Some(block) = memory.blocks.get(&key) else { return false };
        if block.object != *range.object || block.offset != range.offset || block.bytes.len() != out.len() {
            return false;
        }
        out.copy_from_slice(&block.bytes);
        memory.index.mark_used(key);
        true
    }

    fn get_in_folder(&self, key: BlockKey, range: BlockRange<'_>, out: &mut [u8]) -> bool {
        let Some(folder) = &self.folder else { return false };
        match File::open(folder.block_path(key)).and_then(|mut file| block::read(&mut file, range, out)) {
            Ok(true) => {
                self.disk().index.mark_used(key);
                return true;
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let mut disk = self.disk();
                if disk.index.contains(key) {
                    disk.missing.insert(key);
                }
                return false;
            }
            Ok(false) => {
                tracing::warn!("{}: damaged; fetching again", folder.block_path(key).display());
            }
            // The block may be intact, for example if the process has too many open files.
            Err(e) => {
                tracing::warn!("{}: {e}; fetching again", folder.block_path(key).display());
                return false;
            }
        }
        self.counts.damaged.fetch_add(1, Relaxed);
        self.with_locked_folder(|folder, journal, disk| {
            remove(folder, key)?;
            let records = [Record::Remove(key)];
            journal.append(folder, &records)?;
            disk.lock().unwrap_or_else(PoisonError::into_inner).index.apply(&records);
            Ok(())
        });
        false
    }

    /// Offers bytes that begin at `offset` of `object`. The cache stores the bytes unless it would
    /// evict them first. Their next use is in batch `earliest_use` or later. If this is `None`, the
    /// search for the next use starts at the loader's position.
    pub(super) fn offer(
        &self,
        object: &Object,
        offset: u64,
        bytes: &[u8],
        owner: Owner,
        earliest_use: Option<BatchIndex>,
    ) {
        if !self.is_own_process() || object.strong_tag().is_none() {
            return;
        }
        let range = BlockRange { object, offset, len: bytes.len() as u64 };
        if !range.header_fits() {
            return;
        }
        let key = range.key();
        let mut memory = self.memory();
        if memory.blocks.contains_key(&key) {
            return;
        }
        let Some(evicted) = memory.index.plan_admission(range.len, owner, earliest_use) else {
            drop(memory);
            self.write(range, bytes, owner, earliest_use);
            return;
        };
        let evicted: Vec<_> = evicted
            .into_iter()
            .filter_map(|key| {
                memory.index.remove(key);
                memory.blocks.remove(&key)
            })
            .collect();
        memory.index.add(key, range.len, owner);
        memory.blocks.insert(key, Block { object: object.clone(), offset, owner, bytes: bytes.to_vec() });
        drop(memory);
        for Block { object, offset, owner, bytes } in evicted {
            let range = BlockRange { object: &object, offset, len: bytes.len() as u64 };
            self.write(range, &bytes, owner, None);
        }
    }

    /// Writes a block to the folder, unless the folder contains the block, or the block would be
    /// the first to be evicted.
    fn write(&self, range: BlockRange<'_>, bytes: &[u8], owner: Owner, earliest_use: Option<BatchIndex>) {
        let Some(folder) = self.folder.as_ref().filter(|_| self.is_writable.load(Relaxed)) else { return };
        let (key, size) = (range.key(), range.disk_bytes());
        {
            let mut disk = self.disk();
            let is_missing = disk.missing.contains(&key);
            if !is_missing
                && (disk.index.contains(key) || disk.index.plan_admission(size, owner, earliest_use).is_none())
            {
                return;
            }
        }
        let partial = folder.new_partial_path();
        let file = OpenOptions::new().write(true).create_new(true).open(&partial);
        let result = file.and_then(|mut file| block::write(&mut file, range, owner, bytes));
        if let Err(e) = result {
            let _ = fs::remove_file(&partial);
            self.stop_writing(&folder.path, &e);
            return;
        }
        self.with_locked_folder(|folder, journal, disk| {
            let lock = || disk.lock().unwrap_or_else(PoisonError::into_inner);
            let evicted_keys = {
                let DiskTier { index, missing, .. } = &mut *lock();
                if missing.remove(&key) && index.contains(key) {
                    None
                } else {
                    let Some(evicted_keys) =
                        index.plan_admission(size, owner, earliest_use).filter(|_| !index.contains(key))
                    else {
                        return Ok(());
                    };
                    Some(evicted_keys)
                }
            };
            let Some(mut evicted_keys) = evicted_keys else {
                folder.publish(&partial, key)?;
                self.counts.written_bytes.fetch_add(range.len, Relaxed);
                return Ok(());
            };
            let fits = evicted_keys.len() <= MAX_EVICTIONS;
            evicted_keys.truncate(MAX_EVICTIONS);
            // Remove the files before their records, so that every file has a record.
            evicted_keys.iter().try_for_each(|&key| remove(folder, key))?;
            let mut records: Vec<_> = evicted_keys.into_iter().map(Record::Remove).collect();
            records.extend(fits.then_some(Record::Add(key, size, owner)));
            journal.append(folder, &records)?;
            lock().index.apply(&records);
            if !fits {
                return Ok(());
            }
            if let Err(e) = folder.publish(&partial, key) {
                // Remove the record, because the next process would treat the block as present.
                let records = [Record::Remove(key)];
                journal.append(folder, &records)?;
                lock().index.apply(&records);
                return Err(e);
            }
            self.counts.written_bytes.fetch_add(range.len, Relaxed);
            Ok(())
        });
        // The partial file still exists if it was not published.
        let _ = fs::remove_file(&partial);
    }

    pub(super) fn list(&self, store: &dyn Store, prefix: &str) -> Result<(Vec<Object>, bool)> {
        match self.folder.as_ref().filter(|_| self.is_own_process()) {
            Some(folder) => listing::list(folder, store, prefix),
            None => Ok((store.list(prefix)?, false)),
        }
    }

    /// Downloads objects as whole files. See [`files::download`]. Fails if this process did not
    /// open the cache, or if the cache has no writable folder.
    pub(super) fn download(&self, base: &str, objects: &[Object], read: &ReadParts<'_>) -> Result<PathBuf> {
        if !self.is_own_process() {
            let cause = "the cache was opened before this process was forked: open the dataset after the fork";
            return Err(Error::config(cause).at_path(base));
        }
        let folder = self.folder.as_ref().filter(|_| self.is_writable.load(Relaxed)).ok_or_else(|| {
            let cause = "this format needs local files, and the cache has no writable folder: \
                         choose a different folder, or copy the dataset to this machine";
            Error::config(cause).at_path(base)
        })?;
        files::download(folder, self.max_disk_bytes, base, objects, read, || self.shrink())
    }

    /// Evicts blocks until the whole files and the remaining blocks are within the limit.
    fn shrink(&self) {
        self.with_locked_folder(|folder, journal, disk| {
            let lock = || disk.lock().unwrap_or_else(PoisonError::into_inner);
            // Reads need the index, so its mutex is released after each step.
            let evicted_keys = loop {
                if let Some(evicted_keys) = lock().index.select_excess_blocks() {
                    break evicted_keys;
                }
            };
            evicted_keys.iter().try_for_each(|&key| remove(folder, key))?;
            let records: Vec<_> = evicted_keys.into_iter().map(Record::Remove).collect();
            journal.append(folder, &records)?;
            lock().index.apply(&records);
            Ok(())
        });
    }

    pub(super) fn remove_listing(&self, prefix: &str) {
        self.folder.iter().for_each(|folder| listing::remove_listing(folder, prefix));
    }

    pub(super) fn remove_listings_above(&self, url: &str) {
        let start = url.find("://").map_or(0, |end| end + 3);
        url[start..].match_indices('/').for_each(|(offset, _)| self.remove_listing(&url[..=start + offset]));
    }

    pub(super) fn add_loader(&self, dataset: u64, order: &Lookahead) -> u64 {
        if !self.is_own_process() {
            return 0;
        }
        let id = self.last_loader_id.fetch_add(1, Relaxed);
        let MemoryTier { index, loader_ids, .. } = &mut *self.memory();
        loader_ids.insert(id, index.add_loader(dataset, order.clone()));
        let DiskTier { index, loader_ids, .. } = &mut *self.disk();
        loader_ids.insert(id, index.add_loader(dataset, order.clone()));
        id
    }

    pub(super) fn remove_loader(&self, dataset: u64, id: u64) {
        if !self.is_own_process() {
            return;
        }
        let MemoryTier { index, loader_ids, .. } = &mut *self.memory();
        loader_ids.remove(&id).into_iter().for_each(|id| index.remove_loader(dataset, id));
        let DiskTier { index, loader_ids, .. } = &mut *self.disk();
        loader_ids.remove(&id).into_iter().for_each(|id| index.remove_loader(dataset, id));
    }

    pub(super) fn set_position(&self, dataset: u64, id: u64, batch: BatchIndex) {
        if !self.is_own_process() {
            return;
        }
        let MemoryTier { index, loader_ids, .. } = &mut *self.memory();
        loader_ids.get(&id).into_iter().for_each(|&id| index.set_position(dataset, id, batch));
        let DiskTier { index, loader_ids, .. } = &mut *self.disk();
        loader_ids.get(&id).into_iter().for_each(|&id| index.set_position(dataset, id, batch));
    }

    pub(super) fn stats(&self) -> CacheStats {
        let counts = &self.counts;
        let [memory_hits, memory_bytes, disk_hits, disk_bytes, misses, missed_bytes, written_bytes, damaged] = [
            &counts.memory_hits,
            &counts.memory_bytes,
            &counts.disk_hits,
            &counts.disk_bytes,
            &counts.misses,
            &counts.missed_bytes,
            &counts.written_bytes,
            &counts.damaged,
        ]
        .map(|count| count.load(Relaxed));
        CacheStats { memory_hits, memory_bytes, disk_hits, disk_bytes, misses, missed_bytes, written_bytes, damaged }
    }
}

pub(super) fn remove(folder: &Folder, key: BlockKey) -> io::Result<()> {
    match fs::remove_file(folder.block_path(key)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn warn(path: &Path, e: &io::Error, result: &str) {
    tracing::warn!("the cache {}: {e}; {result}, and other reads go to the store", path.display());
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_block_whose_file_was_deleted_counts_as_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TieredCache::open(folder.path(), 1 << 30, 0).unwrap();
        let object = Object { url: "mem://b/x".to_owned(), len: 9, tag: Some("1".to_owned()), server: None };
        let offer = || cache.offer(&object, 0, &[7; 9], Owner::default(), None);
        offer();
        let key = BlockRange { object: &object, offset: 0, len: 9 }.key();
        fs::remove_file(cache.folder.as_ref().unwrap().block_path(key)).unwrap();
        assert_eq!(cache.get(&object, 0, &mut [0; 9]), None);
        offer();
        assert_eq!(cache.get(&object, 0, &mut [0; 9]), Some(Tier::Disk));
        assert_eq!(cache.stats().written_bytes, 18);
    }

    #[test]
    fn reads_do_not_wait_for_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TieredCache::open(folder.path(), 1 << 30, 0).unwrap();
        let object = Object { url: "mem://b/x".to_owned(), len: 99, tag: Some("1".to_owned()), server: None };
        let offer =
            |offset: u64| cache.offer(&object, offset, &[offset as u8; 9], Owner { dataset: 7, sample: offset }, None);
        offer(0);
        // A pipe simulates a slow disk, because opening it waits for a writer.
        let journal = folder.path().join("journal");
        fs::remove_file(&journal).unwrap();
        assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success());
        thread::scope(|scope| {
            let write = scope.spawn(|| offer(9));
            // A read that waited for the disk would wait until this thread opens the pipe.
            scope.spawn(|| {
                thread::sleep(Duration::from_secs(3));
                drop(OpenOptions::new().write(true).open(&journal));
            });
            thread::sleep(Duration::from_millis(200));
            let (start, mut bytes) = (Instant::now(), [1; 9]);
            assert!(cache.contains(&object, 0, 9) && !cache.contains(&object, 9, 9));
            assert_eq!(cache.get(&object, 0, &mut bytes), Some(Tier::Disk));
            cache.set_position(
                7,
                cache.add_loader(7, &Lookahead::new(0, |_| 1, |_| Some(vec![0]))),
                BatchIndex::default(),
            );
            assert!(!write.is_finished() && start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            assert_eq!(bytes, [0; 9]);
        });
        assert!(journal.is_file() && cache.contains(&object, 9, 9));
        assert_eq!(cache.get(&object, 9, &mut [0; 9]), Some(Tier::Disk));
    }
}
