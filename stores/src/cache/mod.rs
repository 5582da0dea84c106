//! [`Cache`]: bytes of stores on this machine.
//!
//! 1. `index` chooses the blocks to keep, by their next use in the order of a loader.
//! 2. `block` is one block in a file; `folder` is the folder with its journal.
//! 3. `tiered` has the blocks of this process: in memory, and in the folder.
//! 4. `listing` keeps listings of stores in the folder.
//! 5. `files` keeps whole files in the folder, for formats that need them.
//! 6. `store` wraps a store with the cache.
//! 7. `manage` shows, checks and empties a folder; `warm` fills it.
//!
//! A block is one range of one version of an object: usually one sample. Blocks are not fixed parts
//! of an object, because a shuffle would then fetch and keep much that it does not use.

mod block;
mod files;
mod folder;
mod index;
mod listing;
mod manage;
mod store;
mod tiered;
mod warm;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpfeed_sources::Store;
use warpfeed_sources::{Error, Result};

pub use manage::{Contents, check, empty, refresh, show};
pub use warm::warm;

use crate::runtime::PerProcess;
use tiered::TieredCache;

/// Bytes of stores on this machine: in memory, and in a folder of bounded size.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed_stores::Cache;
///
/// let cache = Cache::open("/local/cache", 500_000_000_000)?;
/// let loader = Loader::new("s3://bucket/train").stores(cache.stores(warpfeed_stores::all())).shuffle(42);
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// **What is kept.** The cache knows the order of the loader. It keeps the samples that are read
/// soonest, and does not add a sample that it would drop first. That is the best possible choice
/// (Belady's optimum). On one machine, the hit rate of reshuffled epochs is the share of the data
/// that fits; on several, it is higher, because each sample may next be read by another machine.
/// With other orders, such as draws with replacement, the sample that was used longest ago is
/// dropped first.
///
/// **Sharing.** All processes of a user on a machine may use one folder at once, with any datasets
/// and versions of the data. Each process fetches what it does not find. A process may be killed at
/// any time. A restarted job finds the existing blocks.
///
/// **Safety.** Every block has a checksum that is verified when it is read. A damaged block is
/// dropped and fetched again. The version (ETag or generation) of an object is part of the name of
/// its blocks, so bytes of two versions are never mixed. Objects without a version, or with a weak
/// one, are not kept. The cache deletes only blocks that it has written, and refuses a folder with
/// other files.
///
/// **Listings.** The folder also keeps the listings of stores, so a folder of a million images is
/// listed once, by one of the ranks. An opening asks the server for eight of the objects, and lists
/// again if one of them has changed. If another one changed, reading it is an error, and the next
/// opening lists again. Objects that were added are found after [`refresh`]. Listings do not count
/// towards `bytes`.
///
/// **Whole files.** Formats that need files, such as LMDB, are brought to the folder as a whole. They
/// count towards `bytes` and come before blocks. They stay as long as a process that opened them
/// lives.
///
/// **Errors.** A full disk or a read-only folder is one warning: the loader then reads from the
/// store what the cache does not have.
#[derive(Clone)]
pub struct Cache(Arc<TieredCache>);

impl Cache {
    /// Opens the cache in the folder `path`, with up to `bytes` bytes of blocks. Creates the folder
    /// if it does not exist.
    ///
    /// # Errors
    /// If the folder has files that are not those of a cache, or is a cache of another version, or
    /// if another user may write to it.
    pub fn open(path: impl AsRef<Path>, bytes: u64) -> Result<Self> {
        Self::with_memory(path, bytes, 0)
    }

    /// Like [`open`](Cache::open), with up to `memory` bytes of blocks in the memory of this
    /// process, before the folder. The system keeps recently used files in memory anyway, so this
    /// helps if the folder is slow.
    ///
    /// # Errors
    /// The errors of [`open`](Cache::open).
    pub fn with_memory(path: impl AsRef<Path>, bytes: u64, memory: u64) -> Result<Self> {
        // Loaders of one process share what they know of the order.
        static OPEN: PerProcess<OpenCaches> = PerProcess::new();
        let mut open = OPEN.get(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, kept)| kept.strong_count() > 0);
        let opened = |path| Opened { path, bytes, memory };
        let find = |path: PathBuf| {
            open.iter().find(|(one, _)| *one == opened(path.clone())).and_then(|(_, kept)| kept.upgrade())
        };
        if let Some(kept) = path.as_ref().canonicalize().ok().and_then(find) {
            return Ok(Cache(kept));
        }
        let kept = Arc::new(TieredCache::open(path.as_ref(), bytes, memory)?);
        if let Ok(path) = path.as_ref().canonicalize() {
            open.push((opened(path), Arc::downgrade(&kept)));
        }
        Ok(Cache(kept))
    }

    /// A cache of `bytes` bytes in the memory of this process, without a folder.
    pub fn in_memory(bytes: u64) -> Self {
        Cache(Arc::new(TieredCache::in_memory(bytes)))
    }

    /// The default folder of a cache: `blocks` in `$WARPFEED_CACHE`, or in `warpfeed` in
    /// `$XDG_CACHE_HOME` or `~/.cache`.
    ///
    /// # Errors
    /// If neither of the variables is set, and `HOME` is not.
    pub fn default_path() -> Result<PathBuf> {
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let root = folder("WARPFEED_CACHE").or_else(|| Some(user()?.join("warpfeed")));
        let unknown = || Error::config("neither XDG_CACHE_HOME nor HOME is set: name the folder of the cache");
        Ok(root.ok_or_else(unknown)?.join("blocks"))
    }

    /// `store` behind this cache.
    pub fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::Cached::new(self.clone(), store))
    }

    /// Stores by scheme, such as [`all`](crate::all), behind this cache.
    pub fn stores<S>(&self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Vec<(S, Arc<dyn Store>)> {
        stores.into_iter().map(|(scheme, store)| (scheme, self.store(store))).collect()
    }

    /// The reads of this process so far, by all loaders that opened the folder with the same
    /// limits.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cache").field(&self.counts()).finish()
    }
}

/// The caches that a process has open.
type OpenCaches = Mutex<Vec<(Opened, Weak<TieredCache>)>>;

/// A folder that this process has open, and its limits.
#[derive(PartialEq)]
struct Opened {
    path: PathBuf,
    bytes: u64,
    memory: u64,
}

/// Reads of one process through a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Reads from memory.
    pub memory: u64,
    /// Bytes read from memory.
    pub memory_bytes: u64,
    /// Reads from the folder.
    pub disk: u64,
    /// Bytes read from the folder.
    pub disk_bytes: u64,
    /// Reads from the store.
    pub misses: u64,
    /// Bytes read from the store, without gaps between samples.
    pub missed_bytes: u64,
    /// Bytes written to the folder.
    pub written_bytes: u64,
    /// Damaged blocks that were dropped.
    pub damaged: u64,
}

impl Counts {
    /// Share of the bytes that came from the cache, 0 to 1. `None` before the first read.
    pub fn hit_rate(&self) -> Option<f64> {
        let hits = self.memory_bytes + self.disk_bytes;
        (hits + self.missed_bytes > 0).then(|| hits as f64 / (hits + self.missed_bytes) as f64)
    }
}
