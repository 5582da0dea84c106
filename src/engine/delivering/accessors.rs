//! Sizes, names and limits of an open loader.

use std::sync::Arc;

use super::batches::Batches;
use crate::engine::settings::MemoryPlan;
use crate::sampler::Rank;
use crate::source::Source;

/// Sizes, names and limits of an open loader.
impl<B> Batches<B> {
    /// Returns the number of batches in `epoch`. [`Epoch::len`](crate::Epoch::len) counts only the
    /// batches that the epoch in progress has not delivered yet.
    ///
    /// # Panics
    /// If the length method of a custom [`Sampler`](crate::sampler::Sampler) panics.
    /// [`epoch(epoch)`](Batches::epoch) returns an error in that case.
    pub fn num_batches(&self, epoch: u64) -> u64 {
        self.shared().schedule.num_batches(epoch)
    }

    /// Returns the rank that this loader delivers batches for.
    pub fn rank(&self) -> Rank {
        self.shared().schedule.rank()
    }

    /// Returns the number of samples in the source, before any option selects or repeats samples;
    /// see [`epoch_len`](Batches::epoch_len).
    pub fn source_len(&self) -> usize {
        self.shared().recipe.source.len()
    }

    /// Returns the number of samples that `epoch` delivers on all ranks together. Options such as
    /// [`subset`](crate::Loader::subset) and [`repeat`](crate::Loader::repeat) change this number.
    /// The number excludes padding, and the samples of a last batch that is
    /// [dropped](crate::LastBatch::Drop).
    ///
    /// # Panics
    /// See [`num_batches`](Batches::num_batches).
    pub fn epoch_len(&self, epoch: u64) -> u64 {
        self.shared().schedule.sample_count(epoch)
    }

    /// Returns the class names, indexed by label. The result is empty if the source provides none.
    pub fn classes(&self) -> &[String] {
        self.shared().recipe.source.classes()
    }

    /// Returns the dataset's own ID for each class, indexed by label, or an empty list if classes
    /// have no IDs; see [`Source::category_ids`](crate::source::Source::category_ids).
    pub fn category_ids(&self) -> Vec<i64> {
        self.shared().recipe.source.category_ids()
    }

    /// Returns the source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared().recipe.source
    }

    /// Returns the memory plan of the loader.
    pub fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan { slots_in_use: self.shared().runtime.settings.slots_in_use(), ..self.shared().memory }
    }

    /// Returns the number of batches that are prepared ahead of the consumer. This is the current
    /// value if [`Loader::prefetch`](crate::Loader::prefetch) is automatic.
    pub fn prefetch(&self) -> usize {
        self.shared().runtime.settings.prefetch()
    }

    /// Returns the number of worker threads.
    pub fn workers(&self) -> usize {
        self.shared().runtime.settings.workers
    }
}
