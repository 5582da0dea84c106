use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};

use super::FullSlot;
use crate::batch::Feed;
use crate::error::Result;

/// A feed of host slots whose images the device may decode.
pub(crate) trait HostFeed: Feed<Batch: FullSlot> {
    /// Starts decoding the images of the samples at `places` on the host, because the device found
    /// their data damaged or could not decode it. Does not block.
    fn repair(&mut self, batch: Self::Batch, places: &[usize]) -> Repair<Self::Batch>;

    /// Finishes a batch that the workers have returned. A sample that could not be decoded is
    /// treated like any failed sample.
    ///
    /// # Errors
    /// If a sample failed and the settings make this an error of its batch.
    fn repaired(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}

/// A batch that was sent back to the workers for repair. Dropping this handle cancels the repair.
pub(crate) struct Repair<B> {
    came: Receiver<B>,
    /// The repaired batch, or `Some(None)` if the workers have ended.
    found: Option<Option<B>>,
    _wanted: Arc<()>,
}

impl<B> Repair<B> {
    /// Creates a handle for a batch that will arrive through `came`. Workers repair the batch as
    /// long as `wanted` is alive.
    pub(crate) fn new(came: Receiver<B>, wanted: Arc<()>) -> Self {
        Repair { came, found: None, _wanted: wanted }
    }

    /// Returns whether the batch has arrived or the workers have ended, so that
    /// [`take`](Repair::take) can be called.
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
