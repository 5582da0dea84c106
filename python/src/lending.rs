//! Decides which batches are copied, so that programs that keep many batches do not stall.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use warpfeed::{HostBatch, MemoryPlan};

use crate::batch::{Batch, Delivered};

/// A batch that the program may still hold.
enum Lent {
    Host(Weak<HostBatch>),
    #[cfg(feature = "cuda")]
    Cuda(Weak<warpfeed::CudaBatch>),
}

impl Lent {
    fn is_held(&self) -> bool {
        match self {
            Lent::Host(batch) => batch.strong_count() > 0,
            #[cfg(feature = "cuda")]
            Lent::Cuda(batch) => batch.strong_count() > 0,
        }
    }
}

/// Batches that the program holds in slots.
pub(crate) struct Lending {
    /// Whether batches are copied. With `None`, a batch is copied if no other slot is left.
    copy: Option<bool>,
    /// Number of slots. One is filled while the program holds the others.
    slots: usize,
    lent: Mutex<Vec<Lent>>,
}

impl Lending {
    /// Accounts for the batches of a loader or decoder with this memory plan.
    pub(crate) fn new(copy: Option<bool>, plan: &MemoryPlan) -> Self {
        let slots = if plan.device_slots > 0 { plan.device_slots } else { plan.slots };
        Lending { copy, slots, lent: Mutex::default() }
    }

    /// Returns the batch for the program: shared, or as a copy.
    pub(crate) fn lend(&self, delivered: Delivered) -> Batch {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(Lent::is_held);
        let copy = self.copy.or((lent.len() + 1 >= self.slots).then_some(true));
        if copy != Some(true) {
            lent.push(match &delivered {
                Delivered::Host(batch) => Lent::Host(Arc::downgrade(batch)),
                #[cfg(feature = "cuda")]
                Delivered::Cuda(batch) => Lent::Cuda(Arc::downgrade(batch)),
            });
        }
        Batch { delivered, copy }
    }
}
