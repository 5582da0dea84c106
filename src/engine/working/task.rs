// Without the feature nothing is left to a device.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

use std::sync::{Arc, Weak};

use crate::batch::{Full, Part};
use crate::engine::reading::Fetched;

/// A part on its way to a worker.
pub(crate) struct Task {
    pub(crate) part: Part,
    /// What a reader has read of it; none if no reader had it.
    pub(crate) fetched: Option<Fetched>,
    /// What is made again of it, if it was full before.
    pub(crate) again: Option<Again>,
}

/// Samples of a batch that workers make again, since a device could not decode them: what goes with
/// the parts of the batch.
#[derive(Clone)]
pub(crate) struct Again {
    /// Their places in the batch, in order.
    pub(crate) places: Arc<[usize]>,
    /// Who waits for the batch.
    pub(crate) wanted: Weak<()>,
    /// Takes the full slot, and does not wait.
    pub(crate) done: Arc<dyn Fn(Full) + Send + Sync>,
}

impl Again {
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }
}
