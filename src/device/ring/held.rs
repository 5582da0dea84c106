use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::shared::{Shared, Slot, Used};
use crate::device::Gpu;
use crate::error::Result;

/// A batch that the consumer holds. Dropping it marks the consumer's stream: the slot is written
/// again after that mark.
pub(crate) struct Held<G: Gpu> {
    slot: Option<Box<Slot<G>>>,
    pub(crate) shared: Arc<Shared<G>>,
    /// Whether another framework has its address.
    exported: AtomicBool,
}

impl<G: Gpu> Held<G> {
    pub(super) fn new(slot: Box<Slot<G>>, shared: Arc<Shared<G>>) -> Self {
        Held { slot: Some(slot), shared, exported: AtomicBool::new(false) }
    }

    /// Another framework is given the batch's address: nobody knows on which streams it is used.
    /// The slot is written again after all work that the device had been given when it came back.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn export(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }

    pub(crate) fn slot(&self) -> &Slot<G> {
        self.slot.as_ref().expect("the slot leaves in drop only")
    }

    /// Lets the consumer's stream wait for the batch, and marks when it has.
    pub(super) fn wait(&self) -> Result<()> {
        let (Shared { gpu, consumer, .. }, slot) = (&*self.shared, self.slot());
        gpu.wait(consumer, &slot.ready)?;
        gpu.record(&slot.waited.as_ref().expect("every batch that was sent has one").end, consumer)
    }
}

impl<G: Gpu> Drop for Held<G> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let Shared { gpu, consumer, counters, deferred, .. } = &*self.shared;
        if self.shared.failure().is_none() {
            let used = if *self.exported.get_mut() { Used::Anywhere } else { Used::OnItsStream };
            match gpu.is_capturing(consumer) {
                Ok(capturing) if capturing || used == Used::Anywhere => {
                    deferred.lock().expect("nothing panics while holding it").push((slot, used));
                }
                capturing => match capturing.and_then(|_| gpu.record(&slot.released, consumer)) {
                    Ok(()) => self.shared.release(slot),
                    // Without the mark nobody knows when the slot may be written: it stays out of
                    // use.
                    Err(e) => self.shared.fail(&e),
                },
            }
        }
        counters.held.fetch_sub(1, Ordering::Relaxed);
    }
}
