//! [`LruCache`]: a cache with LRU eviction. It consists of two ordered maps, one by key and one by
//! time of last use, so a lookup, an insertion or an eviction takes `O(log n)` time.

use std::collections::BTreeMap;

/// Never evicts by itself: the caller limits its size with [`shrink`](LruCache::shrink).
pub(crate) struct LruCache<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    by_use: BTreeMap<u64, K>,
    clock: u64,
    bytes: usize,
}

struct Entry<V> {
    value: V,
    /// Value of `clock` at the last use of the entry.
    last_use: u64,
    bytes: usize,
}

impl<K, V> Default for LruCache<K, V> {
    fn default() -> Self {
        LruCache { entries: BTreeMap::new(), by_use: BTreeMap::new(), clock: 0, bytes: 0 }
    }
}

impl<K: Ord + Copy, V> LruCache<K, V> {
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<K> {
        assert_eq!(self.entries.len(), self.by_use.len());
        self.entries.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the largest key in `min..=max` and its value. Does not count as a use.
    #[cfg(feature = "parquet")]
    pub(crate) fn last_in_range(&self, min: K, max: K) -> Option<(K, &V)> {
        self.entries.range(min..=max).next_back().map(|(key, entry)| (*key, &entry.value))
    }

    pub(crate) fn get(&mut self, key: K) -> Option<&V> {
        let entry = self.entries.get_mut(&key)?;
        self.by_use.remove(&entry.last_use);
        self.clock += 1;
        entry.last_use = self.clock;
        self.by_use.insert(self.clock, key);
        Some(&entry.value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.clock += 1;
        self.by_use.insert(self.clock, key);
        self.bytes += bytes;
        if let Some(old) = self.entries.insert(key, Entry { value, last_use: self.clock, bytes }) {
            self.by_use.remove(&old.last_use);
            self.bytes -= old.bytes;
        }
    }

    /// Evicts the least recently used values until the total size is at most `max_bytes` bytes, or
    /// until only `min_values` values remain.
    pub(crate) fn shrink(&mut self, max_bytes: usize, min_values: usize) {
        while self.bytes > max_bytes
            && self.len() > min_values
            && let Some((_, key)) = self.by_use.pop_first()
        {
            self.bytes -= self.entries.remove(&key).map_or(0, |entry| entry.bytes);
        }
    }
}
