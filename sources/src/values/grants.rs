use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that each loader of a dataset grants. Loaders that share a dataset share its cache, which
/// may take the sum.
#[derive(Default)]
pub(crate) struct Grants(Mutex<State>);

#[derive(Default)]
struct State {
    /// By the number of the grant.
    bytes: BTreeMap<u64, usize>,
    next: u64,
}

impl Grants {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sum of the grants. `None` if no loader reads the dataset.
    pub(crate) fn sum(&self) -> Option<usize> {
        let state = self.state();
        (!state.bytes.is_empty()).then(|| state.bytes.values().fold(0_usize, |all, &bytes| all.saturating_add(bytes)))
    }

    /// Smallest grant. `None` if no loader reads the dataset.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(crate) fn least(&self) -> Option<usize> {
        self.state().bytes.values().min().copied()
    }
}

/// A cache in memory that loaders grant.
pub(crate) trait Keeps: Send + Sync {
    fn grants(&self) -> &Grants;

    /// Drops what exceeds the grants.
    fn shrink(&self);
}

/// The bytes that a loader grants to a cache, until the grant is dropped.
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
