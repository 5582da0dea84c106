use std::time::{Duration, Instant};

use super::BatchInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::source::BatchIndex;

/// The batches of a run: those of one epoch, and then those of the epochs that are prepared ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Course {
    /// Number of the run. Runs count from 1.
    pub(crate) run: u64,
    pub(crate) first: BatchIndex,
    /// Number of batches in the epoch of `first`.
    pub(crate) batches: u64,
    /// Whether that epoch follows itself, as for a program that repeats one epoch.
    pub(crate) again: bool,
    /// Number of epochs that are prepared ahead. Later ones are only prepared on request.
    pub(crate) epochs: u64,
}

impl Course {
    /// One epoch from `first` on, and nothing after it.
    #[cfg(test)]
    pub(crate) fn one(epoch: u64, batches: std::ops::Range<u64>) -> Self {
        static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let first = BatchIndex { epoch, batch: batches.start };
        Course { run, first, batches: batches.end, again: false, epochs: 0 }
    }

    /// The place after `place`, or `None` if the run ends there, after the last epoch that is
    /// prepared ahead. At the border to another epoch, [`enter`](Course::enter) says whether there
    /// is a batch.
    pub(crate) fn after(&self, place: BatchIndex) -> Option<BatchIndex> {
        let batch = place.batch + 1;
        if batch < self.batches {
            return Some(BatchIndex { batch, ..place });
        }
        let next = place.epoch.checked_add(1).filter(|&next| next < self.epochs)?;
        Some(BatchIndex { epoch: if self.again { place.epoch } else { next }, batch: 0 })
    }

    /// Enters the epoch of `place`, which [`after`](Course::after) returned for the last batch of
    /// the epoch before. `length` is its number of batches, or `None` if the order fails. Returns
    /// whether there is a batch.
    pub(crate) fn enter(&mut self, length: Option<u64>) -> bool {
        self.batches = length.unwrap_or(0);
        self.batches > 0
    }
}

/// A wait for the next batch. It can be given up, and a later call continues it.
pub(crate) struct Wait<'a> {
    /// When the wait began. The time between its calls does not count.
    pub(crate) since: Instant,
    /// Whether an earlier call gave up.
    pub(crate) continues: bool,
    /// Whether this call gave up.
    pub(crate) given_up: bool,
    /// Called before each pause. Returns its maximum length, or `None` to give up.
    idle: &'a mut dyn FnMut() -> Option<Duration>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(since: Instant, continues: bool, idle: &'a mut dyn FnMut() -> Option<Duration>) -> Self {
        Wait { since, continues, given_up: false, idle }
    }

    /// A wait that begins.
    #[cfg(test)]
    pub(crate) fn begins(idle: &'a mut dyn FnMut() -> Option<Duration>) -> Self {
        Wait::new(Instant::now(), false, idle)
    }

    /// The maximum length of the next pause, or `None` to give up.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let pause = (self.idle)();
        self.given_up = pause.is_none();
        pause
    }
}

/// A source of batches, in order: the interface between the engine, a device's ring, and `Batches`.
/// A ring is a feed that draws from another feed.
pub(crate) trait Feed: Send {
    type Batch;

    /// Starts a run, cancelling batches in flight.
    fn start(&mut self, course: Course);

    /// The next batch of the run. `None` after the last one, after an error that ends the run, and
    /// without a run.
    fn at(&self) -> Option<BatchIndex>;

    /// Waits for the next batch of a run that goes on. `None` if `wait` is given up, and if the run
    /// ends here.
    fn receive(&mut self, wait: &mut Wait<'_>) -> Option<Result<Self::Batch>>;

    /// Ends the run.
    fn stop(&mut self);

    /// Returns the next batch, or `None` if the run has ended and if `wait` is given up. The run ends
    /// with an error, unless it [goes on](goes_on).
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

    /// Tells the feed whether the consumer is full and cannot take more batches.
    fn supplied(&self, _supplied: bool) {}

    fn ready(&self) -> usize;

    /// Returns when the feed began to delay a consumer that asked for a batch at `asked` and has
    /// just received it.
    fn held_up_since(&self, asked: Instant) -> Instant {
        asked
    }
}

/// Whether the run goes on after `e`: the consumer may ask for the batch again once it has dropped
/// a batch or ended the capture.
pub(crate) fn goes_on(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Capturing) && e.failed().is_empty()
}

/// The error of a loader whose threads have ended.
pub(crate) fn ended() -> Error {
    Error::new(ErrorKind::Panic, "the loader's threads have ended after a panic; open the loader again")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All places of a run.
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
    fn a_run_crosses_borders_up_to_the_last_epoch_an_empty_one_or_an_error() {
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
