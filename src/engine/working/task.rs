//! The messages in the workers' queue.

// Without the feature, no device decodes images.
#![cfg_attr(not(feature = "_device"), allow(dead_code))]

use std::sync::{Arc, Weak};

use crate::batch::{FilledSlot, SlotPart};
use crate::engine::reading::PrefetchedSamples;

pub(crate) struct Task {
    pub(crate) part: SlotPart,
    pub(crate) prefetched_samples: Option<PrefetchedSamples>,
    /// The request to decode images that the device could not decode. If it is set, the part is
    /// full except for these images.
    pub(crate) redecode: Option<RedecodeRequest>,
}

/// Samples of a full batch that the device could not decode. Each task of the batch has a copy.
#[derive(Clone)]
pub(crate) struct RedecodeRequest {
    /// Rows of these samples, in ascending order.
    pub(crate) rows: Arc<[usize]>,
    /// A weak reference to a value that is dropped when the batch is no longer wanted.
    pub(crate) live_token: Weak<()>,
    /// The callback that receives the full slot. It must not block.
    pub(crate) on_done: Arc<dyn Fn(FilledSlot) + Send + Sync>,
}

impl RedecodeRequest {
    pub(crate) fn is_wanted(&self) -> bool {
        self.live_token.strong_count() > 0
    }
}
