//! Decides which batches are copied, so that a user who holds many batches does not stall the
//! loader.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpfeed::MemoryPlan;

use crate::batch::{Batch, Delivered};
use crate::either::match_either;

/// Tracks the batches that the user holds without a copy.
pub(crate) struct HeldBatches {
    /// The `copy` option. With `None`, a batch is copied if the user already holds `max_lent`
    /// batches.
    copy: Option<bool>,
    max_lent: usize,
    /// Batches that were delivered without a copy. The user may have dropped some of them.
    lent: Mutex<Vec<Weak<dyn Send + Sync>>>,
}

impl HeldBatches {
    /// Tracks the batches of a loader. With automatic copies, the user may hold all slots except
    /// one, so that the loader has a slot to fill.
    pub(crate) fn for_loader(copy: Option<bool>, plan: &MemoryPlan) -> Self {
        let slots = if plan.device_slots > 0 { plan.device_slots } else { plan.slots };
        HeldBatches { copy, max_lent: slots.saturating_sub(1), lent: Mutex::default() }
    }

    /// Tracks the batches of a decoder. With automatic copies, the user may hold one slot. The
    /// other slots are reserved for the `max_in_flight` requests in progress.
    pub(crate) fn for_decoder(copy: Option<bool>) -> Self {
        HeldBatches { copy, max_lent: 1, lent: Mutex::default() }
    }

    pub(crate) fn lend(&self, delivered: Delivered) -> Batch {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|batch| batch.strong_count() > 0);
        let copy = self.copy.or((lent.len() >= self.max_lent).then_some(true));
        if copy != Some(true) {
            let reference: Weak<dyn Send + Sync> =
                match_either!(Delivered, &delivered, batch => Arc::downgrade(batch) as _);
            lent.push(reference);
        }
        Batch { delivered, copy }
    }
}
