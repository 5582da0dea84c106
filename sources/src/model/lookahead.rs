//! [`Lookahead`], the future reads of a loader, and [`Prefetcher`], through which a source follows
//! them.

use std::ops::Range;
use std::sync::Arc;

use super::position::Position;

/// Place of a batch: its epoch, and its number in the epoch. Places sort in the order of delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BatchIndex {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch in the epoch, from 0.
    pub batch: u64,
}

/// The order in which one loader reads a source: its own samples, batch after batch and epoch after
/// epoch, as far ahead as the source wants to look.
///
/// The order is a function, not a queue: any place may be queried at any time, and nothing is
/// stored per place. [`Source::follow`](super::Source::follow) shows its use.
#[derive(Clone)]
pub struct Lookahead {
    bytes: usize,
    batches: Arc<dyn Fn(u64) -> u64 + Send + Sync>,
    samples: Arc<dyn Fn(BatchIndex) -> Option<Vec<u64>> + Send + Sync>,
    next: Arc<NextInEpoch>,
}

/// The first batch of an epoch, from a batch on, in which this machine reads a sample: the
/// arguments are the epoch, the sample and the batch.
type NextInEpoch = dyn Fn(u64, u64, u64) -> Position + Send + Sync;

/// The next read of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextUse {
    /// It is read in the batch at this place.
    At(BatchIndex),
    /// No batch of the epochs that were searched reads it.
    Later,
    /// The order has no inverse in constant time.
    Unknown,
}

impl Lookahead {
    /// Creates an order with `batches(epoch)` batches in each epoch and the samples
    /// `samples(place)` in each batch. A loader creates its own; this function is for tests of
    /// sources.
    pub fn new(
        bytes: usize,
        batches: impl Fn(u64) -> u64 + Send + Sync + 'static,
        samples: impl Fn(BatchIndex) -> Option<Vec<u64>> + Send + Sync + 'static,
    ) -> Self {
        let next = Arc::new(|_, _, _| Position::Unknown);
        Lookahead { bytes, batches: Arc::new(batches), samples: Arc::new(samples), next }
    }

    /// Adds the inverse of the order: `next(epoch, sample, batch)` is the first batch of `epoch`,
    /// from `batch` on, in which a rank on this machine reads `sample`.
    #[must_use]
    pub fn with_next(mut self, next: impl Fn(u64, u64, u64) -> Position + Send + Sync + 'static) -> Self {
        self.next = Arc::new(next);
        self
    }

    /// The first place from `from` on at which a rank on this machine reads `sample`. Searches
    /// `epochs` epochs, each in constant time. The launcher or
    /// `Loader::local_world_size` says which ranks are on this
    /// machine.
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

    /// Maximum bytes of fetched samples that the source may hold until they are read. They are part
    /// of the memory plan. It may be less than one batch, or 0.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of batches in `epoch`.
    pub fn batches(&self, epoch: u64) -> u64 {
        (self.batches)(epoch)
    }

    /// The samples of the batch at `place`, in order. A sample may occur twice. `None` if the batch
    /// does not exist, or if the order fails; the failure is then an error of the batch.
    pub fn samples(&self, place: BatchIndex) -> Option<Vec<u64>> {
        (place.batch < (self.batches)(place.epoch)).then(|| (self.samples)(place))?
    }

    /// The place after `place`: the next batch of the epoch, or the first one of the next epoch.
    pub fn after(&self, BatchIndex { epoch, batch }: BatchIndex) -> BatchIndex {
        if batch + 1 < (self.batches)(epoch) {
            BatchIndex { epoch, batch: batch + 1 }
        } else {
            BatchIndex { epoch: epoch + 1, batch: 0 }
        }
    }

    /// All batches from `place` on, across epochs. Ends at an epoch without batches, and after the
    /// last of the loader's `epochs`.
    pub fn from(&self, place: BatchIndex) -> impl Iterator<Item = (BatchIndex, Vec<u64>)> + use<> {
        let (order, mut next) = (self.clone(), place);
        std::iter::from_fn(move || {
            let (place, samples) = (next, order.samples(next)?);
            next = order.after(place);
            Some((place, samples))
        })
    }

    /// The order as seen by the part of the source with the samples `part`. The part may hold
    /// `bytes` and numbers its samples from 0.
    pub(crate) fn part(&self, bytes: usize, part: Range<u64>) -> Self {
        let (all, next, first) = (self.samples.clone(), self.next.clone(), part.start);
        let own = move |sample| part.contains(&sample).then(|| sample - first);
        let samples = move |place| Some(all(place)?.into_iter().filter_map(&own).collect());
        let next = move |epoch, sample, batch| next(epoch, first + sample, batch);
        Lookahead { bytes, batches: self.batches.clone(), samples: Arc::new(samples), next: Arc::new(next) }
    }
}

impl std::fmt::Debug for Lookahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookahead").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Follows the reads of one loader. Dropping it cancels them all.
///
/// A loader calls these methods while its batches wait, so they should start work on other threads
/// and return. One call ends before the next begins; reads go on meanwhile.
///
/// A source returns a sample's bytes to its budget when the sample is read, not in
/// [`done`](Prefetcher::done): a batch may need more than the whole budget. A read waits only for a
/// request in flight, never for room; it reads any other sample directly. Otherwise reads can wait
/// for each other forever.
pub trait Prefetcher: Send + Sync {
    /// Reads continue at `place`, in the order of the [`Lookahead`]. Samples before it are
    /// cancelled, and so are fetched samples that the order no longer needs. It is not called
    /// between epochs that follow each other. If it is called after a complete epoch, `place` may
    /// be the next place of the order.
    fn start(&self, place: BatchIndex);

    /// Every sample of the batch at `place` was read.
    fn done(&self, place: BatchIndex) {
        let _ = place;
    }

    /// The reads that were in progress are cancelled until the next [`start`](Prefetcher::start): the
    /// program left an epoch early, or asked for another epoch than the next. It is not called
    /// between epochs that follow each other.
    fn stop(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(epoch: u64, batch: u64) -> BatchIndex {
        BatchIndex { epoch, batch }
    }

    #[test]
    fn the_order_continues_across_epochs_and_ends_at_an_empty_one() {
        let batches = |epoch| if epoch < 3 { 2 - epoch % 2 } else { 0 };
        let order = Lookahead::new(7, batches, |at| Some(vec![10 * at.epoch + at.batch, 5]));
        let all: Vec<_> = order.from(place(0, 1)).collect();
        let expected = [(place(0, 1), 1), (place(1, 0), 10), (place(2, 0), 20), (place(2, 1), 21)];
        assert_eq!(all, expected.map(|(at, first)| (at, vec![first, 5])));
        assert_eq!((order.samples(place(1, 1)), order.bytes()), (None, 7));
        let part = order.part(3, 10..30);
        let own: Vec<_> = part.from(place(0, 0)).map(|(_, samples)| samples).collect();
        assert_eq!((own, part.bytes()), (vec![vec![], vec![], vec![0], vec![10], vec![11]], 3));
        assert_eq!(order.next_use(5, place(0, 0), 3), NextUse::Unknown);
    }

    #[test]
    fn the_next_use_is_searched_for_as_many_epochs_as_asked() {
        // Sample s is in batch s of epoch 10, 20, 30 and so on.
        let next = |epoch, sample, from| match (epoch % 10, sample >= from) {
            (0, true) => Position::At(sample),
            _ => Position::Absent,
        };
        let order = Lookahead::new(0, |_| 8, |_| None).with_next(next);
        assert_eq!(order.next_use(3, place(10, 3), 1), NextUse::At(place(10, 3)));
        assert_eq!(order.next_use(3, place(10, 4), 10), NextUse::Later);
        assert_eq!(order.next_use(3, place(10, 4), 11), NextUse::At(place(20, 3)));
        assert_eq!(order.next_use(3, place(u64::MAX, 0), 11), NextUse::Later);
        assert_eq!(order.part(0, 3..8).next_use(0, place(11, 0), 10), NextUse::At(place(20, 3)));
    }
}
