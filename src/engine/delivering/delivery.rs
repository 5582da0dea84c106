use std::time::{Duration, Instant};

use super::engine::Engine;
use crate::batch::{Feed, Full, Home, HostBatch};
use crate::error::Result;

/// The engine as a feed: says what becomes of a full slot.
pub(crate) struct Delivery<B> {
    pub(crate) engine: Engine,
    pub(crate) into: Into<B>,
}

/// Makes a batch of a full slot.
type Into<B> = Box<dyn Fn(Full, &Home) -> B + Send>;

impl Delivery<HostBatch> {
    /// A full slot is the batch.
    pub(crate) fn to_host(engine: Engine) -> Self {
        Delivery { engine, into: Box::new(HostBatch::new) }
    }
}

impl<B> Feed for Delivery<B> {
    type Batch = B;

    fn start(&mut self, epoch: u64, first: u64) {
        self.engine.start(epoch, first);
    }

    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        let full = self.engine.next(idle)?;
        Some(full.map(|full| (self.into)(full, self.engine.home())))
    }

    fn stop(&mut self) {
        self.engine.stop();
    }

    fn supplied(&self, supplied: bool) {
        self.engine.run().balance.supplied(supplied);
    }

    fn ready(&self) -> usize {
        self.engine.ready()
    }

    fn held_up_since(&self, asked: Instant) -> Instant {
        self.engine.home().waited_since(asked)
    }
}
