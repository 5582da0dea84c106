//! Orders with weights or proportions that the program can change during training.
//!
//! A changeable order is a pure function of (seed, epoch, position, history), where the history
//! lists all changes. A sample depends only on the changes at or before its position. A batch
//! before a change is therefore the same whether it was prepared before or after the call that made
//! the change.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use serde::{Deserialize, Serialize};
use warpfeed_sources::BatchIndex;

use super::batched::BatchedOrder;
use super::{Occurrence, Position, Sampler};
use crate::error::{Error, Result, counted};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Update {
    /// Position in the run, over all ranks, from which the change applies. A mixture applies the
    /// change from the start of the next round.
    pub(crate) from: u64,
    pub(crate) values: Vec<f64>,
}

// The values are finite, so each of them equals itself.
impl Eq for Update {}

/// The changes that an order still stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// In increasing order of their positions.
    pub(crate) updates: Vec<Update>,
    /// The first position from which the order can still be recomputed.
    pub(crate) recomputable_from: u64,
}

/// An order that can be changed from any position onward.
pub(crate) trait UpdatableOrder: Sampler {
    /// Returns the order with `update` added, and the position at which the change takes effect.
    /// Removes the changes of earlier calls at the same or later positions, and the changes that a
    /// mixture's schedule makes there. The result may drop data that only positions before
    /// `first_needed_position` need.
    fn with_update(&self, update: Update, first_needed_position: u64) -> Result<(Arc<dyn UpdatableOrder>, u64)>;

    fn history(&self) -> History;

    fn positions_per_epoch(&self) -> u64;

    /// Returns `Some` if this order sets its own batch boundaries.
    fn batched_order(self: Arc<Self>) -> Option<Arc<dyn BatchedOrder>> {
        None
    }
}

impl<O: UpdatableOrder + ?Sized> UpdatableOrder for Arc<O> {
    fn with_update(&self, update: Update, first_needed_position: u64) -> Result<(Arc<dyn UpdatableOrder>, u64)> {
        (**self).with_update(update, first_needed_position)
    }

    fn history(&self) -> History {
        (**self).history()
    }

    fn positions_per_epoch(&self) -> u64 {
        (**self).positions_per_epoch()
    }

    fn batched_order(self: Arc<Self>) -> Option<Arc<dyn BatchedOrder>> {
        O::batched_order((*self).clone())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    Proportions,
    Weights,
}

/// The order of an open loader, which the program may replace by a changed one.
pub(crate) struct LiveOrder {
    kind: UpdateKind,
    original: Arc<dyn UpdatableOrder>,
    current: RwLock<Arc<dyn UpdatableOrder>>,
    subset: Option<Arc<[u64]>>,
    samples: u64,
    progress: Mutex<ChoiceProgress>,
}

/// The current run, and the latest batch for which samples have been or are being chosen.
#[derive(Default)]
pub(crate) struct ChoiceProgress {
    run: u64,
    last_batch: Option<BatchIndex>,
    /// Whether the source prefetches by reading the order on its own. If the source does, any batch
    /// may already have been read.
    is_read_ahead: bool,
}

impl LiveOrder {
    pub(crate) fn new(
        kind: UpdateKind,
        order: Arc<dyn UpdatableOrder>,
        samples: u64,
        subset: Option<Arc<[u64]>>,
    ) -> Self {
        let current = RwLock::new(order.clone());
        LiveOrder { kind, original: order, current, subset, samples, progress: Mutex::default() }
    }

    pub(crate) fn kind(&self) -> UpdateKind {
        self.kind
    }

    pub(crate) fn original(&self) -> Arc<dyn UpdatableOrder> {
        self.original.clone()
    }

    pub(crate) fn current(&self) -> Arc<dyn UpdatableOrder> {
        self.lock_current().clone()
    }

    /// Like [`UpdatableOrder::batched_order`], but follows later changes.
    pub(crate) fn batched_order(self: &Arc<Self>) -> Option<Arc<dyn BatchedOrder>> {
        self.original().batched_order().map(|_| self.clone() as Arc<dyn BatchedOrder>)
    }

    fn current_batched_order(&self) -> Arc<dyn BatchedOrder> {
        self.current().batched_order().expect("a changed order has batches like the original")
    }

    fn lock_current(&self) -> RwLockReadGuard<'_, Arc<dyn UpdatableOrder>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that run `run` is choosing the samples of `batch`. The guard blocks changes, so hold
    /// it until every sample is chosen.
    pub(crate) fn begin(&self, run: u64, batch: BatchIndex) -> MutexGuard<'_, ChoiceProgress> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.run != run {
            *progress = ChoiceProgress { run, last_batch: None, ..*progress };
        }
        // If the run repeats an epoch, `batch` may precede the latest batch.
        progress.last_batch = progress.last_batch.max(Some(batch));
        progress
    }

    pub(crate) fn set_read_ahead(&self) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).is_read_ahead = true;
    }

    /// Replaces the values from position `from` onward. Returns the position at which the change
    /// takes effect, and the last batch that may already have been read. `first_needed_position` is
    /// the start of the epoch.
    pub(crate) fn update(
        &self,
        from: u64,
        values: &[f64],
        first_needed_position: u64,
    ) -> Result<(u64, Option<BatchIndex>)> {
        let values = self.values_of_drawn_samples(values)?;
        // Building the order may take a while, so do it before taking the lock. Only one thread
        // changes the order.
        let (order, effective_position) = self.current().with_update(Update { from, values }, first_needed_position)?;
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(order);
        let last_batch =
            if progress.is_read_ahead { Some(BatchIndex { epoch: u64::MAX, batch: 0 }) } else { progress.last_batch };
        Ok((effective_position, last_batch))
    }

    fn values_of_drawn_samples(&self, values: &[f64]) -> Result<Vec<f64>> {
        if self.kind == UpdateKind::Proportions {
            return Ok(values.into());
        }
        if values.len() as u64 != self.samples {
            let hint = if self.subset.is_some() { "; pass one for every sample, even with a subset" } else { "" };
            return Err(Error::config(format!(
                "set_weights: {}, but the source has {}{hint}",
                counted(values.len() as u64, "weight", "weights"),
                counted(self.samples, "sample", "samples")
            )));
        }
        Ok(match &self.subset {
            Some(indices) => indices.iter().map(|&index| values[index as usize]).collect(),
            None => values.into(),
        })
    }

    pub(crate) fn replay(&self, history: &History) -> Result<Arc<dyn UpdatableOrder>> {
        let mut order = self.original();
        for update in &history.updates {
            order = order.with_update(update.clone(), history.recomputable_from)?.0;
        }
        Ok(order)
    }

    pub(crate) fn set(&self, order: Arc<dyn UpdatableOrder>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = order;
    }
}

impl Sampler for LiveOrder {
    fn len(&self, epoch: u64) -> u64 {
        self.lock_current().len(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.lock_current().index(epoch, position)
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        self.lock_current().occurrence(epoch, position)
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        self.lock_current().position(epoch, index, from)
    }
}

impl BatchedOrder for LiveOrder {
    fn num_batches(&self, epoch: u64) -> u64 {
        self.current_batched_order().num_batches(epoch)
    }

    fn sample_count(&self, epoch: u64) -> u64 {
        self.current_batched_order().sample_count(epoch)
    }

    fn max_batch_size(&self) -> u64 {
        self.current_batched_order().max_batch_size()
    }

    fn positions(&self, epoch: u64, batch: u64) -> Range<u64> {
        self.current_batched_order().positions(epoch, batch)
    }

    fn batch_of(&self, epoch: u64, position: u64) -> Option<u64> {
        self.current_batched_order().batch_of(epoch, position)
    }

    fn min_position(&self, batch: u64) -> u64 {
        self.current_batched_order().min_position(batch)
    }

    fn dataset_batch_sizes(&self) -> Vec<u64> {
        self.current_batched_order().dataset_batch_sizes()
    }
}
