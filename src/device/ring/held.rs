use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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
    /// Other streams than the consumer's that it is used on. If there are any, it is used on these
    /// alone.
    users: Mutex<Vec<G::Stream>>,
}

impl<G: Gpu> Held<G> {
    pub(super) fn new(slot: Box<Slot<G>>, shared: Arc<Shared<G>>) -> Self {
        Held { slot: Some(slot), shared, exported: AtomicBool::new(false), users: Mutex::default() }
    }

    /// Another framework is given the batch's address: nobody knows on which streams it is used.
    /// The slot is written again after all work that the device had been given when it came back.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn export(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }

    /// The batch is used on `stream`: that stream waits for it, and the slot is written again after
    /// the work that the stream has been given when the batch is dropped. A batch that nobody asked
    /// to use on a stream is used on the consumer's.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) fn use_on(&self, stream: G::Stream) -> Result<()> {
        self.shared.check()?;
        let mut users = self.users.lock().expect("nothing panics while holding it");
        if !users.contains(&stream) {
            self.shared.gpu.wait(&stream, &self.slot().ready)?;
            users.push(stream);
        }
        Ok(())
    }

    /// As [`use_on`](Held::use_on), for a stream that waits already and is now being captured.
    #[cfg(test)]
    pub(super) fn use_on_captured(&self, stream: G::Stream) {
        self.users.lock().unwrap().push(stream);
    }

    /// Marks the end of the work with the slot, in the streams that it was used on.
    fn mark(&self, slot: &Slot<G>, users: &[G::Stream]) -> Result<()> {
        let Shared { gpu, consumer, .. } = &*self.shared;
        let Some((first, others)) = users.split_first() else { return gpu.record(&slot.released, consumer) };
        for other in others {
            let joined = gpu.event()?;
            gpu.record(&joined, other)?;
            gpu.wait(first, &joined)?;
        }
        gpu.record(&slot.released, first)
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
            let users = std::mem::take(self.users.get_mut().expect("nothing panics while holding it"));
            let capturing = || {
                let mut streams = std::iter::once(consumer).chain(&users);
                streams.try_fold(false, |any, stream| Ok(any || gpu.is_capturing(stream)?))
            };
            let used = if *self.exported.get_mut() { Used::Anywhere } else { Used::OnItsStream };
            match capturing() {
                Ok(capturing) if capturing || used == Used::Anywhere => {
                    // Of several streams only a mark of all work covers each.
                    let used = if users.is_empty() { used } else { Used::Anywhere };
                    deferred.lock().expect("nothing panics while holding it").push((slot, used));
                }
                capturing => match capturing.and_then(|_| self.mark(&slot, &users)) {
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
