//! [`Cache`]: a local cache of bytes from stores.
//!
//! A block is one range of one version of an object, and usually contains one sample. The loader
//! reads samples in shuffled order, so with blocks of a fixed size, it would fetch and store many
//! bytes that it does not use.

mod block;
mod eviction;
mod files;
mod folder;
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

/// A local cache of bytes from stores, in memory and in a folder of limited size.
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
/// **Eviction.** The cache knows the order in which the loader will read samples. It keeps the
/// samples that will be needed soonest, and does not admit a sample that it would evict first. On
/// one machine, the hit rate of reshuffled epochs is the fraction of the data that fits in the
/// cache. On several machines, the hit rate is higher, because the next read of a sample may happen
/// on a different machine. For orders that cannot be inverted, such as sampling with replacement,
/// the cache evicts the least recently used sample.
///
/// **Sharing.** All processes of a user on a machine may share a folder, for any datasets and any
/// versions of the data. Each process fetches the samples that it does not find in the cache. A
/// process may be killed at any time, and a restarted job finds the existing blocks.
///
/// **Safety.** Every block in the folder has a checksum, which every read verifies. A damaged block
/// is dropped and fetched again. The version (ETag or generation) of an object is part of the name
/// of its blocks, so bytes of two versions are never mixed. Objects without a version or with a
/// weak version are not cached. The cache deletes only files that it has written, and rejects a
/// folder that contains other files.
///
/// **Listings.** The folder also caches the listings of stores, so that a folder of a million
/// images is listed only once, by one of the ranks. When a dataset is opened, the cache compares up
/// to eight of the objects with the server, and lists the objects again if any of these has
/// changed. If another object has changed, reading it fails, and the objects are listed again
/// when the dataset is next opened. New objects are found only when the objects are listed again,
/// for example after [`refresh`]. Listings do not count toward `bytes`.
///
/// **Whole files.** For formats that need local files, such as LMDB, the folder stores whole files.
/// They count toward `bytes` and take precedence over blocks. They are kept at least until the
/// processes that opened them have ended.
///
/// **Errors.** After a full disk or a read-only folder, the cache logs one warning and stores
/// nothing new in the folder, and the loader reads everything that is not cached from the store.
#[derive(Clone)]
pub struct Cache(Arc<TieredCache>);

impl Cache {
    /// Opens the cache at `path`, and limits its blocks and files to `bytes` bytes. Creates the
    /// folder if it does not exist.
    ///
    /// # Errors
    /// If the path is not a folder, or if the folder contains a symbolic link or files that do not
    /// belong to a cache, is a cache of a different version, or, on Linux, is writable by all users
    /// or belongs to a different user. Root may use the folders of all users, and folders that are
    /// writable by their group are accepted.
    pub fn open(path: impl AsRef<Path>, bytes: u64) -> Result<Self> {
        Self::with_memory(path, bytes, 0)
    }

    /// Opens the cache at `path`, and also keeps up to `memory` bytes of blocks in the memory of
    /// this process. This helps only if the folder is slow, because the system's page cache keeps
    /// recently used files in memory anyway.
    ///
    /// # Errors
    /// See [`open`](Cache::open).
    pub fn with_memory(path: impl AsRef<Path>, bytes: u64, memory: u64) -> Result<Self> {
        // All loaders of a process share a cache, so that the cache knows all of their orders.
        static OPEN: PerProcess<OpenCaches> = PerProcess::new();
        let mut open = OPEN.get(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, cache)| cache.strong_count() > 0);
        let key_of = |path| CacheKey { path, bytes, memory };
        let find = |path: PathBuf| {
            open.iter().find(|(key, _)| *key == key_of(path.clone())).and_then(|(_, cache)| cache.upgrade())
        };
        if let Some(cache) = path.as_ref().canonicalize().ok().and_then(find) {
            return Ok(Cache(cache));
        }
        let cache = Arc::new(TieredCache::open(path.as_ref(), bytes, memory)?);
        if let Ok(path) = path.as_ref().canonicalize() {
            open.push((key_of(path), Arc::downgrade(&cache)));
        }
        Ok(Cache(cache))
    }

    /// Creates a cache of `bytes` bytes in the memory of this process, without a folder.
    pub fn in_memory(bytes: u64) -> Self {
        Cache(Arc::new(TieredCache::in_memory(bytes)))
    }

    /// Returns the default folder of a cache: `$WARPFEED_CACHE/blocks`, or else
    /// `$XDG_CACHE_HOME/warpfeed/blocks`, or else `~/.cache/warpfeed/blocks`.
    ///
    /// # Errors
    /// If neither of the two variables nor `HOME` is an absolute path.
    pub fn default_path() -> Result<PathBuf> {
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let root = folder("WARPFEED_CACHE").or_else(|| Some(user()?.join("warpfeed")));
        let unknown = || {
            Error::config(
                "none of WARPFEED_CACHE, XDG_CACHE_HOME and HOME is an absolute path: specify the cache folder",
            )
        };
        Ok(root.ok_or_else(unknown)?.join("blocks"))
    }

    /// Wraps `store` with this cache.
    pub fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::CachedStore::new(self.clone(), store))
    }

    /// Wraps the stores of several schemes, such as the result of [`all`](crate::all), with this
    /// cache.
    pub fn stores<S>(&self, stores: impl IntoIterator<Item = (S, Arc<dyn Store>)>) -> Vec<(S, Arc<dyn Store>)> {
        stores.into_iter().map(|(scheme, store)| (scheme, self.store(store))).collect()
    }

    /// Returns the counters of all reads in this process through caches with this folder and these
    /// limits.
    pub fn stats(&self) -> CacheStats {
        self.0.stats()
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cache").field(&self.stats()).finish()
    }
}

type OpenCaches = Mutex<Vec<(CacheKey, Weak<TieredCache>)>>;

#[derive(PartialEq)]
struct CacheKey {
    path: PathBuf,
    bytes: u64,
    memory: u64,
}

/// Counters of one process's reads through a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Number of reads served from memory.
    pub memory_hits: u64,
    /// Number of bytes read from memory.
    pub memory_bytes: u64,
    /// Number of reads served from the folder.
    pub disk_hits: u64,
    /// Number of bytes read from the folder.
    pub disk_bytes: u64,
    /// Number of reads from the store that were offered to the cache.
    pub misses: u64,
    /// Number of bytes of these reads, without the gaps between samples.
    pub missed_bytes: u64,
    /// Number of bytes written to the folder.
    pub written_bytes: u64,
    /// Number of reads that found a damaged or unreadable block.
    pub damaged: u64,
}

impl CacheStats {
    /// Returns the fraction of the bytes, from 0 to 1, that came from the cache, or `None` before
    /// the first read.
    pub fn hit_rate(&self) -> Option<f64> {
        let hits = self.memory_bytes + self.disk_bytes;
        (hits + self.missed_bytes > 0).then(|| hits as f64 / (hits + self.missed_bytes) as f64)
    }
}
