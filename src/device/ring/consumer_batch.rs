use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::shared::{Shared, Slot, Used};
use crate::batch::{BatchInfo, Delivered};
use crate::device::Gpu;
use crate::error::Result;

/// A batch that the consumer holds. Dropping the batch records an event in the stream on which it
/// was taken. The slot is reused after that event.
pub(crate) struct Held<G: Gpu> {
    slot: Option<Box<Slot<G>>>,
    pub(crate) shared: Arc<Shared<G>>,
    /// Stream on which the batch was taken; `None` means the consumer's stream. Unset until a
    /// stream waits for the batch.
    taken: OnceLock<Option<G::Stream>>,
    /// Whether another framework has the batch's address.
    exported: AtomicBool,
    /// Streams that use the batch. If this list is empty, only the stream on which the batch was
    /// taken uses it.
    users: Mutex<Vec<G::Stream>>,
}

impl<G: Gpu> Held<G> {
    pub(super) fn new(slot: Box<Slot<G>>, shared: Arc<Shared<G>>) -> Self {
        let (taken, exported) = (OnceLock::new(), AtomicBool::new(false));
        Held { slot: Some(slot), shared, taken, exported, users: Mutex::default() }
    }

    /// Makes `stream`, or the consumer's stream if it is `None`, wait for the batch. In a ring that
    /// orders batches when they are taken, the caller repeats this call until it succeeds.
    pub(crate) fn take_on(&self, stream: Option<G::Stream>) -> Result<()> {
        let Shared { gpu, consumer, .. } = &*self.shared;
        self.shared.check()?;
        let on = stream.as_ref().unwrap_or(consumer);
        self.shared.refuse_capture(on)?;
        self.shared.release_deferred()?;
        gpu.wait(on, &self.slot().ready)?;
        let _ = self.taken.set(stream);
        Ok(())
    }

    /// Records that another framework has the batch's address and may use it on unknown streams.
    /// The slot is reused after all work submitted to the device before the drop.
    pub(crate) fn export(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }

    /// Makes `stream` wait for the batch, and registers it as a user. The slot is reused after the
    /// work submitted to that stream before the drop. Without this call, only the stream on which
    /// the batch was taken counts as a user.
    pub(crate) fn use_on(&self, stream: G::Stream) -> Result<()> {
        self.shared.check()?;
        let mut users = self.users.lock().expect("nothing panics while holding it");
        if !users.contains(&stream) {
            let waits = self.taken.get().and_then(Option::as_ref).is_some_and(|on| *on == stream);
            if !waits {
                self.shared.refuse_capture(&stream)?;
                self.shared.gpu.wait(&stream, &self.slot().ready)?;
            }
            users.push(stream);
        }
        Ok(())
    }

    /// Like [`use_on`](Held::use_on), for a stream that already waits for the batch and is now
    /// being captured.
    #[cfg(test)]
    pub(super) fn use_on_captured(&self, stream: G::Stream) {
        self.users.lock().unwrap().push(stream);
    }

    /// Records the end of the work on the slot in the streams that used it: `users`, or `taken_on`
    /// if `users` is empty.
    fn mark(&self, slot: &Slot<G>, users: &[G::Stream], taken_on: &G::Stream) -> Result<()> {
        let gpu = &self.shared.gpu;
        let Some((first, others)) = users.split_first() else { return gpu.record(&slot.released, taken_on) };
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

    /// Makes the consumer's stream wait for the batch and records the end of that wait.
    pub(super) fn wait(&self) -> Result<()> {
        let (Shared { gpu, consumer, .. }, slot) = (&*self.shared, self.slot());
        gpu.wait(consumer, &slot.ready)?;
        let _ = self.taken.set(None);
        gpu.record(&slot.waited.as_ref().expect("every batch that was sent has one").end, consumer)
    }
}

impl<G: Gpu> Delivered for Held<G> {
    fn info(&self) -> &BatchInfo {
        &self.slot().info
    }

    fn taken(&self) -> Result<()> {
        self.take_on(None)
    }
}

impl<G: Gpu> Drop for Held<G> {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        let Shared { gpu, consumer, counters, deferred, .. } = &*self.shared;
        let Some(taken) = self.taken.take() else {
            // No stream has used the batch.
            slot.taken_back = true;
            self.shared.release(slot);
            counters.held.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        if self.shared.failure().is_none() {
            let taken_on = taken.as_ref().unwrap_or(consumer);
            let users = std::mem::take(self.users.get_mut().expect("nothing panics while holding it"));
            let capturing = || {
                let mut streams = std::iter::once(taken_on).chain(&users);
                streams.try_fold(false, |any, stream| Ok(any || gpu.is_capturing(stream)?))
            };
            let used = if *self.exported.get_mut() { Used::Anywhere } else { Used::OnItsStream };
            match capturing() {
                Ok(capturing) if capturing || used == Used::Anywhere => {
                    // If several streams used the batch, or one other than the consumer's, only an
                    // event for all work covers them.
                    let used = if users.is_empty() && taken.is_none() { used } else { Used::Anywhere };
                    deferred.lock().expect("nothing panics while holding it").push((slot, used));
                    if self.shared.is_ordered_when_taken()
                        && let Err(e) = self.shared.release_deferred()
                    {
                        self.shared.fail(&e);
                    }
                }
                capturing => match capturing.and_then(|_| self.mark(&slot, &users, taken_on)) {
                    Ok(()) => self.shared.release(slot),
                    // Without the event, the slot is never reused, because the device may still
                    // read it.
                    Err(e) => self.shared.fail(&e),
                },
            }
        }
        counters.held.fetch_sub(1, Ordering::Relaxed);
    }
}
