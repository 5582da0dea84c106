//! Wraps a store with a cache.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use warpfeed_sources::{BatchIndex, Lookahead, Object, ObjectCache, ReadCompletion, ReadParts, Store, Tier, Upload};
use warpfeed_sources::{Error, ErrorKind, Result};

use super::Cache;
use super::eviction::Owner;

pub(super) struct CachedStore {
    cache: Cache,
    store: Arc<dyn Store>,
    /// Prefixes for which a cached listing was used.
    cached_prefixes: Arc<Mutex<Vec<String>>>,
}

impl CachedStore {
    pub(super) fn new(cache: Cache, store: Arc<dyn Store>) -> Self {
        CachedStore { cache, store, cached_prefixes: Arc::default() }
    }

    /// Returns `result`. If a changed object may have caused its error, drops the cached listing, so
    /// that the next opening lists the objects again.
    fn check_result<T>(cache: &Cache, cached_prefixes: &Mutex<Vec<String>>, url: &str, result: Result<T>) -> Result<T> {
        let is_lasting = |e: &Error| e.kind() == ErrorKind::Source && !e.is_transient();
        if result.as_ref().is_err_and(is_lasting) {
            let mut cached_prefixes = cached_prefixes.lock().unwrap_or_else(PoisonError::into_inner);
            for prefix in cached_prefixes.extract_if(.., |prefix| url.starts_with(&**prefix)) {
                cache.0.remove_listing(&prefix);
            }
        }
        result
    }
}

impl Store for CachedStore {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let (objects, is_cached) = self.cache.0.list(&*self.store, prefix)?;
        let mut cached_prefixes = self.cached_prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        cached_prefixes.retain(|cached_prefix| cached_prefix != prefix);
        if is_cached {
            cached_prefixes.push(prefix.to_owned());
        }
        Ok(objects)
    }

    fn list_uncached(&self, prefix: &str) -> Result<Vec<Object>> {
        self.store.list_uncached(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.store.object(url)
    }

    /// Reads bytes from the cache or, if they are not cached, from the store. This method does not
    /// add the bytes to the cache, because they usually belong to an index or to a whole shard. The
    /// loader adds prefetched samples with [`ObjectCache::offer`].
    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.cache.0.get(object, offset, out) {
            Some(_) => Ok(()),
            None => Self::check_result(
                &self.cache,
                &self.cached_prefixes,
                &object.url,
                self.store.read(object, offset, out),
            ),
        }
    }

    fn read_ranges(&self, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let missing = ranges.iter_mut().filter_map(|(offset, out)| {
            self.cache.0.get(object, *offset, out).is_none().then_some((*offset, &mut **out))
        });
        let mut missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        Self::check_result(
            &self.cache,
            &self.cached_prefixes,
            &object.url,
            self.store.read_ranges(object, &mut missing),
        )
    }

    /// Requests a range without the cache. The caller has already looked in the cache.
    fn fetch(&self, object: &Object, range: Range<u64>, completion: ReadCompletion) {
        let (cache, cached_prefixes, url) = (self.cache.clone(), self.cached_prefixes.clone(), object.url.clone());
        self.store.fetch(
            object,
            range,
            completion.map(move |result| Self::check_result(&cache, &cached_prefixes, &url, result)),
        );
    }

    fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
        self.cache.0.remove_listings_above(url);
        self.store.create(url)
    }

    fn remove(&self, url: &str) -> Result<()> {
        self.cache.0.remove_listings_above(url);
        self.store.remove(url)
    }

    fn object_cache(&self, dataset: u64, order: &Lookahead) -> Option<Arc<dyn ObjectCache>> {
        // The value 0 is reserved for blocks without a known sample order.
        let dataset = dataset.max(1);
        let id = self.cache.0.add_loader(dataset, order);
        Some(Arc::new(LoaderCache { cache: self.cache.clone(), dataset, id }))
    }

    fn download(&self, base: &str, objects: &[Object], read: &ReadParts<'_>) -> Result<PathBuf> {
        self.cache.0.download(base, objects, read)
    }
}

struct LoaderCache {
    cache: Cache,
    dataset: u64,
    id: u64,
}

impl ObjectCache for LoaderCache {
    fn advance_to(&self, index: BatchIndex) {
        self.cache.0.set_position(self.dataset, self.id, index);
    }

    fn contains(&self, object: &Object, offset: u64, len: u64) -> bool {
        self.cache.0.contains(object, offset, len)
    }

    fn get(&self, object: &Object, offset: u64, out: &mut [u8]) -> Option<Tier> {
        self.cache.0.get(object, offset, out)
    }

    fn offer(&self, object: &Object, offset: u64, bytes: &[u8], sample: u64, next: BatchIndex) {
        self.cache.0.count_miss(bytes.len());
        self.cache.0.offer(object, offset, bytes, Owner { dataset: self.dataset, sample }, Some(next));
    }
}

impl Drop for LoaderCache {
    fn drop(&mut self) {
        self.cache.0.remove_loader(self.dataset, self.id);
    }
}
