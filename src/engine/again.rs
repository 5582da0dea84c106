// Without the feature nothing is left to a device.
#![cfg_attr(not(feature = "cuda"), allow(dead_code))]

use std::sync::{Arc, Weak};

use crate::batch::Full;

/// Samples of a batch that workers make again, since a device could not decode them: what goes with
/// the parts of the batch.
#[derive(Clone)]
pub(super) struct Again {
    /// Their places in the batch, in order.
    pub(super) places: Arc<[usize]>,
    /// Who waits for the batch.
    pub(super) wanted: Weak<()>,
    /// Takes the full slot, and does not wait.
    pub(super) done: Arc<dyn Fn(Full) + Send + Sync>,
}

impl Again {
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }
}
