//! A store behind a cache.

use std::ops::Range;
use std::sync::Arc;

use warpfeed::Result;
use warpfeed::source::{Keep, Lookahead, Object, Place, Reply, Store, Tier, Upload};

use super::Cache;
use super::index::Owner;

pub(super) struct Cached {
    pub(super) cache: Cache,
    pub(super) store: Arc<dyn Store>,
}

impl Store for Cached {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.store.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.store.object(url)
    }

    /// Keeps nothing: reads outside a known order are those of indexes and of whole shards.
    fn read(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        if self.cache.0.get(object, at, to).is_some() { Ok(()) } else { self.store.read(object, at, to) }
    }

    fn read_ranges(&self, object: &Object, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let missing = ranges
            .iter_mut()
            .filter_map(|(at, to)| self.cache.0.get(object, *at, to).is_none().then_some((*at, &mut **to)));
        let mut missing: Vec<_> = missing.collect();
        if missing.is_empty() { Ok(()) } else { self.store.read_ranges(object, &mut missing) }
    }

    /// Reads from the store, because the caller has already asked the cache for each sample.
    fn fetch(&self, object: &Object, range: Range<u64>, reply: Reply) {
        self.store.fetch(object, range, reply);
    }

    fn create(&self, url: &str) -> Result<Box<dyn Upload>> {
        self.store.create(url)
    }

    fn remove(&self, url: &str) -> Result<()> {
        self.store.remove(url)
    }

    fn keep(&self, set: u64, order: &Lookahead) -> Option<Arc<dyn Keep>> {
        // 0 is for reads outside a known order.
        let set = set.max(1);
        let number = self.cache.0.follow(set, order);
        Some(Arc::new(Following { cache: self.cache.clone(), set, number }))
    }
}

/// A loader that reads through the cache in a known order.
struct Following {
    cache: Cache,
    set: u64,
    number: u64,
}

impl Keep for Following {
    fn start(&self, place: Place) {
        self.cache.0.start(self.set, self.number, place);
    }

    fn has(&self, object: &Object, at: u64, len: u64) -> bool {
        self.cache.0.has(object, at, len)
    }

    fn get(&self, object: &Object, at: u64, to: &mut [u8]) -> Option<Tier> {
        self.cache.0.get(object, at, to)
    }

    fn offer(&self, object: &Object, at: u64, bytes: &[u8], sample: u64, next: Place) {
        self.cache.0.missed(bytes.len());
        self.cache.0.offer(object, at, bytes, Owner { set: self.set, sample }, Some(next));
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.cache.0.unfollow(self.set, self.number);
    }
}
