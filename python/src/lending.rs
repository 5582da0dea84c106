//! Decides which batches are copied, so that a user who holds many batches does not stall the
//! loader.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpfeed::MemoryPlan;

use crate::batch::{Batch, Delivered};
use crate::either::of;

/// Tracks the slots whose batches the user holds.
pub(crate) struct Lending {
    /// Whether batches are copied. With `None`, a batch is copied if the user already holds `most`
    /// batches.
    copy: Option<bool>,
    most: usize,
    /// Batches that the user may still hold.
    lent: Mutex<Vec<Weak<dyn Send + Sync>>>,
}

impl Lending {
    /// Creates the tracker for a loader. The loader fills one slot while the user holds the others.
    pub(crate) fn of_loader(copy: Option<bool>, plan: &MemoryPlan) -> Self {
        let slots = if plan.device_slots > 0 { plan.device_slots } else { plan.slots };
        Lending { copy, most: slots.saturating_sub(1), lent: Mutex::default() }
    }

    /// Creates the tracker for a decoder. The remaining slots are reserved for its `prefetch`
    /// requests, so a response that is never taken does not delay them.
    pub(crate) fn of_decoder(copy: Option<bool>) -> Self {
        Lending { copy, most: 1, lent: Mutex::default() }
    }

    /// Hands the batch to the user, either shared or copied.
    pub(crate) fn lend(&self, delivered: Delivered) -> Batch {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|batch| batch.strong_count() > 0);
        let copy = self.copy.or((lent.len() >= self.most).then_some(true));
        if copy != Some(true) {
            let held: Weak<dyn Send + Sync> = of!(Delivered, &delivered, batch => Arc::downgrade(batch) as _);
            lent.push(held);
        }
        Batch { delivered, copy }
    }
}
