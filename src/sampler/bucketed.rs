//! Groups samples of similar lengths into batches.
//!
//! The samples are sorted by bucket once. Keyed permutations shuffle the samples of each bucket,
//! and the full batches or, with a budget, all batches. The sample at a position is found in time
//! logarithmic in the number of buckets.

use std::ops::Range;
use std::sync::Arc;

use super::batched::BatchedOrder;
use super::permutation::{Permutation, epoch_key};
use super::rng::mix;
use super::{Position, Sampler};
use crate::error::{Error, Result};

/// A sampler that groups samples of similar lengths. This reduces padding if rows are padded to the
/// longest sample of their batch.
///
/// A bucket contains the samples with lengths in a certain range. The concatenation of all buckets
/// is divided into batches, so a batch contains samples from several buckets only at the boundaries
/// between them. If the sampler shuffles, each epoch first shuffles the samples within each bucket,
/// and then the batches. An incomplete batch contains the longest samples and is always last. With
/// [`LastBatch::Drop`](super::LastBatch::Drop), each shuffled epoch drops a different selection of
/// the longest samples. If a loader sets a [budget](crate::Loader::budget), a batch contains
/// samples of only one bucket, and the last batch of each bucket may be incomplete.
///
/// The sampler needs 8 bytes of memory per sample.
///
/// ```
/// use warpfeed::sampler::{Bucketed, Sampler};
///
/// let lengths = [3, 90, 5, 80, 4, 2];
/// let order = Bucketed::new(&lengths, &[10], 2)?.shuffled(1);
/// let batches = [0, 2, 4].map(|first| [0, 1].map(|offset| lengths[order.index(0, first + offset) as usize]));
/// assert_eq!(batches.iter().filter(|batch| batch.iter().all(|length| *length <= 10)).count(), 2);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Bucketed {
    /// Sorted by bucket and then by index.
    samples: Arc<[u32]>,
    /// For each sample, its position in `samples`.
    positions: Arc<[u32]>,
    /// End of each bucket in `samples`. Empty buckets are omitted.
    bucket_ends: Arc<[u64]>,
    /// For each bucket, how much a sample counts toward the budget. This is the bound of the
    /// bucket, the maximum length for samples beyond the last bound, or the number of pixels for
    /// image sizes.
    costs: Arc<[u32]>,
    /// For each bucket, the index of its image size, if batches have different image sizes.
    size_indices: Option<Arc<[usize]>>,
    batch_size: u64,
    budget: Option<Budget>,
    seed: Option<u64>,
}

#[derive(Debug, Clone)]
struct Budget {
    max_cost: u64,
    /// For each bucket, the number of samples in a full batch.
    batch_sizes: Arc<[u64]>,
    sample_count: u64,
    /// For each bucket, one past its last batch, where batches are numbered bucket by bucket.
    batch_ends: Arc<[u64]>,
}

impl Bucketed {
    /// Creates the sampler for samples with these `lengths` and a global batch size of `batch`.
    /// Each bound is the maximum length in its bucket. One more bucket contains the samples that
    /// are longer than the last bound.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the bounds are not in increasing order,
    /// if `batch` is 0, or if the number of samples is 0 or at least 2^32.
    pub fn new(lengths: &[u32], bounds: &[u32], batch: u64) -> Result<Self> {
        if let Some(index) = bounds.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(Error::config(format!(
                "buckets: bound {} follows bound {}; bounds must increase",
                bounds[index + 1],
                bounds[index]
            )));
        }
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let bucket = |sample: &u32| bounds.partition_point(|bound| *bound < lengths[*sample as usize]);
        let cost = |bucket: usize| bounds.get(bucket).copied().unwrap_or(longest);
        Self::from_buckets(lengths.len(), bucket, cost, batch)
    }

    /// Groups samples by image size. `buckets` contains the bucket of each sample, and `areas` the
    /// number of pixels in the image size of each bucket. The sampler needs a
    /// [budget](Bucketed::with_budget), so that a batch contains samples of only one bucket.
    pub(crate) fn by_size(buckets: &[u16], areas: &[u32], batch: u64) -> Result<Self> {
        let bucket = |sample: &u32| usize::from(buckets[*sample as usize]);
        let grouped = Self::from_buckets(buckets.len(), bucket, |bucket| areas[bucket], batch)?;
        let size_indices = grouped.bucket_ends.iter().map(|end| bucket(&grouped.samples[*end as usize - 1])).collect();
        Ok(Bucketed { size_indices: Some(size_indices), ..grouped })
    }

    /// Sorts `len` samples by bucket. `bucket` returns the bucket of a sample, and `cost` the cost
    /// of a sample of a bucket.
    fn from_buckets(
        len: usize,
        bucket: impl Fn(&u32) -> usize,
        cost: impl Fn(usize) -> u32,
        batch: u64,
    ) -> Result<Self> {
        if len == 0 || len > u32::MAX as usize || batch == 0 {
            return Err(Error::config(format!(
                "buckets: {len} samples in batches of {batch}: both numbers must be at least 1, with at most {} samples",
                u32::MAX
            )));
        }
        let mut samples: Vec<u32> = (0..len as u32).collect();
        samples.sort_by_cached_key(&bucket);
        let mut positions = vec![0; samples.len()];
        samples.iter().zip(0..).for_each(|(sample, sorted_position)| positions[*sample as usize] = sorted_position);
        let mut end = 0;
        let bucket_ends = samples.chunk_by(|sample, next| bucket(sample) == bucket(next)).map(|bucket| {
            end += bucket.len() as u64;
            end
        });
        let bucket_ends: Arc<[u64]> = bucket_ends.collect();
        let costs = bucket_ends.iter().map(|end| cost(bucket(&samples[*end as usize - 1]))).collect();
        let (samples, positions) = (samples.into(), positions.into());
        Ok(Bucketed {
            samples,
            positions,
            bucket_ends,
            costs,
            size_indices: None,
            batch_size: batch,
            budget: None,
            seed: None,
        })
    }

    /// Limits the cost of a global batch, which is its number of samples times the cost of a sample
    /// of their bucket. This cost is the bound of the bucket, the length of the longest sample
    /// beyond the last bound, or the number of pixels. A batch contains as many samples of one
    /// bucket as fit into `budget`, up to the global batch size. The last batch of each bucket may
    /// have fewer samples, unless `drops_last` is true. Fails if the budget is too small for a
    /// single sample.
    ///
    /// Only a loader can set a budget ([`Loader::budget`](crate::Loader::budget)), because the
    /// sampler in [`Loader::sampler`](crate::Loader::sampler) cannot set the number of samples in a
    /// batch.
    pub(crate) fn with_budget(mut self, budget: u64, drops_last: bool) -> Result<Self> {
        let max_cost = self.costs.iter().copied().max().unwrap_or(0);
        if budget < u64::from(max_cost.max(1)) {
            return Err(Error::config(format!(
                "budget({budget}) is too small, because one sample of the longest bucket costs {max_cost}: expected at \
                 least {}",
                max_cost.max(1)
            )));
        }
        let batch_sizes: Arc<[u64]> =
            self.costs.iter().map(|cost| (budget / u64::from(*cost).max(1)).min(self.batch_size)).collect();
        let (mut start, mut batch_end, mut sample_count) = (0, 0, 0);
        let batch_ends = self.bucket_ends.iter().zip(batch_sizes.iter()).map(|(end, batch_size)| {
            let samples = end - std::mem::replace(&mut start, *end);
            batch_end += if drops_last { samples / batch_size } else { samples.div_ceil(*batch_size) };
            sample_count += if drops_last { samples - samples % batch_size } else { samples };
            batch_end
        });
        let batch_ends = batch_ends.collect();
        self.budget = Some(Budget { max_cost: budget, batch_sizes, sample_count, batch_ends });
        Ok(self)
    }

    /// Returns the division into batches, if there is a budget. Positions stay grouped by bucket
    /// although the batches are shuffled, so they are not in the order of the batches.
    pub(crate) fn batched_order(self: &Arc<Self>) -> Option<Arc<dyn BatchedOrder>> {
        self.budget.as_ref().map(|_| self.clone() as Arc<dyn BatchedOrder>)
    }

    fn own_budget(&self) -> &Budget {
        self.budget.as_ref().expect("only an order with a budget determines the batches")
    }

    fn batch_permutation(&self) -> Permutation {
        Permutation::new(self.own_budget().batch_ends.last().copied().unwrap_or(0))
    }

    fn unshuffled_batch(&self, epoch: u64, batch: u64) -> u64 {
        self.seed.map_or(batch, |seed| self.batch_permutation().apply(epoch_key(seed, epoch), batch))
    }

    fn unshuffled_positions(&self, batch: u64) -> Range<u64> {
        let Budget { batch_sizes, batch_ends, .. } = self.own_budget();
        let bucket = batch_ends.partition_point(|end| *end <= batch);
        let end_before = |ends: &[u64]| bucket.checked_sub(1).map_or(0, |previous| ends[previous]);
        let start = end_before(&self.bucket_ends) + (batch - end_before(batch_ends)) * batch_sizes[bucket];
        start..self.bucket_ends[bucket].min(start + batch_sizes[bucket])
    }

    /// Shuffles the order with seed `seed`, differently in each epoch. By default, the buckets are
    /// in order of increasing length, and the samples of a bucket are in the order of the source.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Returns the start, the permutation and the key of the bucket that contains the position
    /// `sorted_position` in `samples`.
    fn bucket_shuffle(&self, key: u64, sorted_position: u64) -> (u64, Permutation, u64) {
        let bucket = self.bucket_ends.partition_point(|end| *end <= sorted_position);
        let start = bucket.checked_sub(1).map_or(0, |previous| self.bucket_ends[previous]);
        (start, Permutation::new(self.bucket_ends[bucket] - start), mix(key ^ mix(bucket as u64 + 1)))
    }

    fn full_batch_permutation(&self) -> Permutation {
        Permutation::new(self.samples.len() as u64 / self.batch_size)
    }
}

impl BatchedOrder for Bucketed {
    fn num_batches(&self, _epoch: u64) -> u64 {
        self.batch_permutation().len()
    }

    fn sample_count(&self, _epoch: u64) -> u64 {
        self.own_budget().sample_count
    }

    fn max_batch_size(&self) -> u64 {
        self.own_budget().batch_sizes.iter().copied().max().unwrap_or(0)
    }

    fn positions(&self, epoch: u64, batch: u64) -> Range<u64> {
        self.unshuffled_positions(self.unshuffled_batch(epoch, batch))
    }

    fn batch_of(&self, epoch: u64, position: u64) -> Option<u64> {
        let Budget { batch_sizes, batch_ends, .. } = self.own_budget();
        let bucket = self.bucket_ends.partition_point(|end| *end <= position);
        let end_before = |ends: &[u64]| bucket.checked_sub(1).map_or(0, |previous| ends[previous]);
        let batch = end_before(batch_ends) + (position - end_before(&self.bucket_ends)) / batch_sizes[bucket];
        let invert_shuffle =
            || self.seed.map_or(batch, |seed| self.batch_permutation().invert(epoch_key(seed, epoch), batch));
        (batch < batch_ends[bucket]).then(invert_shuffle)
    }

    fn min_position(&self, _batch: u64) -> u64 {
        0
    }

    fn budget(&self) -> Option<u64> {
        Some(self.own_budget().max_cost)
    }

    fn image_size_index(&self, epoch: u64, batch: u64) -> Option<usize> {
        let batch = self.unshuffled_batch(epoch, batch);
        Some(self.size_indices.as_ref()?[self.own_budget().batch_ends.partition_point(|end| *end <= batch)])
    }

    fn max_batch_size_of(&self, size_index: usize) -> Option<u64> {
        let bucket = self.size_indices.as_ref()?.iter().position(|bucket_size_index| *bucket_size_index == size_index);
        Some(bucket.map_or(1, |bucket| self.own_budget().batch_sizes[bucket]))
    }
}

impl Sampler for Bucketed {
    fn len(&self, _epoch: u64) -> u64 {
        self.samples.len() as u64
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        let Some(seed) = self.seed else { return self.samples[position as usize].into() };
        let (key, batches, batch) = (epoch_key(seed, epoch), self.full_batch_permutation(), position / self.batch_size);
        let batch = if batch < batches.len() { batches.apply(key, batch) } else { batch };
        let sorted_position =
            if self.budget.is_some() { position } else { batch * self.batch_size + position % self.batch_size };
        let (start, shuffle, key) = self.bucket_shuffle(key, sorted_position);
        self.samples[(start + shuffle.apply(key, sorted_position - start)) as usize].into()
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        let Some(sorted_position) = usize::try_from(index).ok().and_then(|index| self.positions.get(index)) else {
            return Position::Absent;
        };
        let sorted_position = u64::from(*sorted_position);
        let Some(seed) = self.seed else { return Position::not_before(sorted_position, from) };
        let (key, batches) = (epoch_key(seed, epoch), self.full_batch_permutation());
        let (start, shuffle, bucket_key) = self.bucket_shuffle(key, sorted_position);
        let sorted_position = start + shuffle.invert(bucket_key, sorted_position - start);
        if self.budget.is_some() {
            return Position::not_before(sorted_position, from);
        }
        let batch = sorted_position / self.batch_size;
        let batch = if batch < batches.len() { batches.invert(key, batch) } else { batch };
        Position::not_before(batch * self.batch_size + sorted_position % self.batch_size, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    fn lengths(count: u64, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed, 1, 1);
        (0..count).map(|_| rng.below(300) as u32).collect()
    }

    fn bucket_of(length: u32, bounds: &[u32]) -> usize {
        bounds.iter().position(|bound| length <= *bound).unwrap_or(bounds.len())
    }

    #[test]
    fn only_batches_at_bucket_boundaries_mix_two_buckets() {
        for (count, batch) in [(1, 1), (1, 8), (7, 8), (64, 8), (1000, 7), (1000, 32), (333, 1)] {
            for bounds in [&[][..], &[100], &[0, 10, 20, 150], &[50, 51, 299], &[1000]] {
                let lengths = lengths(count, count + batch);
                let order = Bucketed::new(&lengths, bounds, batch).unwrap();
                let mut nonempty_buckets: Vec<usize> =
                    lengths.iter().map(|length| bucket_of(*length, bounds)).collect();
                nonempty_buckets.sort_unstable();
                nonempty_buckets.dedup();
                for (order, epoch) in [(order.clone(), 0), (order.clone().shuffled(3), 0), (order.shuffled(3), 5)] {
                    let order_samples: Vec<u64> = (0..count).map(|position| order.index(epoch, position)).collect();
                    let mut sorted = order_samples.clone();
                    sorted.sort_unstable();
                    assert!(sorted.into_iter().eq(0..count));
                    let mixed = order_samples.chunks(batch as usize).filter(|batch| {
                        let buckets = || batch.iter().map(|sample| bucket_of(lengths[*sample as usize], bounds));
                        buckets().min() != buckets().max()
                    });
                    assert!(mixed.count() < nonempty_buckets.len(), "{count} samples, batches of {batch}, {bounds:?}");
                    for (sample, from) in (0..count + 2).flat_map(|sample| [0, count / 2].map(|from| (sample, from))) {
                        let next = (from..count).find(|&position| order_samples[position as usize] == sample);
                        let next = next.map_or(Position::Absent, Position::At);
                        assert_eq!(order.position(epoch, sample, from), next);
                    }
                }
            }
        }
    }

    #[test]
    fn epochs_shuffle_the_batches_and_the_samples_within_buckets() {
        let lengths = lengths(4000, 9);
        let order = Bucketed::new(&lengths, &[100, 200], 16).unwrap().shuffled(4);
        let epoch = |epoch| (0..4000).map(|position| order.index(epoch, position)).collect::<Vec<_>>();
        let (one, two) = (epoch(0), epoch(1));
        assert_eq!(one, epoch(0));
        let same = one.iter().zip(&two).filter(|(one, two)| one == two).count();
        assert!(same < 20, "{same} of 4000 samples at the same position");
        let bucket = |samples: &[u64]| bucket_of(lengths[samples[0] as usize], &[100, 200]);
        let changes =
            one.chunks(16).zip(one.chunks(16).skip(1)).filter(|(one, two)| bucket(one) != bucket(two)).count();
        assert!(changes > 100, "only {changes} of 249 neighboring batches have different buckets");
        let batch_of_sample_7 = |epoch: &[u64]| {
            let batch_start = epoch.iter().position(|sample| *sample == 7).unwrap() / 16 * 16;
            let mut batch = epoch[batch_start..batch_start + 16].to_vec();
            batch.sort_unstable();
            batch
        };
        assert_ne!(batch_of_sample_7(&one), batch_of_sample_7(&two));
    }

    #[test]
    fn the_batch_of_a_position_contains_it() {
        for (count, batch, budget, drop) in [(1, 1, 300, false), (333, 9, 900, false), (500, 64, 2000, true)] {
            let lengths = lengths(count, 5);
            let order = Bucketed::new(&lengths, &[50, 51, 120], batch).unwrap();
            let unshuffled = order.with_budget(budget, drop).unwrap();
            for (order, epoch) in
                [(unshuffled.clone(), 0), (unshuffled.clone().shuffled(3), 0), (unshuffled.shuffled(3), 4)]
            {
                let mut batches = vec![None; count as usize];
                for batch in 0..order.num_batches(epoch) {
                    for position in order.positions(epoch, batch) {
                        assert_eq!(batches[position as usize].replace(batch), None);
                    }
                }
                assert_eq!(batches.iter().flatten().count() as u64, order.sample_count(epoch));
                for (position, batch) in (0..count).zip(batches) {
                    assert_eq!(order.batch_of(epoch, position), batch);
                    assert_eq!(order.position(epoch, order.index(epoch, position), 0), Position::At(position));
                }
            }
        }
    }

    #[test]
    fn bad_bounds_and_empty_sources_fail() {
        for (lengths, bounds, batch, text) in [
            (&[1, 2][..], &[5, 5][..], 2, "bound 5 follows bound 5"),
            (&[1, 2], &[9, 5], 2, "bound 5 follows bound 9"),
            (&[], &[5], 2, "0 samples in batches of 2"),
            (&[1], &[5], 0, "1 samples in batches of 0"),
        ] {
            let e = Bucketed::new(lengths, bounds, batch).unwrap_err().to_string();
            assert!(e.contains(text), "{e}");
        }
    }
}
