//! [`Cache`]: a local cache of bytes from stores.
//!
//! A block is one range of one version of an object, and usually contains one sample. The loader
//! reads samples in shuffled order. With blocks of a fixed size, the loader would therefore fetch
//! and store many bytes that it does not use.

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
/// **Eviction.** The cache knows the order in which the loader will read samples. It evicts the
/// sample with the most distant next read, and does not admit a sample that it would evict first.
/// On one machine, the hit rate of reshuffled epochs is about the fraction of the data that fits in
/// the cache. On several machines, the hit rate is higher: each machine reads only some of the
/// samples in an epoch, and its cache contains the samples that it will read soonest. For orders
/// that cannot be inverted, such as sampling with replacement, the cache evicts the least recently
/// used sample.
///
/// **Sharing.** All processes of a user on a machine may share a folder, for any datasets and any
/// versions of the data. Each process fetches the samples that it does not find in the cache. A
/// process may be killed at any time, and a restarted job finds the existing blocks.
///
/// **Safety.** Every block in the folder has a checksum, which every read verifies. The bytes of a
/// damaged block are fetched again from the store. Each block states the version (ETag or
/// generation) of its object, so bytes of two versions are never mixed. The bytes of objects
/// without a version or with a weak version are not cached. The cache rejects a folder that
/// contains other files at its top level, and deletes files only in subfolders that it has created.
///
/// **Listings.** The folder also caches the listings of stores, so that a folder of a million
/// images is usually listed only once, by one of the ranks. When a dataset is opened, the cache
/// compares up to eight of the listed objects with the server. If any of these has changed, the
/// cache lists all objects again. If only other objects have changed, the cached listing is used.
/// Reading a changed object then fails, and the objects are listed again when the dataset is next
/// opened. New objects are found only when the objects are listed again, for example after
/// [`refresh`]. Listings do not count toward `bytes`.
///
/// **Whole files.** For formats that need local files, such as LMDB, the folder stores whole files.
/// They count toward `bytes` and take precedence over blocks. They are kept at least until the
/// processes that opened them have ended.
///
/// **Errors.** After an error such as a full disk or a read-only folder, the cache logs a warning
/// and writes no more blocks to the folder. The loader then reads all samples that are not cached
/// from the store. Formats that need local files cannot be opened through such a cache.
#[derive(Clone)]
pub struct Cache(Arc<TieredCache>);

impl Cache {
    /// Opens the cache at `path`, and limits its blocks and files to `bytes` bytes. Creates the
    /// folder if it does not exist.
    ///
    /// # Errors
    /// Returns an error in each of these cases:
    ///
    /// - The path is not a folder.
    /// - The folder contains a symbolic link or files that do not belong to a cache.
    /// - The folder is a cache of a different version.
    /// - On Linux, the folder is writable by all users. Folders that are writable by their group
    ///   are accepted.
    /// - On Linux, the folder belongs to a different user, and the process does not run as root.
    ///
    /// If the folder cannot be created, read or written, the cache logs a warning instead.
    pub fn open(path: impl AsRef<Path>, bytes: u64) -> Result<Self> {
        Self::with_memory(path, bytes, 0)
    }

    /// Opens the cache at `path`, and also keeps up to `memory` bytes of blocks in the memory of
    /// this process. The additional memory is useful mainly if the folder is slow, because the
    /// system's page cache keeps recently used files in memory anyway.
    ///
    /// # Errors
    /// See [`open`](Cache::open).
    pub fn with_memory(path: impl AsRef<Path>, bytes: u64, memory: u64) -> Result<Self> {
        // All loaders of a process share a cache with the same folder and limits, so that the cache
        // knows all of their orders.
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
    /// `$XDG_CACHE_HOME/warpfeed/blocks`, or else `~/.cache/warpfeed/blocks`. Variables that are
    /// not absolute paths are ignored.
    ///
    /// # Errors
    /// If none of `WARPFEED_CACHE`, `XDG_CACHE_HOME` and `HOME` is an absolute path.
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

    /// Returns the counters of this process's reads through this cache. In a process, caches that
    /// are opened with the same folder and limits share their counters until all of them are
    /// dropped.
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
    /// Number of bytes of blocks written to the folder, without their headers.
    pub written_bytes: u64,
    /// Number of reads that found a damaged block. Blocks that could not be read because of an I/O
    /// error do not count.
    pub damaged: u64,
}

impl CacheStats {
    /// Returns the fraction of the bytes, from 0 to 1, that came from the cache, or `None` if no
    /// bytes have been read.
    pub fn hit_rate(&self) -> Option<f64> {
        let hits = self.memory_bytes + self.disk_bytes;
        (hits + self.missed_bytes > 0).then(|| hits as f64 / (hits + self.missed_bytes) as f64)
    }
}
