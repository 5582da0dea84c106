//! Decides which batches are copied, so that programs that keep many batches do not stall.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpfeed::MemoryPlan;

use crate::batch::{Batch, Delivered};
use crate::either::of;

/// Batches that the program holds in slots.
pub(crate) struct Lending {
    /// Whether batches are copied. With `None`, a batch is copied if the program holds `most`.
    copy: Option<bool>,
    most: usize,
    /// Batches that the program may still hold.
    lent: Mutex<Vec<Weak<dyn Send + Sync>>>,
}

impl Lending {
    /// Accounts for the batches of a loader. It fills one slot while the program holds the others.
    pub(crate) fn of_loader(copy: Option<bool>, plan: &MemoryPlan) -> Self {
        let slots = if plan.device_slots > 0 { plan.device_slots } else { plan.slots };
        Lending { copy, most: slots.saturating_sub(1), lent: Mutex::default() }
    }

    /// Accounts for the batches of a decoder. The other slots are for its `prefetch` requests, so
    /// that an answer that is not taken delays none of them.
    pub(crate) fn of_decoder(copy: Option<bool>) -> Self {
        Lending { copy, most: 1, lent: Mutex::default() }
    }

    /// Returns the batch for the program: shared, or as a copy.
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
