use std::time::{Duration, Instant};

use crate::error::Result;

/// Where batches come from, in order: the seam between the engine, the ring of a device, and
/// `Batches`. A ring is a feed that takes from another one.
pub(crate) trait Feed: Send {
    type Batch;

    /// Begins `epoch` at batch `first`, dropping what is under way.
    fn start(&mut self, epoch: u64, first: u64);

    /// The next batch; `None` after the last, after an error that ends the epoch, and when `idle`
    /// says so. `idle` is called before each wait. It gives the longest time to wait, or gives up
    /// with `None`.
    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Self::Batch>>;

    /// Ends the epoch early.
    fn stop(&mut self);

    /// Whoever takes the batches has all that it has room for, or not any more.
    fn supplied(&self, _supplied: bool) {}

    /// Batches that are ready now.
    fn ready(&self) -> usize;

    /// Since when the feed held up a consumer that asked for a batch at `asked` and has it now.
    fn held_up_since(&self, asked: Instant) -> Instant {
        asked
    }
}

/// What every batch says of itself.
pub(crate) trait Delivered {
    fn epoch(&self) -> u64;

    /// Its number in the epoch.
    fn index(&self) -> u64;

    /// How many samples it has.
    fn samples(&self) -> usize;

    /// The consumer has taken the answer of a decoder, on the thread that uses it.
    fn taken(&self) -> Result<()> {
        Ok(())
    }
}
