use std::sync::Arc;

use super::batches::Batches;
use crate::engine::settings::{MemoryPlan, Settings};
use crate::sampler::Rank;
use crate::source::Source;

/// What the loader delivers, and what it holds.
impl<B> Batches<B> {
    /// Number of batches in `epoch`; [`Epoch::len`](crate::Epoch::len) counts those that an epoch in progress has yet to
    /// deliver.
    ///
    /// # Panics
    /// If the length of an [`Sampler`](crate::sampler::Sampler) of your own panics.
    /// [`epoch`](Batches::epoch) returns an error for such an epoch.
    pub fn num_batches(&self, epoch: u64) -> u64 {
        self.shared().schedule.num_batches(epoch)
    }

    /// The rank that this loader serves.
    pub fn rank(&self) -> Rank {
        self.shared().schedule.rank()
    }

    /// Number of samples in the source. Options that choose samples do not change it; see
    /// [`epoch_len`](Batches::epoch_len).
    pub fn source_len(&self) -> usize {
        self.shared().recipe.source.len()
    }

    /// Total number of samples that `epoch` delivers on all ranks.
    /// [`subset`](crate::Loader::subset), [`repeat`](crate::Loader::repeat) and similar options
    /// change it. Samples of a [dropped](crate::LastBatch::Drop) last batch and padding do not
    /// count.
    ///
    /// # Panics
    /// See [`num_batches`](Batches::num_batches).
    pub fn epoch_len(&self, epoch: u64) -> u64 {
        self.shared().schedule.samples(epoch)
    }

    /// Names of the classes by label, if the source knows them.
    pub fn classes(&self) -> &[String] {
        self.shared().recipe.source.classes()
    }

    /// The dataset's own number of each class, by label; see
    /// [`Source::category_ids`](crate::source::Source::category_ids).
    pub fn category_ids(&self) -> Vec<i64> {
        self.shared().recipe.source.category_ids()
    }

    /// The source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared().recipe.source
    }

    /// The memory that the loader holds.
    pub fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan { slots_in_use: Settings::slots_for(self.prefetch()), ..self.shared().memory }
    }

    /// The number of batches made ahead of the consumer. If
    /// [`Loader::prefetch`](crate::Loader::prefetch) is automatic, this is the current number.
    pub fn prefetch(&self) -> usize {
        self.shared().run.settings.prefetch()
    }

    /// The number of worker threads.
    pub fn workers(&self) -> usize {
        self.shared().run.settings.workers
    }
}
