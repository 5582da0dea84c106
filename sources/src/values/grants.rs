use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of cache bytes that each loader grants to a dataset. Loaders share the cache of a
/// dataset, which may use the sum of the grants.
#[derive(Default)]
pub(crate) struct Grants(Mutex<State>);

#[derive(Default)]
struct State {
    /// Granted bytes, by grant number.
    bytes: BTreeMap<u64, usize>,
    next: u64,
}

impl Grants {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sum of the grants, or `None` if no loader reads the dataset.
    pub(crate) fn sum(&self) -> Option<usize> {
        let state = self.state();
        (!state.bytes.is_empty()).then(|| state.bytes.values().fold(0_usize, |all, &bytes| all.saturating_add(bytes)))
    }

    /// Returns the smallest grant, or `None` if no loader reads the dataset.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(crate) fn least(&self) -> Option<usize> {
        self.state().bytes.values().min().copied()
    }
}

/// An in-memory cache whose size is limited by the grants of loaders.
pub(crate) trait Keeps: Send + Sync {
    fn grants(&self) -> &Grants;

    /// Evicts entries until the cache does not exceed the grants.
    fn shrink(&self);
}

/// A loader's grant of bytes to a cache. Dropping the grant revokes it.
pub(crate) struct Grant {
    to: Arc<dyn Keeps>,
    number: u64,
}

impl Grant {
    pub(crate) fn new(to: Arc<dyn Keeps>, bytes: usize) -> Self {
        let mut state = to.grants().state();
        let number = state.next;
        state.next += 1;
        state.bytes.insert(number, bytes);
        drop(state);
        to.shrink();
        Grant { to, number }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.to.grants().state().bytes.remove(&self.number);
        self.to.shrink();
    }
}
