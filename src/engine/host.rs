use super::{Engine, Feed};
use crate::batch::HostBatch;
use crate::error::Result;
use crate::trace::{self, WAIT};

/// Delivers batches in host memory: a full slot is the batch.
pub(crate) struct HostFeed(pub(crate) Engine);

impl Feed for HostFeed {
    type Batch = HostBatch;

    fn start(&mut self, epoch: u64, first: u64) {
        self.0.run().begin();
        self.0.start(epoch, first);
    }

    fn next(&mut self) -> Option<Result<HostBatch>> {
        let _range = trace::range(WAIT);
        let asked = self.0.run().counters.asked(self.0.ready());
        let full = self.0.next()?;
        Some(full.map(|full| {
            let asked = self.0.home().waited_since(asked);
            self.0.run().delivered(full.header().epoch, full.header().number, full.len(), asked);
            HostBatch::new(full, self.0.home())
        }))
    }

    fn stop(&mut self) {
        self.0.run().end();
        self.0.stop();
    }
}
