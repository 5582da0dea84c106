use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Delivered, Feed};
use crate::engine::state::Run;
use crate::error::Result;
use crate::trace::{self, WAIT};

/// A feed with a clock at its end: counts what the consumer asks for and gets, and how long it
/// waits.
pub(crate) struct Metered<F> {
    pub(crate) feed: F,
    pub(crate) run: Arc<Run>,
    /// How long the batch that comes next was waited for by calls that gave up, if there were any.
    pub(crate) given_up: Option<Duration>,
}

impl<F: Feed<Batch: Delivered>> Feed for Metered<F> {
    type Batch = F::Batch;

    fn start(&mut self, epoch: u64, first: u64) {
        self.given_up = None;
        self.run.begin();
        self.feed.start(epoch, first);
    }

    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<F::Batch>> {
        let _range = trace::range(WAIT);
        let asked = match self.given_up {
            None => self.run.counters.asked(self.feed.ready()),
            Some(_) => Instant::now(),
        };
        let Some(batch) = self.feed.next(idle) else {
            *self.given_up.get_or_insert_default() += asked.elapsed();
            return None;
        };
        let before = self.given_up.take().unwrap_or_default();
        if let Ok(batch) = &batch {
            let since = self.feed.held_up_since(asked.checked_sub(before).unwrap_or(asked));
            self.run.delivered(batch.info(), since);
        }
        Some(batch)
    }

    fn stop(&mut self) {
        self.run.end();
        self.feed.stop();
    }

    fn ready(&self) -> usize {
        self.feed.ready()
    }

    fn held_up_since(&self, asked: Instant) -> Instant {
        self.feed.held_up_since(asked)
    }
}
