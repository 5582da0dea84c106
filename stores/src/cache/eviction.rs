//! Chooses which cached blocks to evict.
//!
//! If the loader's sample order is known, the block with the most distant next use is evicted
//! first. A new block is not admitted if it would be the first to be evicted. This is Belady's
//! algorithm ("A study of replacement algorithms for a virtual-storage computer", 1966) with
//! bypassing, which is optimal for blocks of equal size. To find a block's next use, the sample
//! order is inverted, so that it maps a sample to its position in the order. If the order is not
//! known, the least recently used block is evicted first.
//!
//! The blocks of each dataset are in ordered sets. Adding, removing or ranking a block therefore
//! takes logarithmic time, apart from the search for its next use.
//!
//! Next uses in different datasets are compared by their distance in epochs. Batch indices are not
//! comparable across datasets, but training and validation data both advance one epoch at a time.
//!
//! When a loader is opened, closed or moved back, the next uses of its dataset's blocks are
//! outdated. A cache may contain millions of blocks, and reads must not wait until all of them are
//! ranked, so the next uses are recomputed in small steps. Until then, no block is evicted, and a
//! block that would require an eviction is not admitted.

use std::collections::{BTreeSet, HashMap};

use warpfeed_sources::{BatchIndex, Lookahead, NextUse};

/// Identifies a block by a hash of its object, version and range.
pub(super) type BlockKey = u128;

/// Number of epochs to search for a sample's next use. With n machines, a sample returns to the
/// same machine after n epochs on average.
const SEARCHED_EPOCHS: u64 = 256;
/// Maximum number of outdated blocks that a call of `update_ranks` ranks again. With 128 machines,
/// this takes about 5 ms. In addition, a call ranks up to this many blocks per dataset again
/// because their next use has passed.
const MAX_RANKED_BLOCKS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owner {
    /// Hash of the dataset, or 0 if the order is not known.
    pub(super) dataset: u64,
    pub(super) sample: u64,
}

#[derive(Debug, Clone, Copy)]
struct BlockEntry {
    bytes: u64,
    owner: Owner,
    rank: Rank,
    /// The value of `Dataset::generation` when this block was last ranked.
    generation: u64,
}

#[derive(Debug, Clone, Copy)]
enum Rank {
    /// Sequence number of the last use, for a block whose next use is not known.
    LastUse(u64),
    /// Next use, as a number of epochs. See [`Loader::epoch_time`].
    NextUse(u64),
}

struct Loader {
    id: u64,
    order: Lookahead,
    position: BatchIndex,
}

impl Loader {
    /// Converts a batch index to a number of epochs in fixed point, with 32 fractional bits.
    fn epoch_time(&self, index: BatchIndex) -> u64 {
        let batches = self.order.batch_count(index.epoch).max(1);
        let fraction = (u128::from(index.batch.min(batches)) << 32) / u128::from(batches);
        (index.epoch.min(u64::from(u32::MAX) - 1) << 32) + fraction as u64
    }

    /// Returns the [`epoch_time`](Self::epoch_time) of the next use of `sample` at or after `from`.
    /// Returns `u64::MAX` if the search finds no use within [`SEARCHED_EPOCHS`], and `None` if the
    /// order cannot be inverted.
    fn next_use(&self, sample: u64, from: BatchIndex) -> Option<u64> {
        match self.order.next_use(sample, from, SEARCHED_EPOCHS) {
            NextUse::At(index) => Some(self.epoch_time(index)),
            NextUse::Later => Some(u64::MAX),
            NextUse::Unknown => None,
        }
    }

    fn distance(&self, time: u64) -> u64 {
        time.saturating_sub(self.epoch_time(self.position))
    }
}

#[derive(Default)]
struct Dataset {
    /// The loaders of a dataset. The most recent one determines the ranks.
    loaders: Vec<Loader>,
    /// Incremented whenever the ranks become outdated.
    generation: u64,
    /// Blocks with an unknown next use, ordered by their last use.
    by_last_use: BTreeSet<(u64, BlockKey)>,
    /// Blocks ordered by the time of their next use.
    by_next_use: BTreeSet<(u64, BlockKey)>,
    /// Queues of earlier generations, each ordered by its outdated ranks.
    outdated: Vec<BTreeSet<(u64, BlockKey)>>,
}

impl Dataset {
    fn invalidate_ranks(&mut self) {
        self.generation += 1;
        let outdated = [std::mem::take(&mut self.by_last_use), std::mem::take(&mut self.by_next_use)];
        self.outdated.extend(outdated.into_iter().filter(|blocks| !blocks.is_empty()));
    }

    fn is_empty(&self) -> bool {
        self.loaders.is_empty()
            && self.by_last_use.is_empty()
            && self.by_next_use.is_empty()
            && self.outdated.is_empty()
    }
}

/// Tracks the blocks of one cache tier, and chooses which to evict.
pub(super) struct Index {
    /// Maximum total size of the blocks, in bytes.
    max_bytes: u64,
    bytes: u64,
    entries: HashMap<BlockKey, BlockEntry>,
    datasets: HashMap<u64, Dataset>,
    use_count: u64,
    last_loader_id: u64,
}

impl Index {
    pub(super) fn new(max_bytes: u64) -> Self {
        Index {
            max_bytes,
            bytes: 0,
            entries: HashMap::new(),
            datasets: HashMap::new(),
            use_count: 0,
            last_loader_id: 0,
        }
    }

    pub(super) fn set_limit(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes;
    }

    /// Returns the blocks to evict so that the remaining blocks are within the limit. Returns
    /// `None` if blocks must be evicted but not all are ranked yet; call again to continue.
    pub(super) fn select_excess_blocks(&mut self) -> Option<Vec<BlockKey>> {
        let mut excess = self.bytes.saturating_sub(self.max_bytes);
        if excess > 0 && !self.update_ranks() {
            return None;
        }
        let evicted = self.eviction_order().take_while(|(key, _)| {
            let needed = excess > 0;
            excess = excess.saturating_sub(self.entries[key].bytes);
            needed
        });
        Some(evicted.map(|(key, _)| key).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.entries.contains_key(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockKey, u64, Owner)> {
        self.entries.iter().map(|(&key, entry)| (key, entry.bytes, entry.owner))
    }

    pub(super) fn add_loader(&mut self, dataset: u64, order: Lookahead) -> u64 {
        self.last_loader_id += 1;
        let id = self.last_loader_id;
        let loader = Loader { id, order, position: BatchIndex::default() };
        let dataset = self.datasets.entry(dataset).or_default();
        dataset.loaders.push(loader);
        dataset.invalidate_ranks();
        id
    }

    pub(super) fn remove_loader(&mut self, dataset: u64, id: u64) {
        if let Some(dataset) = self.datasets.get_mut(&dataset) {
            dataset.loaders.retain(|loader| loader.id != id);
            dataset.invalidate_ranks();
        }
    }

    pub(super) fn set_position(&mut self, dataset: u64, id: u64, now: BatchIndex) {
        let Some(dataset) = self.datasets.get_mut(&dataset) else { return };
        let Some(loader) = dataset.loaders.iter_mut().find(|loader| loader.id == id) else { return };
        // Normally, a block is ranked again when its next use has passed. After a step back,
        // earlier uses are in the future again, so all ranks are outdated.
        let is_step_back = now < loader.position;
        loader.position = now;
        if is_step_back {
            dataset.invalidate_ranks();
        }
    }

    /// Ranks a limited number of blocks again. Returns whether all outdated blocks have been
    /// ranked.
    fn update_ranks(&mut self) -> bool {
        let mut passed_keys = Vec::new();
        for dataset in self.datasets.values() {
            let Some(loader) = dataset.loaders.last() else { continue };
            let now = loader.epoch_time(loader.position);
            // Any further blocks with a passed next use have distance 0, so they are evicted last.
            passed_keys.extend(
                dataset
                    .by_next_use
                    .iter()
                    .take_while(|(next, _)| *next < now)
                    .take(MAX_RANKED_BLOCKS)
                    .map(|(_, key)| *key),
            );
        }
        for key in passed_keys {
            self.rank(key);
        }
        for _ in 0..MAX_RANKED_BLOCKS {
            let Some(key) =
                self.datasets.values().find_map(|dataset| dataset.outdated.last()?.last().map(|(_, key)| *key))
            else {
                self.datasets.retain(|_, dataset| !dataset.is_empty());
                return true;
            };
            self.rank(key);
        }
        self.datasets.values().all(|dataset| dataset.outdated.is_empty())
    }

    fn rank(&mut self, key: BlockKey) {
        let Some(mut entry) = self.remove_entry(key) else { return };
        let loader = self.datasets.get(&entry.owner.dataset).and_then(|dataset| dataset.loaders.last());
        let next = loader.and_then(|loader| loader.next_use(entry.owner.sample, loader.position));
        entry.rank = match (next, entry.rank) {
            (Some(next), _) => Rank::NextUse(next),
            (None, Rank::LastUse(used)) => Rank::LastUse(used),
            (None, Rank::NextUse(_)) => Rank::LastUse(self.tick()),
        };
        self.insert_entry(key, entry);
    }

    fn tick(&mut self) -> u64 {
        self.use_count += 1;
        self.use_count
    }

    fn insert_entry(&mut self, key: BlockKey, mut entry: BlockEntry) {
        let dataset = self.datasets.entry(entry.owner.dataset).or_default();
        entry.generation = dataset.generation;
        match entry.rank {
            Rank::LastUse(used) => dataset.by_last_use.insert((used, key)),
            Rank::NextUse(next) => dataset.by_next_use.insert((next, key)),
        };
        self.bytes += entry.bytes;
        self.entries.insert(key, entry);
    }

    fn remove_entry(&mut self, key: BlockKey) -> Option<BlockEntry> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes;
        let dataset = self.datasets.get_mut(&entry.owner.dataset).expect("a dataset exists while it has blocks");
        match entry.rank {
            Rank::LastUse(rank) | Rank::NextUse(rank) if entry.generation != dataset.generation => {
                let _ = dataset.outdated.iter_mut().any(|blocks| blocks.remove(&(rank, key)));
                dataset.outdated.retain(|blocks| !blocks.is_empty());
            }
            Rank::LastUse(used) => _ = dataset.by_last_use.remove(&(used, key)),
            Rank::NextUse(next) => _ = dataset.by_next_use.remove(&(next, key)),
        }
        Some(entry)
    }

    pub(super) fn mark_used(&mut self, key: BlockKey) {
        if let Some(BlockEntry { rank: Rank::LastUse(_), .. }) = self.entries.get(&key)
            && let Some(entry) = self.remove_entry(key)
        {
            let (is_outdated, rank) =
                (self.datasets[&entry.owner.dataset].generation != entry.generation, Rank::LastUse(self.tick()));
            self.insert_entry(key, BlockEntry { rank, ..entry });
            if is_outdated {
                self.rank(key);
            }
        }
    }

    /// Adds a block without checking the limit.
    pub(super) fn add(&mut self, key: BlockKey, bytes: u64, owner: Owner) {
        self.remove_entry(key);
        let rank = Rank::LastUse(self.tick());
        self.insert_entry(key, BlockEntry { bytes, owner, rank, generation: 0 });
        self.rank(key);
    }

    pub(super) fn remove(&mut self, key: BlockKey) {
        self.remove_entry(key);
    }

    /// Returns the blocks to evict so that a new block of `bytes` bytes fits. Returns `None` if the
    /// new block is larger than the limit, if it would be evicted before a returned block, or if
    /// blocks must be evicted but not all are ranked yet. The search for the new block's next use
    /// starts at `earliest_use`, or at the loader's position if `earliest_use` is `None`. Changes
    /// nothing but ranks. The caller must remove the returned blocks and add the new one.
    pub(super) fn plan_admission(
        &mut self,
        bytes: u64,
        owner: Owner,
        earliest_use: Option<BatchIndex>,
    ) -> Option<Vec<BlockKey>> {
        if bytes > self.max_bytes {
            return None;
        }
        let mut excess = (self.bytes + bytes).saturating_sub(self.max_bytes);
        if excess == 0 {
            return Some(Vec::new());
        }
        if !self.update_ranks() {
            return None;
        }
        let loader = self.datasets.get(&owner.dataset).and_then(|dataset| dataset.loaders.last());
        let next_time = loader
            .and_then(|loader| Some((loader, loader.next_use(owner.sample, earliest_use.unwrap_or(loader.position))?)));
        let distance = next_time.map(|(loader, next_time)| match next_time {
            u64::MAX => u64::MAX,
            next_time => loader.distance(next_time),
        });
        let mut evicted_keys = Vec::new();
        let mut order = self.eviction_order();
        while excess > 0 {
            let (key, farthest) = order.next()?;
            if farthest.is_some_and(|farthest| distance.is_none_or(|distance| farthest <= distance)) {
                return None;
            }
            excess = excess.saturating_sub(self.entries[&key].bytes);
            evicted_keys.push(key);
        }
        Some(evicted_keys)
    }

    /// Yields the blocks in eviction order, each with the distance of its next use. Blocks with an
    /// unknown next use come first, starting with the least recently used one. The blocks with a
    /// known next use follow, starting with the most distant use. Blocks with outdated ranks are
    /// omitted.
    fn eviction_order(&self) -> impl Iterator<Item = (BlockKey, Option<u64>)> {
        let mut used: Vec<_> = self.datasets.values().map(|dataset| dataset.by_last_use.iter().peekable()).collect();
        let mut queues: Vec<_> = self
            .datasets
            .values()
            .filter_map(|dataset| Some((dataset.loaders.last()?, dataset.by_next_use.iter().rev().peekable())))
            .collect();
        std::iter::from_fn(move || {
            let oldest = (0..used.len()).filter_map(|i| Some((**used[i].peek()?, i))).min();
            if let Some(((_, key), i)) = oldest {
                used[i].next();
                return Some((key, None));
            }
            let last = |(loader, queue): &mut (&Loader, std::iter::Peekable<_>)| {
                let &&(next_time, key): &&(u64, BlockKey) = queue.peek()?;
                Some((if next_time == u64::MAX { u64::MAX } else { loader.distance(next_time) }, key))
            };
            let distances = queues.iter_mut().enumerate().filter_map(|(i, queue)| Some((last(queue)?, i)));
            let ((farthest, key), i) = distances.max()?;
            queues[i].1.next();
            Some((key, Some(farthest)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use warpfeed::sampler::{Position, Sampler, Shuffled};

    use super::*;

    /// Returns the sample order of machine `node`, and the shuffle of all samples. Each machine
    /// reads batches of `batch` samples.
    fn order(len: u64, seed: u64, node: u64, nodes: u64, batch: u64) -> (Lookahead, Arc<Shuffled>) {
        let order = Arc::new(Shuffled::new(len, seed));
        let (global, inner) = (nodes * batch, order.clone());
        let samples = move |start: BatchIndex| {
            let first = start.batch * global + node * batch;
            Some((first..first + batch).map(|position| inner.index(start.epoch, position)).collect())
        };
        let inner = order.clone();
        let next = move |epoch, sample, from| match inner.position(epoch, sample, from * global) {
            Position::At(position) if position % global / batch == node => Position::At(position / global),
            _ => Position::Absent,
        };
        (Lookahead::new(0, move |_| len / global, samples).with_next(next), order)
    }

    /// Returns the hits of an index with `max_bytes` blocks, and of the optimal policy, in the
    /// epochs `from..epochs`.
    fn hits(order: &Lookahead, max_bytes: usize, from: u64, epochs: u64) -> (u64, u64) {
        let batches: Vec<(BatchIndex, Vec<u64>)> =
            order.batches_from(BatchIndex::default()).take_while(|(batch, _)| batch.epoch < epochs + 40).collect();
        let reads: Vec<(BatchIndex, u64)> =
            batches.iter().flat_map(|(batch, samples)| samples.iter().map(|&s| (*batch, s))).collect();
        let mut next = vec![usize::MAX; reads.len()];
        let mut last = HashMap::new();
        for (i, (_, sample)) in reads.iter().enumerate().rev() {
            next[i] = last.insert(*sample, i).unwrap_or(usize::MAX);
        }
        let mut index = Index::new(max_bytes as u64);
        let id = index.add_loader(7, order.clone());
        let (mut best, mut queue) = (HashMap::<u64, usize>::new(), BTreeSet::new());
        let (mut hits, mut optimum) = (0, 0);
        for (i, &(batch, sample)) in reads.iter().enumerate().take_while(|(_, (batch, _))| batch.epoch < epochs) {
            index.set_position(7, id, batch);
            let counts = u64::from(batch.epoch >= from);
            if index.contains(BlockKey::from(sample)) {
                hits += counts;
            } else {
                let owner = Owner { dataset: 7, sample };
                if let Some(evicted) = index.plan_admission(1, owner, Some(order.next_batch(batch))) {
                    evicted.into_iter().for_each(|key| index.remove(key));
                    index.add(BlockKey::from(sample), 1, owner);
                }
            }
            if let Some(old) = best.insert(sample, next[i]) {
                optimum += counts;
                queue.remove(&(old, sample));
            }
            queue.insert((next[i], sample));
            if queue.len() > max_bytes {
                let (_, farthest) = queue.pop_last().unwrap();
                best.remove(&farthest);
            }
            assert!(index.len() <= max_bytes);
        }
        (hits, optimum)
    }

    #[test]
    fn eviction_is_nearly_optimal_on_one_node_and_on_eight_nodes() {
        for (nodes, len) in [(1, 600), (8, 1600)] {
            let (order, _) = order(len, 3, 0, nodes, 10);
            let (from, epochs) = (4 * nodes, 4 * nodes + 24);
            for max_bytes in [len / 20, len / 3] {
                let (hits, optimum) = hits(&order, max_bytes as usize, from, epochs);
                let reads = (epochs - from) * len / nodes;
                let (hits, optimum) = (hits as f64 / reads as f64, optimum as f64 / reads as f64);
                assert!(
                    (hits - optimum).abs() < 0.01,
                    "{nodes} nodes, {max_bytes} of {len}: {hits:.3}, optimum {optimum:.3}"
                );
                assert!(hits > max_bytes as f64 / len as f64 - 0.01);
            }
        }
    }

    #[test]
    fn without_an_order_the_least_recently_used_block_is_evicted() {
        let mut index = Index::new(30);
        let owner = Owner::default();
        for key in 0..3 {
            assert_eq!(index.plan_admission(10, owner, None), Some(vec![]));
            index.add(key, 10, owner);
        }
        index.mark_used(0);
        assert_eq!(index.plan_admission(10, owner, None), Some(vec![1]));
        assert_eq!(index.plan_admission(11, owner, None), Some(vec![1, 2]));
        assert_eq!(index.plan_admission(30, owner, None), Some(vec![1, 2, 0]));
        assert_eq!(index.plan_admission(31, owner, None), None, "the block is larger than the cache");
        index.remove(1);
        assert_eq!(index.plan_admission(10, owner, None), Some(vec![]));
        assert_eq!(index.iter().count(), 2);
    }

    #[test]
    fn a_lowered_limit_evicts_the_most_distant_next_uses() {
        let (len, kept) = (2_000, 500);
        let (loader, order) = order(len, 3, 0, 1, 1);
        let key = |position: u64| BlockKey::from(order.index(0, position));
        let mut index = Index::new(len);
        let without_order = BlockKey::MAX;
        for position in 0..len - 1 {
            index.add(key(position), 1, Owner { dataset: 7, sample: order.index(0, position) });
        }
        index.add(without_order, 1, Owner::default());
        index.add_loader(7, loader);
        assert_eq!(index.select_excess_blocks(), Some(vec![]), "no block must be evicted");
        index.set_limit(kept);
        let mut steps = 1;
        let evicted = loop {
            match index.select_excess_blocks() {
                Some(evicted) => break evicted,
                None => steps += 1,
            }
        };
        assert_eq!(steps, len as usize / MAX_RANKED_BLOCKS + 1);
        let distant = (kept..len - 1).rev().map(key);
        assert_eq!(evicted, std::iter::once(without_order).chain(distant).collect::<Vec<_>>());
    }

    #[test]
    fn datasets_without_a_loader_are_evicted_first() {
        let (train, _) = order(100, 1, 0, 1, 1);
        // The only validation sample is in the middle of each epoch.
        let middle = |_, _, from: u64| if from <= 1 { Position::At(1) } else { Position::Absent };
        let validation = Lookahead::new(0, |_| 2, |_| Some(vec![0])).with_next(middle);
        let mut index = Index::new(2);
        let old = Owner { dataset: 5, sample: 9 };
        index.add(1, 1, old);
        let val = Owner { dataset: 6, sample: 0 };
        index.add(2, 1, val);
        let loaders = (index.add_loader(7, train.clone()), index.add_loader(6, validation));
        let order = |position| Shuffled::new(100, 1).index(0, position);
        let soon = Owner { dataset: 7, sample: order(20) };
        let late = Owner { dataset: 7, sample: order(80) };
        assert_eq!(index.plan_admission(1, soon, None), Some(vec![1]));
        index.remove(1);
        index.add(3, 1, late);
        assert_eq!(
            index.plan_admission(1, soon, None),
            Some(vec![3]),
            "its next use is 0.8 epochs ahead, the other block's 0.5"
        );
        index.remove(3);
        index.add(3, 1, soon);
        assert_eq!(index.plan_admission(1, late, None), None, "its next use is after those of both blocks");
        index.set_position(7, loaders.0, BatchIndex { epoch: 0, batch: 21 });
        let again = Owner { dataset: 7, sample: order(60) };
        assert_eq!(index.plan_admission(1, again, None), Some(vec![3]), "the next use of block 3 has passed");
        index.remove_loader(6, loaders.1);
        assert_eq!(index.plan_admission(1, late, None), Some(vec![2]), "no loader reads the dataset anymore");
    }

    #[test]
    fn nothing_is_evicted_before_all_next_uses_are_known() {
        let (len, searched) = (2_000, Arc::new(AtomicUsize::new(0)));
        let (_, order) = order(len, 3, 0, 1, 1);
        let (inner, inverse, count) = (order.clone(), order.clone(), searched.clone());
        let samples = move |batch: BatchIndex| Some(vec![inner.index(batch.epoch, batch.batch)]);
        let next = move |epoch, sample, batch| {
            count.fetch_add(1, Ordering::Relaxed);
            inverse.position(epoch, sample, batch)
        };
        let loader = Lookahead::new(0, move |_| len, samples).with_next(next);
        // An earlier run has left the second half of the epoch in the cache.
        let half = len / 2;
        let key = |position: u64| BlockKey::from(order.index(0, position));
        let mut index = Index::new(half);
        for position in half..len {
            index.add(key(position), 1, Owner { dataset: 7, sample: order.index(0, position) });
        }
        let id = index.add_loader(7, loader.clone());
        let first = Owner { dataset: 7, sample: order.index(0, 0) };
        let rank_all = |index: &mut Index, expected: Option<Vec<BlockKey>>| {
            let mut steps = 0;
            loop {
                let before = searched.load(Ordering::Relaxed);
                let admitted = index.plan_admission(1, first, None);
                let count = searched.load(Ordering::Relaxed) - before;
                // Ranking a block takes at most two searches, in this epoch and in the next.
                assert!(count <= 2 * (MAX_RANKED_BLOCKS + 1), "{count} searches in one step");
                steps += 1;
                if steps == half as usize / MAX_RANKED_BLOCKS + 1 || admitted.is_some() {
                    assert_eq!(admitted, expected, "after {steps} steps");
                    return steps;
                }
            }
        };
        assert_eq!(rank_all(&mut index, Some(vec![key(len - 1)])), 4, "the block that is read last is evicted");
        index.set_position(7, id, BatchIndex { epoch: 1, batch: 0 });
        index.set_position(7, id, BatchIndex::default());
        assert_eq!(rank_all(&mut index, Some(vec![key(len - 1)])), 4);
        // A block that is used or removed while blocks are being ranked again may be in the old or
        // in the new queue.
        index.remove_loader(7, id);
        index.mark_used(key(half));
        index.remove(key(half + 1));
        assert_eq!(index.len() as u64, half - 1);
        assert_eq!(index.plan_admission(1, first, None), Some(vec![]), "no block must be evicted");
        index.add(key(0), 1, first);
        index.add_loader(7, loader);
        rank_all(&mut index, Some(vec![key(len - 1)]));
        assert_eq!(index.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), half);
    }
}
