//! The interface for receiving batches in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::BatchInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::source::BatchIndex;

/// Describes a **run**, which delivers the batches of one epoch, and then of every epoch that is
/// prepared in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunPlan {
    /// ID of the run, starting at 1.
    pub(crate) run: u64,
    pub(crate) first: BatchIndex,
    /// Number of batches in the run's current epoch, which is initially the epoch of `first`.
    pub(crate) batch_count: u64,
    /// True if the run repeats the epoch of `first` instead of continuing with the next epoch,
    /// because the program begins the epoch that it finished last.
    pub(crate) repeats_epoch: bool,
    /// Epochs from this one on are not prepared in advance.
    pub(crate) epoch_limit: u64,
}

impl RunPlan {
    #[cfg(test)]
    pub(crate) fn one_epoch(epoch: u64, batches: std::ops::Range<u64>) -> Self {
        static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let first = BatchIndex { epoch, batch: batches.start };
        RunPlan { run, first, batch_count: batches.end, repeats_epoch: false, epoch_limit: 0 }
    }

    /// Returns the position after `index`, or `None` if the run ends there. A returned position
    /// with batch 0 is valid only if [`begin_epoch`](RunPlan::begin_epoch) then returns true.
    pub(crate) fn next_after(&self, index: BatchIndex) -> Option<BatchIndex> {
        let batch = index.batch + 1;
        if batch < self.batch_count {
            return Some(BatchIndex { batch, ..index });
        }
        let next = index.epoch.checked_add(1).filter(|&next| next < self.epoch_limit)?;
        Some(BatchIndex { epoch: if self.repeats_epoch { index.epoch } else { next }, batch: 0 })
    }

    /// Begins the next epoch, after [`next_after`](RunPlan::next_after) has returned its first
    /// batch. `batch_count` is the epoch's number of batches, or `None` if the source or the
    /// sampler failed. Returns whether the epoch has any batches.
    pub(crate) fn begin_epoch(&mut self, batch_count: Option<u64>) -> bool {
        self.batch_count = batch_count.unwrap_or(0);
        self.batch_count > 0
    }
}

/// A wait for the next batch. The caller can give up and continue the wait in a later call.
pub(crate) struct Wait<'a> {
    /// Start of the wait, moved forward by the time between calls, so that only time inside calls
    /// counts.
    pub(crate) since: Instant,
    /// Whether this call continues a wait that an earlier call gave up.
    pub(crate) continues: bool,
    pub(crate) given_up: bool,
    idle: &'a mut dyn FnMut() -> Option<Duration>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(since: Instant, continues: bool, idle: &'a mut dyn FnMut() -> Option<Duration>) -> Self {
        Wait { since, continues, given_up: false, idle }
    }

    #[cfg(test)]
    pub(crate) fn begins(idle: &'a mut dyn FnMut() -> Option<Duration>) -> Self {
        Wait::new(Instant::now(), false, idle)
    }

    /// Returns how long to sleep, or `None` to give up.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let pause = (self.idle)();
        self.given_up = pause.is_none();
        pause
    }
}

/// Delivers batches in order. Implemented by the engine, and by a device's ring, which receives its
/// batches from an engine.
pub(crate) trait Feed: Send {
    type Batch;

    /// Starts a run, and cancels the batches in flight.
    fn start(&mut self, run_plan: RunPlan);

    /// Returns the position of the run's next batch, or `None` if no run is in progress.
    fn position(&self) -> Option<BatchIndex>;

    /// Like [`next`](Feed::next), but does not end the run.
    fn receive(&mut self, wait: &mut Wait<'_>) -> Option<Result<Self::Batch>>;

    fn stop(&mut self);

    /// Waits for the run's next batch. Returns `None` if the run has ended or the caller gives up
    /// the wait. An error ends the run unless it is [recoverable](is_recoverable).
    fn next(&mut self, wait: &mut Wait<'_>) -> Option<Result<Self::Batch>> {
        self.position()?;
        let received = self.receive(wait);
        let ends = match &received {
            Some(Ok(_)) => false,
            Some(Err(e)) => !is_recoverable(e),
            None => !wait.given_up,
        };
        if ends {
            self.stop();
        }
        received
    }

    /// Reports how many batches on the device the program has not received. A device's ring calls
    /// this function for each batch that it receives, and does not count that batch.
    fn set_batches_ahead(&self, _batches: usize) {}

    /// Returns the number of finished batches that have not been received. The next batch may not
    /// be among them, because an engine finishes batches out of order.
    fn ready(&self) -> usize;

    /// Returns when the loader began to delay a batch that was requested at `requested` and has
    /// just arrived. Time during which the loader waits for the consumer's device work does not
    /// count.
    fn delayed_since(&self, requested: Instant) -> Instant {
        requested
    }

    /// Returns a function that releases the memory of batches that were dropped during a graph
    /// capture, once the capture has ended. Only threads that may use the consumer's stream call
    /// it. Returns `None` if dropped batches are never deferred.
    fn deferred_release(&self) -> Option<ReleaseDeferred> {
        None
    }
}

/// See [`Feed::deferred_release`].
pub(crate) type ReleaseDeferred = Arc<dyn Fn() + Send + Sync>;

/// Returns whether the run continues after `e`: a timeout, because the consumer holds too many
/// batches, or a graph capture. The consumer can drop a batch or end the capture, and try again.
pub(crate) fn is_recoverable(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Capturing) && e.failed().is_empty()
}

pub(crate) fn threads_ended_error() -> Error {
    Error::new(ErrorKind::Panic, "the loader's threads have ended after a panic; open the loader again")
}

pub(crate) trait Delivered {
    fn info(&self) -> &BatchInfo;

    /// Makes the consumer's stream wait until the batch is ready. Does nothing for batches in host
    /// memory. A decoder calls this method on the thread that receives the response. If the call
    /// fails, the decoder calls the method again when the caller next waits for the batch.
    fn on_receive(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_batches(mut run_plan: RunPlan, lengths: &[u64]) -> Vec<(u64, u64)> {
        let mut next = Some(run_plan.first);
        let positions = std::iter::from_fn(|| {
            let index = next?;
            if index != run_plan.first
                && index.batch == 0
                && !run_plan.begin_epoch(lengths.get(index.epoch as usize).copied())
            {
                return None;
            }
            next = run_plan.next_after(index);
            Some((index.epoch, index.batch))
        });
        positions.take(9).collect()
    }

    #[test]
    fn a_run_ends_after_the_last_epoch_or_before_an_empty_one() {
        let first = BatchIndex { epoch: 0, batch: 1 };
        let run_plan = RunPlan { run: 1, first, batch_count: 3, repeats_epoch: false, epoch_limit: u64::MAX };
        assert_eq!(all_batches(run_plan, &[3, 1, 2, 0, 4]), [(0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(all_batches(run_plan, &[3, 1]), [(0, 1), (0, 2), (1, 0)], "the length of epoch 2 is an error");
        for (epoch_limit, batches) in [(0, 2), (1, 2), (2, 3), (3, 5)] {
            assert_eq!(all_batches(RunPlan { epoch_limit, ..run_plan }, &[3, 1, 2, 0]).len(), batches, "{epoch_limit}");
        }
        let repeats = RunPlan { repeats_epoch: true, ..run_plan };
        assert_eq!(
            all_batches(repeats, &[2]),
            [(0, 1), (0, 2), (0, 0), (0, 1), (0, 0), (0, 1), (0, 0), (0, 1), (0, 0)]
        );
        assert_eq!(
            all_batches(RunPlan { epoch_limit: 1, ..repeats }, &[3]).len(),
            2,
            "the run ends after the last epoch"
        );
        let last = RunPlan { first: BatchIndex { epoch: u64::MAX, batch: 0 }, batch_count: 2, ..run_plan };
        assert_eq!(all_batches(last, &[]).len(), 2);
    }
}
