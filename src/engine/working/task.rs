// Without the feature, images are never left to a device.
#![cfg_attr(not(feature = "_device"), allow(dead_code))]

use std::sync::{Arc, Weak};

use crate::batch::{Full, Part};
use crate::engine::reading::Fetched;

/// A part in transit to a worker.
pub(crate) struct Task {
    pub(crate) part: Part,
    /// Samples that a reader read in advance, if any.
    pub(crate) fetched: Option<Fetched>,
    /// Samples that the device could not decode, to be decoded by workers.
    pub(crate) again: Option<Again>,
}

/// Samples of a batch that workers decode because a device could not decode them. Each part of the
/// batch contains a copy of this value.
#[derive(Clone)]
pub(crate) struct Again {
    /// Indices of the samples within the batch, in ascending order.
    pub(crate) places: Arc<[usize]>,
    /// Can be upgraded until the batch is cancelled.
    pub(crate) wanted: Weak<()>,
    /// Called with the full slot. Must not block.
    pub(crate) done: Arc<dyn Fn(Full) + Send + Sync>,
}

impl Again {
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }
}
