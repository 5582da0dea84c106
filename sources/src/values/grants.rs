//! [`Grants`]: records the memory that loaders grant to the cache of a dataset.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory that each loader grants to the dataset's cache, as part of the loader's memory
/// budget. The loaders share the cache, so it may use the sum.
#[derive(Default)]
pub(crate) struct Grants(Mutex<State>);

#[derive(Default)]
struct State {
    /// Granted bytes, keyed by grant ID.
    bytes: BTreeMap<u64, usize>,
    next_id: u64,
}

impl Grants {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sum of the grants, or `None` if no loader reads the dataset.
    pub(crate) fn sum(&self) -> Option<usize> {
        let state = self.state();
        (!state.bytes.is_empty()).then(|| state.bytes.values().fold(0_usize, |sum, &bytes| sum.saturating_add(bytes)))
    }

    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(crate) fn smallest(&self) -> Option<usize> {
        self.state().bytes.values().min().copied()
    }
}

/// An in-memory cache that may use as much memory as loaders have granted to it.
pub(crate) trait GrantedCache: Send + Sync {
    fn grants(&self) -> &Grants;

    /// Evicts entries until the cache does not exceed the sum of the grants.
    fn shrink(&self);
}

/// A loader's grant of memory to a cache. The grant ends when this value is dropped.
pub(crate) struct Grant {
    cache: Arc<dyn GrantedCache>,
    id: u64,
}

impl Grant {
    pub(crate) fn new(cache: Arc<dyn GrantedCache>, bytes: usize) -> Self {
        let mut state = cache.grants().state();
        let id = state.next_id;
        state.next_id += 1;
        state.bytes.insert(id, bytes);
        drop(state);
        cache.shrink();
        Grant { cache, id }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.cache.grants().state().bytes.remove(&self.id);
        self.cache.shrink();
    }
}
