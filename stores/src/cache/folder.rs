//! The folder of a cache, which several processes may share.
//!
//! Every block is a separate file, so any process can find a block by its name without a list. A
//! journal lists the blocks with their sizes and their owners (the dataset and the sample). The
//! sizes limit the total size of the cache, and the owners determine the blocks to evict. A process
//! changes the journal only while it holds a file lock, which the system releases if the process
//! dies.
//!
//! A process may be killed at any moment, so the order of the steps matters. A new block is
//! recorded in the journal before its complete file gets the final name. The file of an evicted
//! block is deleted before the journal records the removal. The journal therefore lists every
//! block, and perhaps some blocks without a file. Reading a block without a file is a cache miss,
//! after which the block may be written again. A power failure may damage blocks and the journal.
//! Checksums reveal the damage.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use warpfeed_sources::{Error, Result};

use super::block::Header;
use super::eviction::{BlockKey, Index, Owner};

const MARKER: &str = "warpfeed-cache";
const MARKER_TEXT: &str =
    "warpfeed cache, version 1\nFiles below blocks/ and files/ may be deleted by the cache at any time.\n";
const JOURNAL: &str = "journal";
const LOCK: &str = "lock";
const BLOCKS: &str = "blocks";
const PARTIAL: &str = "partial";
pub(super) const FILES: &str = "files";

/// Magic number of the journal, which includes the version.
const MAGIC: [u8; 8] = *b"wfcache\x01";
const RECORD_LEN: usize = 48;
/// Maximum average number of records per block. A journal of more than 64 KiB that has more records
/// is rewritten.
const MAX_RECORDS_PER_BLOCK: u64 = 4;
/// Maximum wait for the lock. A process that holds the lock for longer is probably suspended.
/// Blocks are then not cached.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum age of a partial file in use. The process that wrote an older file has probably ended.
const MAX_PARTIAL_AGE: Duration = Duration::from_secs(3600);

/// The blocks in a folder, with their headers and their sizes on disk in bytes.
pub(super) type Blocks = Vec<(BlockKey, Header, u64)>;

#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    /// Opens the cache in the folder at `path`, which is created if it does not exist.
    ///
    /// The outer result is an error if the cache must not use the path. Such a path is not a
    /// folder, or it is a folder that contains other files or a symbolic link, is a cache of a
    /// different version, or is rejected by [`check_owner`](Self::check_owner). The inner result is
    /// an error if the folder cannot be read, or if a missing file or folder cannot be created.
    pub(super) fn open(path: &Path) -> Result<io::Result<Self>> {
        let folder = Folder { path: path.to_owned() };
        folder.check_owner()?;
        Ok(match folder.prepare(true) {
            Err(OpenError::Rejected(cause)) => return Err(Error::config(cause).at_path(path)),
            Err(OpenError::Io(e)) => Err(e),
            Ok(()) => Ok(folder),
        })
    }

    pub(super) fn open_existing(path: &Path) -> Result<Self> {
        let folder = Folder { path: path.to_owned() };
        match folder.prepare(false) {
            Ok(()) => Ok(folder),
            Err(OpenError::Rejected(cause)) => Err(Error::config(cause).at_path(path)),
            Err(OpenError::Io(e)) => Err(Error::io(path, &e)),
        }
    }

    /// Checks that the folder is not writable by all users, and that it belongs to the user of this
    /// process unless this user is root. Checks nothing if the folder does not exist yet, or on
    /// systems without `/proc`.
    #[cfg(unix)]
    fn check_owner(&self) -> Result<()> {
        let (Ok(folder), Ok(process)) = (fs::metadata(&self.path), fs::metadata("/proc/self")) else { return Ok(()) };
        let advice = "choose a folder that only you can write to, such as a new folder inside it";
        let refused = |cause: &str| Err(Error::config(format!("{cause}: {advice}")).at_path(&self.path));
        match (folder.mode() & 0o002, process.uid()) {
            (0, 0) => Ok(()),
            (0, uid) if uid == folder.uid() => Ok(()),
            (0, _) => refused("the cache folder belongs to a different user"),
            _ => refused("the cache folder is writable by all users"),
        }
    }

    /// Does nothing, because the standard library provides the owner and the mode of a file only on
    /// Unix.
    #[cfg(not(unix))]
    fn check_owner(&self) -> Result<()> {
        Ok(())
    }

    fn read_marker(&self) -> std::result::Result<Option<Vec<u8>>, OpenError> {
        match fs::read(self.path.join(MARKER)) {
            Ok(mark) if mark == MARKER_TEXT.as_bytes() => Ok(Some(mark)),
            Ok(mark) => {
                let version = String::from_utf8_lossy(&mark).lines().next().unwrap_or_default().to_owned();
                Err(OpenError::Rejected(format!(
                    "this folder is a cache of a different version ({version:?}): choose a different folder, or delete this one"
                )))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn prepare(&self, create: bool) -> std::result::Result<(), OpenError> {
        if create {
            create_folder(&self.path)?;
        }
        let mut marker = self.read_marker()?;
        let known_names = [MARKER, JOURNAL, LOCK, BLOCKS, PARTIAL, FILES];
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Another process that opens the folder at the same time writes the marker under a
            // temporary name first.
            let is_new_marker = name.starts_with("warpfeed-cache.");
            if known_names.contains(&&*name) && marker.is_none() && create {
                // The other process writes the marker before any other file, so the marker may
                // exist by now.
                marker = self.read_marker()?;
            }
            if !is_new_marker && (!known_names.contains(&&*name) || (marker.is_none() && create)) {
                return Err(OpenError::Rejected(format!(
                    "a cache needs its own folder, but this one contains {name:?}: choose an empty folder"
                )));
            }
            if entry.file_type()?.is_symlink() {
                return Err(OpenError::Rejected(format!(
                    "{name:?} in the cache is a symbolic link: the cache does not write outside its folder"
                )));
            }
        }
        match (marker, create) {
            (None, false) => return Err(OpenError::Rejected("this folder is not a warpfeed cache".to_owned())),
            (None, true) => {
                let partial = self.path.join(format!("warpfeed-cache.{}", unique_name()));
                fs::write(&partial, MARKER_TEXT)?;
                fs::rename(partial, self.path.join(MARKER))?;
            }
            _ => {}
        }
        if create {
            for name in [BLOCKS, PARTIAL, FILES] {
                create_folder(&self.path.join(name))?;
            }
            self.remove_stale_files();
        }
        Ok(())
    }

    fn remove_stale_files(&self) {
        for entry in fs::read_dir(self.path.join(PARTIAL)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !name.to_str().is_some_and(is_unique_name) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let age = entry.metadata().and_then(|metadata| metadata.modified());
            let age = age.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if age.is_some_and(|age| age > MAX_PARTIAL_AGE) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    pub(super) fn block_path(&self, key: BlockKey) -> PathBuf {
        self.path.join(BLOCKS).join(format!("{:02x}", key >> 120)).join(format!("{key:032x}"))
    }

    /// Returns a unique path for a new file. The caller renames the file when it is complete.
    pub(super) fn new_partial_path(&self) -> PathBuf {
        self.path.join(PARTIAL).join(unique_name())
    }

    pub(super) fn publish(&self, partial: &Path, key: BlockKey) -> io::Result<()> {
        let target = self.block_path(key);
        match fs::rename(partial, &target) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(target.parent().expect("blocks are in folders"))?;
                fs::rename(partial, &target)
            }
            renamed => renamed,
        }
    }

    /// Locks the folder. Returns `None` if another process holds the lock for too long.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        // Open the file again for each lock: a child process that is forked shares open files, and
        // would share the lock.
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.path.join(LOCK))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(e)) => return Err(e),
                Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_TIMEOUT => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    /// Returns the blocks with a valid header, and the paths of all other files below `blocks`.
    /// Does not check the content of the blocks.
    pub(super) fn scan(&self) -> io::Result<(Blocks, Vec<PathBuf>)> {
        let (mut blocks, mut others) = (Vec::new(), Vec::new());
        let entries = |path: &Path| match fs::read_dir(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            list => list?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>(),
        };
        for subfolder in entries(&self.path.join(BLOCKS))? {
            let Some(metadata) = none_if_missing(fs::symlink_metadata(&subfolder))? else { continue };
            if !metadata.is_dir() {
                others.push(subfolder);
                continue;
            }
            for path in entries(&subfolder)? {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let key = BlockKey::from_str_radix(&name, 16).ok().filter(|&key| self.block_path(key) == path);
                let header = match File::open(&path) {
                    Ok(mut file) if key.is_some() => Header::read(&mut file)?,
                    // Another process has removed the file since the folder was listed.
                    Err(e) if e.kind() == ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                    Ok(_) => None,
                };
                match (key, header) {
                    (Some(key), Some(header)) if header.range().key() == key => {
                        let bytes = header.range().disk_bytes();
                        blocks.push((key, header, bytes));
                    }
                    _ => others.push(path),
                }
            }
        }
        Ok((blocks, others))
    }
}

/// Converts the error for a missing file to `None`. After any other error, the file must not be
/// treated as missing or damaged.
pub(super) fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

enum OpenError {
    Rejected(String),
    Io(io::Error),
}

impl From<io::Error> for OpenError {
    fn from(e: io::Error) -> Self {
        // The path refers to something other than a folder.
        match e.kind() {
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                OpenError::Rejected("not a folder: choose a folder for the cache".to_owned())
            }
            _ => OpenError::Io(e),
        }
    }
}

/// Creates a folder and its parents. On Unix, only the current user can access the new folders.
fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    builder.mode(0o700);
    match builder.recursive(true).create(path) {
        // Unlike `Path::is_dir`, this fails if the operating system cannot examine the path.
        Err(e) if e.kind() == ErrorKind::AlreadyExists && fs::metadata(path)?.is_dir() => Ok(()),
        created => created,
    }
}

fn is_unique_name(name: &str) -> bool {
    let mut parts = name.split('-');
    let mut number = || parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let numbers = number() && number() && number();
    numbers && parts.next().is_none()
}

/// Returns a name that no other process, thread or container uses: the process ID, the time, and a
/// number that is unique within the process.
fn unique_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The time only distinguishes containers in which a process has the same ID, so the clock may
    // be wrong.
    format!("{}-{}-{}", std::process::id(), now.as_nanos(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Add(BlockKey, u64, Owner),
    Remove(BlockKey),
}

impl Record {
    fn encode(self) -> [u8; RECORD_LEN] {
        let (kind, key, bytes, owner) = match self {
            Record::Add(key, bytes, owner) => (1u32, key, bytes, owner),
            Record::Remove(key) => (2, key, 0, Owner::default()),
        };
        let mut record = [0; RECORD_LEN];
        record[4..8].copy_from_slice(&kind.to_le_bytes());
        record[8..24].copy_from_slice(&key.to_le_bytes());
        record[24..32].copy_from_slice(&bytes.to_le_bytes());
        record[32..40].copy_from_slice(&owner.dataset.to_le_bytes());
        record[40..].copy_from_slice(&owner.sample.to_le_bytes());
        let checksum = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
        record
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let word = |offset: usize| u32::from_le_bytes(std::array::from_fn(|i| record[offset + i]));
        let long = |offset: usize| u64::from_le_bytes(std::array::from_fn(|i| record[offset + i]));
        let key = BlockKey::from_le_bytes(std::array::from_fn(|i| record[8 + i]));
        match (crc32fast::hash(&record[4..]) == word(0), word(4)) {
            (true, 1) => Some(Record::Add(key, long(24), Owner { dataset: long(32), sample: long(40) })),
            (true, 2) => Some(Record::Remove(key)),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Generation of the journal, which changes when the journal is rewritten.
    generation: u64,
    read_len: u64,
}

/// Blocks of a journal, with their sizes in bytes and their owners.
type BlockMap = HashMap<BlockKey, (u64, Owner)>;

/// Changes in the journal since a process last read it.
pub(super) enum JournalUpdate {
    Changes(Vec<Record>),
    All(BlockMap),
}

impl Journal {
    /// Returns the changes since the last call, for [`Index::apply_update`]. Returns all blocks on
    /// the first call, and after another process has rewritten the journal. Rebuilds a missing or
    /// damaged journal from the block files. The folder must be locked.
    pub(super) fn read_update(&mut self, folder: &Folder) -> io::Result<JournalUpdate> {
        let path = folder.path.join(JOURNAL);
        let mut bytes = Vec::new();
        let mut is_intact = false;
        match File::open(&path) {
            Ok(mut file) => {
                let mut header = [0; 16];
                if file.read_exact(&mut header).is_ok() && header[..8] == MAGIC {
                    let generation = u64::from_le_bytes(std::array::from_fn(|i| header[8 + i]));
                    if generation != self.generation {
                        *self = Journal { generation, read_len: 0 };
                    }
                    let start = self.read_len.max(16);
                    is_intact = file.metadata()?.len() >= start;
                    file.seek(SeekFrom::Start(start))?;
                    file.read_to_end(&mut bytes)?;
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let records: Option<Vec<_>> =
            bytes.chunks(RECORD_LEN).map(|r| (r.len() == RECORD_LEN).then(|| Record::decode(r))?).collect();
        let Some(records) = records.filter(|_| is_intact) else {
            // The journal is missing or damaged, for example after a power failure.
            return Ok(JournalUpdate::All(self.rebuild(folder)?));
        };
        let is_first = self.read_len == 0;
        self.read_len = self.read_len.max(16) + bytes.len() as u64;
        if !is_first {
            return Ok(JournalUpdate::Changes(records));
        }
        let mut blocks = BlockMap::new();
        for record in records {
            match record {
                Record::Add(key, bytes, owner) => blocks.insert(key, (bytes, owner)),
                Record::Remove(key) => blocks.remove(&key),
            };
        }
        Ok(JournalUpdate::All(blocks))
    }

    /// Returns whether a journal of `blocks` blocks has so many obsolete records that it should be
    /// rewritten.
    pub(super) fn is_sparse(&self, blocks: usize) -> bool {
        self.read_len > 1 << 16 && self.read_len / RECORD_LEN as u64 > MAX_RECORDS_PER_BLOCK * blocks as u64
    }

    pub(super) fn write(&mut self, folder: &Folder, blocks: &BlockMap) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let generation = (now.as_nanos() as u64).max(self.generation.wrapping_add(1));
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&generation.to_le_bytes());
        for (&key, &(size, owner)) in blocks {
            bytes.extend_from_slice(&Record::Add(key, size, owner).encode());
        }
        let partial = folder.new_partial_path();
        let result = fs::write(&partial, &bytes).and_then(|()| fs::rename(&partial, folder.path.join(JOURNAL)));
        if result.is_err() {
            let _ = fs::remove_file(partial);
        }
        result?;
        *self = Journal { generation, read_len: bytes.len() as u64 };
        Ok(())
    }

    /// Appends records to the journal. The lock must have been held since the last call to
    /// [`read_update`](Journal::read_update). The caller must apply the records to the index.
    pub(super) fn append(&mut self, folder: &Folder, records: &[Record]) -> io::Result<()> {
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.encode()).collect();
        let mut file = OpenOptions::new().write(true).open(folder.path.join(JOURNAL))?;
        file.seek(SeekFrom::Start(self.read_len))?;
        if let Err(e) = file.write_all(&bytes) {
            // If the disk is full, only some of the records may have been written.
            let _ = file.set_len(self.read_len);
            return Err(e);
        }
        self.read_len += bytes.len() as u64;
        Ok(())
    }

    /// Returns the keys of all blocks that the journal lists as added, including blocks that it
    /// lists as removed later. Ignores damaged records.
    pub(super) fn added_keys(folder: &Folder) -> io::Result<HashSet<BlockKey>> {
        let bytes = none_if_missing(fs::read(folder.path.join(JOURNAL)))?.unwrap_or_default();
        let records = bytes.get(16..).unwrap_or_default().as_chunks::<RECORD_LEN>().0.iter();
        let added_keys = records.filter_map(|record| match Record::decode(record)? {
            Record::Add(key, ..) => Some(key),
            Record::Remove(_) => None,
        });
        Ok(added_keys.collect())
    }

    /// Writes a new journal of the blocks in the folder, which must be locked, and returns the
    /// blocks.
    pub(super) fn rebuild(&mut self, folder: &Folder) -> io::Result<BlockMap> {
        let (blocks, _) = folder.scan()?;
        let entries = blocks.into_iter().map(|(key, header, bytes)| (key, (bytes, header.owner))).collect();
        self.write(folder, &entries)?;
        Ok(entries)
    }
}

impl Index {
    pub(super) fn apply(&mut self, records: &[Record]) {
        for &record in records {
            match record {
                Record::Add(key, bytes, owner) => self.add(key, bytes, owner),
                Record::Remove(key) => self.remove(key),
            }
        }
    }

    pub(super) fn apply_update(&mut self, update: &JournalUpdate) {
        match update {
            JournalUpdate::Changes(records) => self.apply(records),
            JournalUpdate::All(blocks) => {
                let removed_keys: Vec<_> =
                    self.iter().map(|(key, ..)| key).filter(|key| !blocks.contains_key(key)).collect();
                removed_keys.into_iter().for_each(|key| self.remove(key));
                for (&key, &(bytes, owner)) in blocks {
                    if !self.contains(key) {
                        self.add(key, bytes, owner);
                    }
                }
            }
        }
    }
}
