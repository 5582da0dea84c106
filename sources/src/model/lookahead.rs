//! [`Lookahead`]: lists the upcoming reads of a loader. [`Prefetcher`]: prefetches the samples of a
//! source.

use std::ops::Range;
use std::sync::Arc;

use super::position::Position;

/// Identifies a batch by its epoch and its index within the epoch. The ordering is the order of
/// delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BatchIndex {
    /// Index of the epoch, from 0.
    pub epoch: u64,
    /// Index of the batch within the epoch, from 0.
    pub batch: u64,
}

/// The order in which one loader reads a source, restricted to the samples of the loader's rank. A
/// source can look ahead any number of batches, up to the last epoch that the loader may prefetch.
///
/// The order is a function, not a queue: any batch can be queried at any time, and no batches are
/// stored. See [`Source::prefetcher`](super::Source::prefetcher) for an example. If the program
/// changes the weights or proportions of the order, [`Prefetcher::start`] is called again before
/// the first changed batch is read.
#[derive(Clone)]
pub struct Lookahead {
    bytes: usize,
    batches: Arc<dyn Fn(u64) -> u64 + Send + Sync>,
    samples: Arc<DrawnSamples>,
    next: Arc<NextInEpoch>,
}

/// Returns the samples of a batch, each with its random number.
type DrawnSamples = dyn Fn(BatchIndex) -> Option<Vec<(u64, u64)>> + Send + Sync;

/// Returns the first batch in which a rank on this machine reads a sample. The arguments are the
/// epoch, the sample, and the batch at which the search starts.
type NextInEpoch = dyn Fn(u64, u64, u64) -> Position + Send + Sync;

/// When a sample is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextUse {
    /// The next read is in this batch.
    At(BatchIndex),
    /// The search found no read of the sample.
    Later,
    /// The next read cannot be found in constant time. See [`Position::Unknown`].
    Unknown,
}

impl Lookahead {
    /// Creates an order with the prefetch budget `bytes`, for tests of sources. `batches(epoch)`
    /// returns the number of batches in an epoch, and `samples(batch)` returns the samples of a
    /// batch.
    pub fn new(
        bytes: usize,
        batches: impl Fn(u64) -> u64 + Send + Sync + 'static,
        samples: impl Fn(BatchIndex) -> Option<Vec<u64>> + Send + Sync + 'static,
    ) -> Self {
        let drawn = move |index| Some(samples(index)?.into_iter().map(|sample| (sample, 0)).collect());
        Self::with_draws(bytes, batches, drawn)
    }

    /// Like [`new`](Lookahead::new), but `samples(batch)` also returns the random number of each
    /// sample, which the loader passes to [`Source::read_drawn`](super::Source::read_drawn).
    pub fn with_draws(
        bytes: usize,
        batches: impl Fn(u64) -> u64 + Send + Sync + 'static,
        samples: impl Fn(BatchIndex) -> Option<Vec<(u64, u64)>> + Send + Sync + 'static,
    ) -> Self {
        let next = Arc::new(|_, _, _| Position::Unknown);
        Lookahead { bytes, batches: Arc::new(batches), samples: Arc::new(samples), next }
    }

    /// Adds the inverse of the order: `next(epoch, sample, batch)` returns the first batch of
    /// `epoch`, at or after `batch`, in which a rank on this machine reads `sample`.
    #[must_use]
    pub fn with_next(mut self, next: impl Fn(u64, u64, u64) -> Position + Send + Sync + 'static) -> Self {
        self.next = Arc::new(next);
        self
    }

    /// Returns the first batch at or after `from` in which a rank on this machine reads `sample`.
    /// Searches `epochs` epochs, each in constant time. The environment variables of the launcher
    /// or `Loader::local_world_size` determine which ranks are on this machine.
    pub fn next_use(&self, sample: u64, from: BatchIndex, epochs: u64) -> NextUse {
        for epoch in from.epoch..from.epoch.saturating_add(epochs) {
            match (self.next)(epoch, sample, if epoch == from.epoch { from.batch } else { 0 }) {
                Position::At(batch) => return NextUse::At(BatchIndex { epoch, batch }),
                Position::Absent => {}
                Position::Unknown => return NextUse::Unknown,
            }
        }
        NextUse::Later
    }

    /// Returns the prefetch budget: the maximum number of bytes that the source may prefetch ahead
    /// of the reads. It counts toward the loader's memory limit, and may be smaller than a batch,
    /// or 0.
    pub fn budget_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of batches in `epoch`.
    pub fn batch_count(&self, epoch: u64) -> u64 {
        (self.batches)(epoch)
    }

    /// Returns the samples of batch `index`, in order, including samples that are mixed into other
    /// images. A sample may occur twice. Returns `None` if the batch does not exist or if the
    /// sampler fails; the loader reports the failure with the batch.
    pub fn samples(&self, index: BatchIndex) -> Option<Vec<u64>> {
        Some(self.drawn_samples(index)?.into_iter().map(|(sample, _)| sample).collect())
    }

    /// Like [`samples`](Lookahead::samples), but also returns the random number of each sample.
    pub fn drawn_samples(&self, index: BatchIndex) -> Option<Vec<(u64, u64)>> {
        (index.batch < (self.batches)(index.epoch)).then(|| (self.samples)(index))?
    }

    /// Returns the batch after this one. After the last batch of an epoch, this is the first batch
    /// of the next epoch.
    pub fn next_batch(&self, BatchIndex { epoch, batch }: BatchIndex) -> BatchIndex {
        if batch + 1 < (self.batches)(epoch) {
            BatchIndex { epoch, batch: batch + 1 }
        } else {
            BatchIndex { epoch: epoch + 1, batch: 0 }
        }
    }

    /// Iterates over all batches, starting at `index` and continuing across epochs. The iterator
    /// ends at an epoch without batches, after the last epoch that the loader may prefetch (see
    /// `Loader::epochs`), or if the sampler fails.
    pub fn batches_from(&self, index: BatchIndex) -> impl Iterator<Item = (BatchIndex, Vec<u64>)> + use<> {
        let (order, mut next) = (self.clone(), index);
        std::iter::from_fn(move || {
            let (index, samples) = (next, order.samples(next)?);
            next = order.next_batch(index);
            Some((index, samples))
        })
    }

    /// Restricts the order to the samples in `range`, renumbered from 0, with the prefetch budget
    /// `bytes`.
    pub(crate) fn restricted(&self, bytes: usize, range: Range<u64>) -> Self {
        let (all, next, first) = (self.samples.clone(), self.next.clone(), range.start);
        let renumber = move |(sample, draw)| range.contains(&sample).then(|| (sample - first, draw));
        let samples = move |index| Some(all(index)?.into_iter().filter_map(&renumber).collect());
        let next = move |epoch, sample, batch| next(epoch, first + sample, batch);
        Lookahead { bytes, batches: self.batches.clone(), samples: Arc::new(samples), next: Arc::new(next) }
    }
}

impl std::fmt::Debug for Lookahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookahead").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Prefetches the samples of one loader. Dropping a prefetcher cancels all prefetching.
///
/// A loader calls these methods on its critical path, so they should start work on other threads
/// and return immediately. Calls do not overlap, but samples may be read during a call.
///
/// To avoid deadlocks, a source must follow two rules. First, it returns the bytes of a sample to
/// its budget when the sample is read, not in [`done`](Prefetcher::done), because a batch may
/// exceed the whole budget. Second, a read may wait for a request in flight, but never for free
/// budget: if no request contains the sample, the sample is read directly.
pub trait Prefetcher: Send + Sync {
    /// Called before the loader reads `batch` and later batches, in the order of the [`Lookahead`].
    /// Cancels the prefetching of earlier batches, and drops prefetched samples that are no longer
    /// needed. A loader may omit this call between consecutive epochs.
    fn start(&self, batch: BatchIndex);

    /// Called when all samples of `batch` and of all earlier batches have been read. Batches are
    /// done in order.
    fn done(&self, batch: BatchIndex) {
        let _ = batch;
    }

    /// Called when the loader abandons its position, because the program ended an epoch early or
    /// requested an epoch out of sequence. Cancels all reads in progress. Prefetching resumes with
    /// the next [`start`](Prefetcher::start). Not called between consecutive epochs.
    fn stop(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(epoch: u64, batch: u64) -> BatchIndex {
        BatchIndex { epoch, batch }
    }

    #[test]
    fn the_order_continues_until_an_empty_epoch() {
        let batches = |epoch| if epoch < 3 { 2 - epoch % 2 } else { 0 };
        let order = Lookahead::new(7, batches, |at| Some(vec![10 * at.epoch + at.batch, 5]));
        let all: Vec<_> = order.batches_from(index(0, 1)).collect();
        let expected = [(index(0, 1), 1), (index(1, 0), 10), (index(2, 0), 20), (index(2, 1), 21)];
        assert_eq!(all, expected.map(|(at, first)| (at, vec![first, 5])));
        assert_eq!((order.samples(index(1, 1)), order.budget_bytes()), (None, 7));
        let restricted = order.restricted(3, 10..30);
        let samples: Vec<_> = restricted.batches_from(index(0, 0)).map(|(_, samples)| samples).collect();
        assert_eq!((samples, restricted.budget_bytes()), (vec![vec![], vec![], vec![0], vec![10], vec![11]], 3));
        assert_eq!(order.next_use(5, index(0, 0), 3), NextUse::Unknown);
    }

    #[test]
    fn the_next_use_is_searched_in_the_given_epochs() {
        // Sample s is in batch s of the epochs 10, 20, 30 and so on.
        let next = |epoch, sample, from| match (epoch % 10, sample >= from) {
            (0, true) => Position::At(sample),
            _ => Position::Absent,
        };
        let order = Lookahead::new(0, |_| 8, |_| None).with_next(next);
        assert_eq!(order.next_use(3, index(10, 3), 1), NextUse::At(index(10, 3)));
        assert_eq!(order.next_use(3, index(10, 4), 10), NextUse::Later);
        assert_eq!(order.next_use(3, index(10, 4), 11), NextUse::At(index(20, 3)));
        assert_eq!(order.next_use(3, index(u64::MAX, 0), 11), NextUse::Later);
        assert_eq!(order.restricted(0, 3..8).next_use(0, index(11, 0), 10), NextUse::At(index(20, 3)));
    }
}
