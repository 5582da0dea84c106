use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};

use super::FullSlot;
use crate::batch::Feed;
use crate::error::Result;

pub(crate) trait HostFeed: Feed<Batch: FullSlot> {
    /// Requests that workers decode the images of the samples in `rows`, which are indices in the
    /// batch. Does not block.
    fn repair(&mut self, batch: Self::Batch, rows: &[usize]) -> Repair<Self::Batch>;

    /// Applies the error policy to a batch that the workers have returned. Fails if samples failed
    /// and the policy does not allow this.
    fn finish_repair(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}

/// A batch that workers are decoding again. Dropping it cancels their work.
pub(crate) struct Repair<B> {
    receiver: Receiver<B>,
    /// `None` until the batch has arrived, and `Some(None)` if the workers have ended without it.
    received: Option<Option<B>>,
    _live_token: Arc<()>,
}

impl<B> Repair<B> {
    /// Creates a repair for a batch that the workers send through `receiver`. They stop decoding
    /// its images once `live_token` is dropped.
    pub(crate) fn new(receiver: Receiver<B>, live_token: Arc<()>) -> Self {
        Repair { receiver, received: None, _live_token: live_token }
    }

    /// Returns whether the batch has arrived or the workers have ended. Required before
    /// [`take`](Repair::take).
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

    pub(crate) fn take(mut self) -> Option<B> {
        self.received.take().flatten()
    }
}
