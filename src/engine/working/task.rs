//! The messages in the workers' queue.

// Without the feature, no device decodes images.
#![cfg_attr(not(feature = "_device"), allow(dead_code))]

use std::sync::{Arc, Weak};

use crate::batch::{Full, Part};
use crate::engine::reading::Fetched;

/// A part for a worker to process.
pub(crate) struct Task {
    pub(crate) part: Part,
    /// Samples of the part that a reader has prefetched, if any.
    pub(crate) fetched: Option<Fetched>,
    /// Set if the part is already filled, and only images that the device could not decode remain.
    pub(crate) redecode: Option<Redecode>,
}

/// A request to decode samples of a full batch on the workers, because the device could not decode
/// these samples. Each part of the batch carries a copy of the request.
#[derive(Clone)]
pub(crate) struct Redecode {
    /// Rows of the samples, in ascending order.
    pub(crate) rows: Arc<[usize]>,
    /// Reference to a value that is dropped when the batch is canceled.
    pub(crate) is_canceled: Weak<()>,
    /// Called with the full slot. Must not block.
    pub(crate) on_done: Arc<dyn Fn(Full) + Send + Sync>,
}

impl Redecode {
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_canceled.strong_count() > 0
    }
}
