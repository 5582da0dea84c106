use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};

use super::FullSlot;
use crate::batch::Feed;
use crate::error::Result;

/// A feed of host slots whose pictures may be left to the device.
pub(crate) trait HostFeed: Feed<Batch: FullSlot> {
    /// Has the pictures of the samples at `places` decoded on the host: the device found their data
    /// damaged, or does not decode them. Does not wait.
    fn repair(&mut self, batch: Self::Batch, places: &[usize]) -> Repair<Self::Batch>;

    /// Finishes a batch that came back. The feed treats a sample that could not be decoded like any
    /// sample that failed.
    ///
    /// # Errors
    /// If a sample that fails ends the epoch.
    fn repaired(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}

/// A batch that workers have in hand again. Dropped, it is not waited for.
pub(crate) struct Repair<B> {
    came: Receiver<B>,
    /// The batch that came back, or `None` inside if none will.
    found: Option<Option<B>>,
    _wanted: Arc<()>,
}

impl<B> Repair<B> {
    /// A batch that comes through `came`, and is made as long as `wanted` is held.
    pub(crate) fn new(came: Receiver<B>, wanted: Arc<()>) -> Self {
        Repair { came, found: None, _wanted: wanted }
    }

    /// Whether [`take`](Repair::take) gives something now.
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

    /// The batch when it is there; none in its place if the workers have ended.
    pub(crate) fn take(mut self) -> Option<B> {
        self.found.take().flatten()
    }
}
