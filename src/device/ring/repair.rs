//! Sends images that the device could not decode back to the workers.

use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};

use super::FullSlot;
use crate::batch::Feed;
use crate::error::Result;

/// A feed of full host slots whose images the device may turn out unable to decode.
pub(crate) trait HostFeed: Feed<Batch: FullSlot> {
    /// Asks the workers to decode the images in `rows`, which the device could not decode. Does not
    /// block.
    fn repair(&mut self, batch: Self::Batch, rows: &[usize]) -> Repair<Self::Batch>;

    /// Applies the error policy to a batch that the workers have returned.
    ///
    /// # Errors
    /// If samples failed and the policy does not allow this.
    fn repaired(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}

/// A handle to a batch that is back with the workers. Dropping it cancels their decoding.
pub(crate) struct Repair<B> {
    receiver: Receiver<B>,
    /// `None` until the batch has arrived, and `Some(None)` if the workers have ended.
    received: Option<Option<B>>,
    _wanted: Arc<()>,
}

impl<B> Repair<B> {
    /// Creates a handle for a batch that will arrive through `receiver`. Workers decode its images
    /// as long as `alive` is alive.
    pub(crate) fn new(receiver: Receiver<B>, alive: Arc<()>) -> Self {
        Repair { receiver, received: None, _wanted: alive }
    }

    /// Returns whether [`take`](Repair::take) may be called, because the batch has arrived or the
    /// workers have ended.
    pub(crate) fn is_done(&mut self) -> bool {
        if self.received.is_none() {
            self.received = match self.receiver.try_recv() {
                Ok(batch) => Some(Some(batch)),
                Err(TryRecvError::Disconnected) => Some(None),
                Err(TryRecvError::Empty) => None,
            };
        }
        self.received.is_some()
    }

    /// Returns the batch, or `None` if the workers have ended.
    pub(crate) fn take(mut self) -> Option<B> {
        self.received.take().flatten()
    }
}
