use std::ops::Range;
use std::time::{Duration, Instant};

use super::BatchInfo;
use crate::error::Result;

/// A source of batches, in order: the interface between the engine, a device's ring, and `Batches`.
/// A ring is a feed that draws from another feed.
pub(crate) trait Feed: Send {
    type Batch;

    /// Starts the batches with the numbers `batches` of `epoch`, cancelling batches in flight.
    fn start(&mut self, epoch: u64, batches: Range<u64>);

    /// Returns the next batch, or `None` after the last one, after an error that ends the epoch,
    /// and when `idle` gives up. `idle` is called before each wait, and returns the maximum time to
    /// wait, or `None` to give up.
    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Self::Batch>>;

    /// Ends the epoch early.
    fn stop(&mut self);

    /// Tells the feed whether the consumer is full and cannot take more batches.
    fn supplied(&self, _supplied: bool) {}

    /// Number of batches that are ready.
    fn ready(&self) -> usize;

    /// Returns when the feed began to delay a consumer that asked for a batch at `asked` and has
    /// just received it.
    fn held_up_since(&self, asked: Instant) -> Instant {
        asked
    }
}

/// A batch on its way to the consumer.
pub(crate) trait Delivered {
    fn info(&self) -> &BatchInfo;

    /// Orders a decoder's answer for the consumer, who is about to take it. Called on the thread
    /// that uses the answer, and again if it failed.
    fn taken(&self) -> Result<()> {
        Ok(())
    }
}
