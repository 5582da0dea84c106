// Without the feature, no image is left to a device.
#![cfg_attr(not(feature = "_device"), allow(dead_code))]

use std::sync::{Arc, Weak};

use crate::batch::{Full, Part};
use crate::engine::reading::Fetched;

/// A part on its way to a worker.
pub(crate) struct Task {
    pub(crate) part: Part,
    /// Samples that a reader read in advance, if any.
    pub(crate) fetched: Option<Fetched>,
    /// Samples to decode again, if the batch was full before.
    pub(crate) again: Option<Again>,
}

/// Samples of a batch that workers decode because a device could not. Each part of the batch has a
/// copy.
#[derive(Clone)]
pub(crate) struct Again {
    /// Places of the samples in the batch, in order.
    pub(crate) places: Arc<[usize]>,
    /// Alive while the batch is wanted.
    pub(crate) wanted: Weak<()>,
    /// Takes the full slot, without waiting.
    pub(crate) done: Arc<dyn Fn(Full) + Send + Sync>,
}

impl Again {
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.strong_count() > 0
    }
}
