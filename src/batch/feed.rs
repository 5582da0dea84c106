//! The interface that all sources of batches implement, and the runs that they execute.

use std::time::{Duration, Instant};

use super::BatchInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::source::BatchIndex;

/// Range of batches that one run delivers: the batches of one epoch, followed by those of the
/// epochs that are prepared in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Course {
    /// Sequence number of the run. The first run is 1.
    pub(crate) run: u64,
    pub(crate) first: BatchIndex,
    /// Number of batches in the epoch of `first`.
    pub(crate) batches: u64,
    /// Whether the epoch of `first` is repeated because the caller requested it twice.
    pub(crate) again: bool,
    /// Number of further epochs that may be prepared in advance. Epochs after those are prepared
    /// only on request.
    pub(crate) epochs: u64,
}

impl Course {
    /// Returns a run of the given batches of one epoch, without further epochs.
    #[cfg(test)]
    pub(crate) fn one(epoch: u64, batches: std::ops::Range<u64>) -> Self {
        static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let first = BatchIndex { epoch, batch: batches.start };
        Course { run, first, batches: batches.end, again: false, epochs: 0 }
    }

    /// Returns the position after `place`, or `None` if the run ends at `place`, the last batch of
    /// the last epoch that may be prepared in advance. At an epoch boundary,
    /// [`enter`](Course::enter) tells whether the next epoch has any batches.
    pub(crate) fn after(&self, place: BatchIndex) -> Option<BatchIndex> {
        let batch = place.batch + 1;
        if batch < self.batches {
            return Some(BatchIndex { batch, ..place });
        }
        let next = place.epoch.checked_add(1).filter(|&next| next < self.epochs)?;
        Some(BatchIndex { epoch: if self.again { place.epoch } else { next }, batch: 0 })
    }

    /// Enters the epoch of `place`, which [`after`](Course::after) returned for the last batch of
    /// the previous epoch. `length` is the number of batches in the epoch, or `None` if its sample
    /// order could not be determined. Returns whether the epoch has any batches.
    pub(crate) fn enter(&mut self, length: Option<u64>) -> bool {
        self.batches = length.unwrap_or(0);
        self.batches > 0
    }
}

/// A wait for the next batch. The caller can give up the wait and continue it in a later call.
pub(crate) struct Wait<'a> {
    /// Start of the wait, adjusted to exclude the time between calls.
    pub(crate) since: Instant,
    /// Whether this call continues a wait that an earlier call gave up.
    pub(crate) continues: bool,
    /// Whether this call gave up.
    pub(crate) given_up: bool,
    /// Callback that runs before each pause. Returns the maximum length of the pause, or `None` to
    /// give up.
    idle: &'a mut dyn FnMut() -> Option<Duration>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(since: Instant, continues: bool, idle: &'a mut dyn FnMut() -> Option<Duration>) -> Self {
        Wait { since, continues, given_up: false, idle }
    }

    /// Starts a wait.
    #[cfg(test)]
    pub(crate) fn begins(idle: &'a mut dyn FnMut() -> Option<Duration>) -> Self {
        Wait::new(Instant::now(), false, idle)
    }

    /// Returns the maximum length of the next pause, or `None` to give up.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let pause = (self.idle)();
        self.given_up = pause.is_none();
        pause
    }
}

/// A source that delivers batches in order. The engine and a device's ring implement this trait,
/// and `Batches` consumes it. The ring draws its own batches from another feed.
pub(crate) trait Feed: Send {
    type Batch;

    /// Starts a run and cancels the batches in flight.
    fn start(&mut self, course: Course);

    /// Returns the position of the run's next batch, or `None` after the last batch, after an error
    /// that ends the run, and before the first run.
    fn at(&self) -> Option<BatchIndex>;

    /// Waits for the next batch of the current run. Returns `None` if `wait` is given up or the run
    /// has no further batch.
    fn receive(&mut self, wait: &mut Wait<'_>) -> Option<Result<Self::Batch>>;

    /// Ends the run.
    fn stop(&mut self);

    /// Returns the next batch, or `None` if the run has ended or `wait` is given up. An error ends
    /// the run, unless the run can [continue](goes_on) after it.
    fn next(&mut self, wait: &mut Wait<'_>) -> Option<Result<Self::Batch>> {
        self.at()?;
        let came = self.receive(wait);
        let ends = match &came {
            Some(Ok(_)) => false,
            Some(Err(e)) => !goes_on(e),
            None => !wait.given_up,
        };
        if ends {
            self.stop();
        }
        came
    }

    /// Tells the feed whether the consumer has enough batches and does not accept more for now.
    fn supplied(&self, _supplied: bool) {}

    fn ready(&self) -> usize;

    /// Returns the time at which the feed began to delay the consumer, which requested a batch at
    /// `asked` and has just received it.
    fn held_up_since(&self, asked: Instant) -> Instant {
        asked
    }
}

/// Returns whether the run continues after `e`. If so, the consumer can request the batch again
/// after it has dropped a batch or ended its graph capture.
pub(crate) fn goes_on(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Capturing) && e.failed().is_empty()
}

/// Returns the error for a loader whose threads have ended.
pub(crate) fn ended() -> Error {
    Error::new(ErrorKind::Panic, "the loader's threads have ended after a panic; open the loader again")
}

/// A batch on its way to the consumer.
pub(crate) trait Delivered {
    fn info(&self) -> &BatchInfo;

    /// Makes the consumer's stream wait for a decoder's response that the consumer is about to
    /// receive. Called on the thread that receives the response, and called again if it failed.
    fn taken(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all positions of a run.
    fn all(mut course: Course, lengths: &[u64]) -> Vec<(u64, u64)> {
        let mut next = Some(course.first);
        let places = std::iter::from_fn(|| {
            let place = next?;
            if place != course.first && place.batch == 0 && !course.enter(lengths.get(place.epoch as usize).copied()) {
                return None;
            }
            next = course.after(place);
            Some((place.epoch, place.batch))
        });
        places.take(9).collect()
    }

    #[test]
    fn a_run_ends_at_the_last_or_empty_epoch_or_an_error() {
        let first = BatchIndex { epoch: 0, batch: 1 };
        let course = Course { run: 1, first, batches: 3, again: false, epochs: u64::MAX };
        assert_eq!(all(course, &[3, 1, 2, 0, 4]), [(0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(all(course, &[3, 1]), [(0, 1), (0, 2), (1, 0)], "the length of epoch 2 is an error");
        for (epochs, batches) in [(0, 2), (1, 2), (2, 3), (3, 5)] {
            assert_eq!(all(Course { epochs, ..course }, &[3, 1, 2, 0]).len(), batches, "{epochs}");
        }
        let again = Course { again: true, ..course };
        assert_eq!(all(again, &[2]), [(0, 1), (0, 2), (0, 0), (0, 1), (0, 0), (0, 1), (0, 0), (0, 1), (0, 0)]);
        assert_eq!(all(Course { epochs: 1, ..again }, &[3]).len(), 2, "nothing follows the last epoch");
        let last = Course { first: BatchIndex { epoch: u64::MAX, batch: 0 }, batches: 2, ..course };
        assert_eq!(all(last, &[]).len(), 2);
    }
}
