//! Splits the sequence of a sampler into batches, and divides each batch between the ranks.
//!
//! The results depend only on the order, the options and the rank, so every rank computes its share
//! without communication. For the cache for object stores, `Schedule::next_batch_of_sample` finds
//! the batch in which a sample is read next, without scanning the epoch.

use std::ops::Range;
use std::sync::Arc;

use warpfeed_sources::BatchIndex;

use super::batched::BatchedOrder;
use super::{LiveOrder, Occurrence, Position, Rank, Sampler, UpdatableOrder};

/// Policy for the last batch of an epoch, if there are not enough samples to fill it.
///
/// With several ranks ([`Loader::rank`](crate::Loader::rank)), the policy applies to the global
/// batch, so all ranks have the same number of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// Delivers a smaller batch, like PyTorch's `drop_last=False`.
    ///
    /// The batch is divided between the ranks as evenly as possible. If there are fewer samples
    /// than ranks, each remaining rank gets one sample from the start of the epoch, which is marked
    /// as not valid.
    #[default]
    Keep,
    /// Drops the batch, like PyTorch's `drop_last=True`. Opening fails if no batch remains.
    Drop,
    /// Fills the batch with samples from the start of the epoch, which are marked as not valid (see
    /// [`BatchInfo::valid`](crate::BatchInfo::valid)).
    ///
    /// All batches on all ranks have the same number of samples, even if the global batch size is
    /// not divisible by the world size. If the datasets of a mixture have their own batch sizes,
    /// this applies to the batches of each dataset.
    Pad,
}

/// A sample of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    pub(crate) sample: u64,
    /// Replaces the epoch in the seed of the sample's random numbers; see [`Occurrence::variant`].
    pub(crate) variant: u64,
    /// False for padding, a failed sample's replacement, and a failed image of a decoder.
    pub(crate) valid: bool,
}

/// Splits an order into batches, and divides each batch between the ranks.
///
/// Unless the order determines the batches, global batch `g` starts at position `g * batch_size`,
/// for any number of ranks, and has at most `batch_size` samples. Each rank gets a contiguous range
/// of the samples, in the order of the ranks. If the number of samples is not divisible by the
/// number of ranks, the first ranks get one extra sample each.
#[derive(Clone)]
pub(crate) struct Schedule {
    order: Arc<dyn Sampler>,
    /// The same object as `order`, if the program may change the order.
    live_order: Option<Arc<LiveOrder>>,
    /// The batches of `order`, if the order determines the number of samples in each batch. This is
    /// `order` itself, or the sampler that a subset in `order` wraps.
    batched_order: Option<Arc<dyn BatchedOrder>>,
    /// The global batch size, or its maximum if the order determines the batches.
    batch_size: u64,
    last_batch: LastBatch,
    rank: Rank,
}

impl Schedule {
    /// `batch_size` is the global batch size.
    pub(crate) fn new(order: Arc<dyn Sampler>, batch_size: u64, last_batch: LastBatch, rank: Rank) -> Self {
        Schedule { order, live_order: None, batched_order: None, batch_size, last_batch, rank }
    }

    /// Lets the program change the order. `live_order` must be the same object as the order.
    pub(crate) fn with_live_order(mut self, live_order: Option<Arc<LiveOrder>>) -> Self {
        self.live_order = live_order;
        self
    }

    /// Lets the order determine the batches. `batched_order` must be the order itself, or the
    /// sampler with the same positions that the order wraps.
    pub(crate) fn with_batched_order(mut self, batched_order: Option<Arc<dyn BatchedOrder>>) -> Self {
        self.batched_order = batched_order;
        self
    }

    pub(crate) fn budget(&self) -> Option<u64> {
        self.batched_order.as_ref()?.budget()
    }

    /// Empty if the batch size does not depend on the dataset.
    pub(crate) fn dataset_batch_sizes(&self) -> Vec<u64> {
        self.batched_order.as_ref().map(|batches| batches.dataset_batch_sizes()).unwrap_or_default()
    }

    pub(crate) fn live_order(&self) -> Option<&Arc<LiveOrder>> {
        self.live_order.as_ref()
    }

    /// Returns this schedule with `order`, which the program cannot change.
    pub(crate) fn with_order(&self, order: Arc<dyn UpdatableOrder>) -> Self {
        Schedule {
            batched_order: order.clone().batched_order(),
            order: Arc::new(order),
            live_order: None,
            ..self.clone()
        }
    }

    pub(crate) fn without_changes(&self) -> Self {
        self.live_order.as_ref().map_or_else(|| self.clone(), |changes| self.with_order(changes.original()))
    }

    pub(crate) fn order(&self) -> &dyn Sampler {
        &*self.order
    }

    pub(crate) fn global_batch(&self) -> u64 {
        self.batch_size
    }

    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns the number of batches in an epoch, which is the same on all ranks.
    pub(crate) fn num_batches(&self, epoch: u64) -> u64 {
        if let Some(batches) = &self.batched_order {
            return batches.num_batches(epoch);
        }
        match self.last_batch {
            LastBatch::Drop => self.order.len(epoch) / self.batch_size,
            LastBatch::Keep | LastBatch::Pad => self.order.len(epoch).div_ceil(self.batch_size),
        }
    }

    /// Returns the number of samples of all ranks in an epoch, without padding.
    pub(crate) fn sample_count(&self, epoch: u64) -> u64 {
        if let Some(batches) = &self.batched_order {
            return batches.sample_count(epoch);
        }
        match self.last_batch {
            LastBatch::Drop => self.num_batches(epoch) * self.batch_size,
            LastBatch::Keep | LastBatch::Pad => self.order.len(epoch),
        }
    }

    /// Returns the number of samples in a full batch of this rank, including padding.
    pub(crate) fn rows(&self) -> u64 {
        self.rows_of(self.batched_order.as_ref().map_or(self.batch_size, |batches| batches.max_batch_size()))
    }

    /// Like [`rows`](Schedule::rows), for batches with the image size of index `size_index`.
    pub(crate) fn rows_of_size(&self, size_index: usize) -> u64 {
        let largest = self.batched_order.as_ref().and_then(|batches| batches.max_batch_size_of(size_index));
        largest.map_or_else(|| self.rows(), |largest| self.rows_of(largest))
    }

    /// Returns this rank's share of a global batch of `samples` samples, including padding.
    fn rows_of(&self, samples: u64) -> u64 {
        let share = self.share(samples);
        self.min_share_len(samples).max(share.end - share.start)
    }

    /// Returns `None` if the image size does not depend on the batch.
    pub(crate) fn image_size_index(&self, epoch: u64, batch: u64) -> Option<usize> {
        self.batched_order.as_ref()?.image_size_index(epoch, batch)
    }

    /// Returns `None` if the number overflows.
    pub(crate) fn positions_before(&self, index: BatchIndex, positions_per_epoch: u64) -> Option<u64> {
        index.epoch.checked_mul(positions_per_epoch)?.checked_add(index.batch.checked_mul(self.batch_size)?)
    }

    /// Returns the first batch with a sample at or after `position` of the run.
    pub(crate) fn first_batch_from(&self, position: u64, positions_per_epoch: u64) -> BatchIndex {
        let positions_per_epoch = positions_per_epoch.max(1);
        let index = BatchIndex {
            epoch: position / positions_per_epoch,
            batch: position % positions_per_epoch / self.batch_size,
        };
        // If `LastBatch::Drop` drops the sample, this is the first batch of the next epoch.
        // `num_batches` is too small in the epoch in which the run ends.
        if self.last_batch == LastBatch::Drop && index.batch >= positions_per_epoch / self.batch_size {
            return BatchIndex { epoch: index.epoch + 1, batch: 0 };
        }
        index
    }

    /// Returns the size to which smaller shares of a global batch of `samples` samples are padded.
    fn min_share_len(&self, samples: u64) -> u64 {
        match (self.last_batch, &self.batched_order) {
            (LastBatch::Pad, None) => self.batch_size.div_ceil(self.rank.world_size as u64),
            (LastBatch::Pad, Some(_)) => samples.div_ceil(self.rank.world_size as u64),
            (LastBatch::Drop, None) => 0,
            // With a budget, a batch may have fewer samples than there are ranks.
            (LastBatch::Keep, _) | (LastBatch::Drop, Some(_)) => 1,
        }
    }

    fn share(&self, samples: u64) -> Range<u64> {
        self.share_of(self.rank.rank, samples)
    }

    fn share_of(&self, rank: usize, samples: u64) -> Range<u64> {
        let (rank, world) = (rank as u64, self.rank.world_size as u64);
        let (quotient, remainder) = (samples / world, samples % world);
        let start = rank * quotient + rank.min(remainder);
        start..start + quotient + u64::from(rank < remainder)
    }

    /// Returns the positions of the samples that pad the share of `rank`. They follow the padding
    /// of the preceding ranks, and wrap around at the end of the epoch.
    fn padding(&self, rank: usize, samples: u64) -> Range<u64> {
        let share = self.share_of(rank, samples);
        let min_share_len = self.min_share_len(samples);
        let offset = (rank as u64 * min_share_len).saturating_sub(share.start);
        offset..offset + min_share_len.saturating_sub(share.end - share.start)
    }

    /// Returns the first batch of `epoch`, at or after `from`, in which a rank on this machine
    /// reads `sample`.
    pub(crate) fn next_batch_of_sample(&self, epoch: u64, sample: u64, from: u64) -> Position {
        let (len, batches, machine) = (self.order.len(epoch), self.num_batches(epoch), self.rank.machine_ranks());
        if from >= batches {
            return Position::Absent;
        }
        if let Some(batches) = &self.batched_order {
            return self.next_in_batched_order(&**batches, epoch, sample, from);
        }
        let samples = |batch: u64| self.batch_size.min(len - batch * self.batch_size);
        let padded_batch = [from, batches - 1].into_iter().find(|&batch| {
            machine.clone().any(|rank| self.is_padding(epoch, sample, self.padding(rank, samples(batch))))
        });
        let mut position = from * self.batch_size;
        loop {
            match self.order.position(epoch, sample, position) {
                Position::Unknown => return Position::Unknown,
                // A custom order that ignores `from` would cause an endless loop.
                Position::At(next_position) if next_position < position => return Position::Unknown,
                Position::At(next_position) if next_position / self.batch_size < padded_batch.unwrap_or(batches) => {
                    let (batch, offset) = (next_position / self.batch_size, next_position % self.batch_size);
                    let machine_start = self.share_of(machine.start, samples(batch)).start;
                    let machine_end = self.share_of(machine.end - 1, samples(batch)).end;
                    if (machine_start..machine_end).contains(&offset) {
                        return Position::At(batch);
                    }
                    position = next_position + 1;
                }
                Position::At(_) | Position::Absent => return padded_batch.map_or(Position::Absent, Position::At),
            }
        }
    }

    fn next_in_batched_order(&self, batches: &dyn BatchedOrder, epoch: u64, sample: u64, from: u64) -> Position {
        let (machine, world) = (self.rank.machine_ranks(), self.rank.world_size as u64);
        // In a small batch, the first `world_size` samples may be padding in an unknown batch.
        if world > 1 && matches!(self.order.position(epoch, sample, 0), Position::At(at) if at < world) {
            return Position::Unknown;
        }
        let mut position = batches.min_position(from);
        loop {
            let next_position = match self.order.position(epoch, sample, position) {
                Position::At(next_position) if next_position >= position => next_position,
                Position::Absent => return Position::Absent,
                _ => return Position::Unknown,
            };
            if let Some(batch) = batches.batch_of(epoch, next_position).filter(|batch| *batch >= from) {
                let range = batches.positions(epoch, batch);
                let samples = range.end - range.start;
                let machine_start = self.share_of(machine.start, samples).start;
                if (machine_start..self.share_of(machine.end - 1, samples).end).contains(&(next_position - range.start))
                {
                    return Position::At(batch);
                }
            }
            position = next_position + 1;
        }
    }

    fn is_padding(&self, epoch: u64, sample: u64, padding: Range<u64>) -> bool {
        let (len, mut position) = (self.order.len(epoch), 0);
        while !padding.is_empty()
            && let Position::At(next_position) = self.order.position(epoch, sample, position)
            && (position..len).contains(&next_position)
        {
            let distance = (next_position + len - padding.start % len) % len;
            if padding.start + distance < padding.end {
                return true;
            }
            position = next_position + 1;
        }
        false
    }

    /// Replaces `entries` with this rank's samples of batch `batch` of `epoch`. Panics if the
    /// sampler panics, or if its length has decreased so that the batch no longer exists.
    pub(crate) fn fill(&self, epoch: u64, batch: u64, entries: &mut Vec<Entry>) {
        let len = self.order.len(epoch);
        let range = self.batched_order.as_ref().map(|batches| batches.positions(epoch, batch));
        let first = range.as_ref().map_or(batch * self.batch_size, |range| range.start);
        assert!(first < len, "batch {batch} begins at {first}, but the sampler has {len} samples in epoch {epoch}");
        let samples = range.map_or(self.batch_size.min(len - first), |range| range.end - range.start);
        let (share, padding) = (self.share(samples), self.padding(self.rank.rank, samples));
        let entry = |Occurrence { index: sample, variant }, valid| Entry { sample, variant, valid };
        entries.clear();
        let positions = first + share.start..first + share.end;
        self.order.for_each(epoch, positions, &mut |occurrence| entries.push(entry(occurrence, true)));
        entries.extend(padding.map(|p| entry(self.order.occurrence(epoch, p % len), false)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::sampler::{Bucketed, Mixture, Repeat, Sequential, Shuffled, Subset, Weighted, Windowed};

    struct CountingOrder(Arc<AtomicU64>);

    impl Sampler for CountingOrder {
        fn len(&self, _epoch: u64) -> u64 {
            100
        }

        fn index(&self, _epoch: u64, position: u64) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed);
            position
        }
    }

    #[test]
    fn the_innermost_order_is_called_once_per_position() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted: Arc<dyn Sampler> = Arc::new(CountingOrder(calls.clone()));
        let mixture = Mixture::of([(100, 1.0, counted)], 1).unwrap().draws(80);
        let list: Vec<u64> = (0..100).map(|i| i / 2).collect();
        let order = Repeat::new(2, Subset::new(list, mixture).unwrap());
        let mut entries = Vec::new();
        Schedule::new(Arc::new(order), 140, LastBatch::Keep, Rank::new(0, 1).unwrap()).fill(1, 0, &mut entries);
        assert_eq!(entries.len(), 140);
        assert_eq!(calls.load(Ordering::Relaxed), 140);
    }

    #[test]
    fn the_next_batch_within_a_budget_equals_a_scan() {
        let lengths: Vec<u32> = (0..60_u32).map(|n| n * 7 % 31).collect();
        for (drop, last) in [(false, LastBatch::Keep), (true, LastBatch::Drop)] {
            let order = Bucketed::new(&lengths, &[5, 20], 12).unwrap().shuffled(2).with_budget(70, drop).unwrap();
            let order = Arc::new(order);
            for (world, local) in [(1, 1), (3, 1), (4, 2), (4, 4)] {
                let schedule = |rank: usize| {
                    let rank = Rank { local_world_size: Some(local), ..Rank::new(rank, world).unwrap() };
                    Schedule::new(order.clone(), 12, last, rank).with_batched_order(Some(order.clone()))
                };
                for (rank, sample) in (0..world).flat_map(|rank| (0..60).map(move |sample| (rank, sample))) {
                    let own_schedule = schedule(rank);
                    let reads = |batch: u64| {
                        let mut entries = Vec::new();
                        own_schedule.rank().machine_ranks().any(|rank| {
                            schedule(rank).fill(1, batch, &mut entries);
                            entries.iter().any(|entry| entry.sample == sample)
                        })
                    };
                    let batches = own_schedule.num_batches(1);
                    for from in [0, batches / 2, batches] {
                        let scanned = (from..batches).find(|&batch| reads(batch));
                        let next = own_schedule.next_batch_of_sample(1, sample, from);
                        let scanned = scanned.map_or(Position::Absent, Position::At);
                        assert!(next == scanned || (world > 1 && next == Position::Unknown), "{next:?} {scanned:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_next_batch_of_a_sample_equals_a_scan() {
        let list: Vec<u64> = (0..23).map(|place| place % 19).collect();
        let order: Arc<dyn Sampler> = Arc::new(Subset::new(list, crate::sampler::Shuffled::new(23, 3)).unwrap());
        for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
            for (world, local) in [(1, 1), (4, 2), (4, 4), (6, 3), (5, 2), (9, 1)] {
                for batch in [9, 16, 40] {
                    let schedule = |rank: usize| {
                        let local_world_size = Some(local);
                        let rank = Rank { local_world_size, ..Rank::new(rank, world).unwrap() };
                        Schedule::new(order.clone(), batch, last, rank)
                    };
                    for rank in 0..world {
                        let machine = schedule(rank).rank().machine_ranks();
                        assert!(machine.contains(&rank) && machine.len() <= local);
                        for epoch in 0..2 {
                            let batches = schedule(0).num_batches(epoch);
                            let read: Vec<Vec<u64>> = (0..batches)
                                .map(|number| {
                                    let mut entries = Vec::new();
                                    let mut samples_of_epoch = Vec::new();
                                    for rank in machine.clone() {
                                        schedule(rank).fill(epoch, number, &mut entries);
                                        samples_of_epoch.extend(entries.iter().map(|entry| entry.sample));
                                    }
                                    samples_of_epoch
                                })
                                .collect();
                            for sample in 0..20 {
                                for from in 0..batches + 1 {
                                    let expected = (from..batches).find(|&b| read[b as usize].contains(&sample));
                                    let actual = schedule(rank).next_batch_of_sample(epoch, sample, from);
                                    let expected = expected.map_or(Position::Absent, Position::At);
                                    let context = format!("{last:?}, rank {rank} of {world}, batches of {batch}");
                                    assert_eq!(
                                        actual, expected,
                                        "{context}: sample {sample} of epoch {epoch} from {from}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    struct IgnoresFrom;

    impl Sampler for IgnoresFrom {
        fn len(&self, _epoch: u64) -> u64 {
            100
        }

        fn index(&self, _epoch: u64, position: u64) -> u64 {
            position
        }

        fn position(&self, _epoch: u64, sample: u64, _from: u64) -> Position {
            Position::At(sample)
        }
    }

    #[test]
    fn next_does_not_loop_if_position_ignores_from() {
        for last in [LastBatch::Keep, LastBatch::Pad] {
            let schedule = Schedule::new(Arc::new(IgnoresFrom), 30, last, Rank::new(0, 7).unwrap());
            assert_eq!(schedule.next_batch_of_sample(0, 3, 0), Position::At(0));
            for sample in [1, 70] {
                assert!(
                    !matches!(schedule.next_batch_of_sample(0, sample, 3), Position::At(0..3)),
                    "{last:?}: {sample}"
                );
            }
        }
    }

    fn shares(len: u64, batch: u64, last: LastBatch, rank: usize, world: usize) -> Vec<Vec<(u64, bool)>> {
        let rank = Rank::new(rank, world).unwrap();
        let schedule = Schedule::new(Arc::new(Sequential::new(len)), batch, last, rank);
        let mut entries = Vec::new();
        (0..schedule.num_batches(0))
            .map(|b| {
                schedule.fill(0, b, &mut entries);
                assert!(!entries.is_empty() && entries.len() as u64 <= schedule.rows());
                entries.iter().map(|p| (p.sample, p.valid)).collect()
            })
            .collect()
    }

    #[test]
    fn the_last_batch_is_kept_dropped_or_padded() {
        let batches = |len, last| shares(len, 4, last, 0, 1);
        let ids = |batch: &[(u64, bool)]| batch.iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(ids(&batches(6, LastBatch::Keep)[1]), [4, 5]);
        assert_eq!(batches(6, LastBatch::Drop).len(), 1);
        assert_eq!(batches(6, LastBatch::Pad)[1], [(4, true), (5, true), (0, false), (1, false)]);
        assert_eq!(batches(3, LastBatch::Pad)[0], [(0, true), (1, true), (2, true), (0, false)]);
        assert_eq!(batches(8, LastBatch::Pad), batches(8, LastBatch::Keep));
        assert!(batches(3, LastBatch::Drop).is_empty());
    }

    #[test]
    fn ranks_share_each_batch_as_evenly_as_possible() {
        // Ten samples, global batches of six, and four ranks: the ranks get 2, 2, 1 and 1 samples
        // of the first batch, and four samples remain.
        let shares_for = |last| [0, 1, 2, 3].map(|rank| shares(10, 6, last, rank, 4));
        let (yes, no) = (true, false);
        let full = [vec![(0, yes), (1, yes)], vec![(2, yes), (3, yes)], vec![(4, yes)], vec![(5, yes)]];
        assert_eq!(shares_for(LastBatch::Drop), full.each_ref().map(|batch| vec![batch.clone()]));
        for (rank, batch) in full.into_iter().enumerate() {
            assert_eq!(shares_for(LastBatch::Keep)[rank], [batch, vec![(6 + rank as u64, yes)]]);
        }
        let padded = shares_for(LastBatch::Pad);
        assert_eq!(padded[1][0], [(2, yes), (3, yes)]);
        assert_eq!([&padded[2][0], &padded[3][0]], [&[(4, yes), (0, no)], &[(5, yes), (1, no)]]);
        assert_eq!([&padded[0][1], &padded[3][1]], [&[(6, yes), (0, no)], &[(9, yes), (3, no)]]);
        // Only two samples remain for four ranks.
        assert_eq!(
            [0, 1, 2, 3].map(|rank| shares(8, 6, LastBatch::Keep, rank, 4)[1][0]),
            [(6, yes), (7, yes), (0, no), (1, no)]
        );
    }

    /// The number of ranks changes from batch to batch, as if nodes failed and came back.
    #[test]
    fn a_thousand_ranks_share_every_order() {
        let len = 50_000;
        let subset = Subset::new((0..len).step_by(3).collect::<Vec<_>>(), Shuffled::new(len.div_ceil(3), 5)).unwrap();
        let weights: Vec<f64> = (0..len).map(|i| (i % 7) as f64).collect();
        let orders: [(&str, Arc<dyn Sampler>); 7] = [
            ("sequential", Arc::new(Sequential::new(len))),
            ("shuffled", Arc::new(Shuffled::new(len, 7))),
            ("windowed", Arc::new(Windowed::new(len, 7, 1_000))),
            ("subset", Arc::new(subset)),
            ("repeated", Arc::new(Repeat::new(2, Shuffled::new(len / 2, 7)))),
            ("mixture", Arc::new(Mixture::new(&[(len / 2, 0.3), (len / 2, 0.7)], 7).unwrap())),
            ("weighted", Arc::new(Weighted::new(&weights, 7).unwrap())),
        ];
        let batch = 4_099; // not divisible by any number of ranks
        for (name, order) in orders {
            for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
                let mut seen = Vec::new();
                let single_rank = Schedule::new(order.clone(), batch, last, Rank::SINGLE);
                for number in 0..single_rank.num_batches(1) {
                    let world = [1024, 1000, 513, 1024][number as usize % 4];
                    let (mut samples_of_batch, mut entries) = (Vec::new(), Vec::new());
                    for rank in 0..world {
                        let rank = Schedule::new(order.clone(), batch, last, Rank::new(rank, world).unwrap());
                        assert_eq!(rank.num_batches(1), single_rank.num_batches(1));
                        rank.fill(1, number, &mut entries);
                        assert!(!entries.is_empty());
                        samples_of_batch.extend(entries.iter().filter(|entry| entry.valid).copied());
                    }
                    single_rank.fill(1, number, &mut entries);
                    entries.retain(|entry| entry.valid);
                    assert!(samples_of_batch == entries, "batch {number} of {name} on {world} ranks");
                    seen.append(&mut samples_of_batch);
                }
                let samples = single_rank.order().len(1);
                let expected = if last == LastBatch::Drop { samples / batch * batch } else { samples };
                assert_eq!(seen.len() as u64, expected, "{name}");
                if !matches!(name, "mixture" | "weighted") {
                    let entry_count = seen.len();
                    seen.sort_unstable_by_key(|entry| (entry.sample, entry.variant));
                    seen.dedup();
                    assert_eq!(seen.len(), entry_count, "{name} repeats samples");
                }
            }
        }
    }
}
