use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};

use super::FullSlot;
use crate::batch::Feed;
use crate::error::Result;

/// A feed of host slots whose images the device may decode.
pub(crate) trait HostFeed: Feed<Batch: FullSlot> {
    /// Starts decoding the images of the samples at `places` on the host, because the device
    /// found their data damaged or cannot decode them. Does not wait.
    fn repair(&mut self, batch: Self::Batch, places: &[usize]) -> Repair<Self::Batch>;

    /// Finishes a batch that came back. The feed treats a sample that could not be decoded like any
    /// sample that failed.
    ///
    /// # Errors
    /// If a sample that fails is the error of its batch.
    fn repaired(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}

/// A batch that went back to the workers. If it is dropped, nothing waits for it.
pub(crate) struct Repair<B> {
    came: Receiver<B>,
    /// The batch that came back, or `Some(None)` if none will.
    found: Option<Option<B>>,
    _wanted: Arc<()>,
}

impl<B> Repair<B> {
    /// Expects a batch through `came`. Workers repair it as long as `wanted` is held.
    pub(crate) fn new(came: Receiver<B>, wanted: Arc<()>) -> Self {
        Repair { came, found: None, _wanted: wanted }
    }

    /// Whether [`take`](Repair::take) returns without waiting.
    pub(crate) fn is_done(&mut self) -> bool {
        if self.found.is_none() {
            self.found = match self.came.try_recv() {
                Ok(batch) => Some(Some(batch)),
                Err(TryRecvError::Disconnected) => Some(None),
                Err(TryRecvError::Empty) => None,
            };
        }
        self.found.is_some()
    }

    /// Returns the batch, or `None` if the workers have ended.
    pub(crate) fn take(mut self) -> Option<B> {
        self.found.take().flatten()
    }
}
