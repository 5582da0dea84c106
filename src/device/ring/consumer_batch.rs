use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::shared::{Shared, Slot, SlotUse};
use crate::batch::{BatchInfo, Delivered};
use crate::device::Gpu;
use crate::error::Result;

/// A batch that the consumer holds. After the batch is dropped, its slot is reused after an event
/// that follows all use of the batch. The drop normally records this event. If a stream is being
/// captured, or if the batch was exported, a later call may record the event instead. A batch that
/// was never taken needs no such event.
pub(crate) struct ConsumerBatch<G: Gpu> {
    slot: Option<Box<Slot<G>>>,
    pub(crate) shared: Arc<Shared<G>>,
    /// The stream that the batch was taken on, or `None` for the consumer's stream. Unset until a
    /// stream waits for the batch.
    taken_on: OnceLock<Option<G::Stream>>,
    /// Whether a different framework has the address of the batch.
    exported: AtomicBool,
    /// The streams registered by `use_on`. If there are none, the only user is the stream that the
    /// batch was taken on.
    users: Mutex<Vec<G::Stream>>,
}

impl<G: Gpu> ConsumerBatch<G> {
    pub(super) fn new(slot: Box<Slot<G>>, shared: Arc<Shared<G>>) -> Self {
        let (taken_on, exported) = (OnceLock::new(), AtomicBool::new(false));
        ConsumerBatch { slot: Some(slot), shared, taken_on, exported, users: Mutex::default() }
    }

    /// Makes `stream`, or by default the consumer's stream, wait for the batch. In a ring that
    /// orders batches when they are taken, the batch must not be used before a call has succeeded.
    pub(crate) fn take_on(&self, stream: Option<G::Stream>) -> Result<()> {
        let Shared { gpu, consumer, .. } = &*self.shared;
        self.shared.check()?;
        let used_stream = stream.as_ref().unwrap_or(consumer);
        self.shared.refuse_capture(used_stream)?;
        self.shared.release_deferred()?;
        gpu.wait(used_stream, &self.slot().ready)?;
        let _ = self.taken_on.set(stream);
        Ok(())
    }

    /// Records that a different framework may use the batch on unknown streams. After the drop, the
    /// slot is reused once all work that was submitted to the device before the drop is done. With
    /// drivers older than CUDA 12.5, only the work in the consumer's stream and in the users'
    /// streams counts.
    pub(crate) fn export(&self) {
        self.exported.store(true, Ordering::Relaxed);
    }

    /// Makes `stream` wait for the batch, and registers the stream as a user. After the drop, the
    /// slot is reused once the work that was submitted to its users before the drop is done.
    pub(crate) fn use_on(&self, stream: G::Stream) -> Result<()> {
        self.shared.check()?;
        let mut users = self.users.lock().expect("no code panics while holding this lock");
        if !users.contains(&stream) {
            let waits = self.taken_on.get().and_then(Option::as_ref).is_some_and(|taken_on| *taken_on == stream);
            if !waits {
                self.shared.refuse_capture(&stream)?;
                self.shared.gpu.wait(&stream, &self.slot().ready)?;
            }
            users.push(stream);
        }
        Ok(())
    }

    /// Registers a stream that already waits for the batch and is now being captured.
    #[cfg(test)]
    pub(super) fn use_on_captured(&self, stream: G::Stream) {
        self.users.lock().unwrap().push(stream);
    }

    /// Records `released` after the work of `exported_on` and of all `users`, or, if there are no
    /// users, after the work in `taken_on`. With several streams, the first one waits for the
    /// others.
    fn mark(
        &self,
        slot: &Slot<G>,
        exported_on: Option<&G::Stream>,
        users: &[G::Stream],
        taken_on: &G::Stream,
    ) -> Result<()> {
        let gpu = &self.shared.gpu;
        let users = if users.is_empty() { std::slice::from_ref(taken_on) } else { users };
        let mut streams = exported_on.into_iter().chain(users);
        let first = streams.next().expect("`users` is not empty");
        for stream in streams.filter(|stream| *stream != first) {
            let done = gpu.event()?;
            gpu.record(&done, stream)?;
            gpu.wait(first, &done)?;
        }
        gpu.record(&slot.released, first)
    }

    pub(crate) fn slot(&self) -> &Slot<G> {
        self.slot.as_ref().expect("the slot is taken only in `drop`")
    }

    pub(super) fn wait(&self) -> Result<()> {
        let (Shared { gpu, consumer, .. }, slot) = (&*self.shared, self.slot());
        gpu.wait(consumer, &slot.ready)?;
        let _ = self.taken_on.set(None);
        gpu.record(&slot.wait_events.as_ref().expect("every sent batch has timed events").end, consumer)
    }
}

impl<G: Gpu> Delivered for ConsumerBatch<G> {
    fn info(&self) -> &BatchInfo {
        &self.slot().info
    }

    fn on_receive(&self) -> Result<()> {
        self.take_on(None)
    }
}

impl<G: Gpu> Drop for ConsumerBatch<G> {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        let Shared { gpu, consumer, counters, deferred_slots, .. } = &*self.shared;
        let Some(taken_on_stream) = self.taken_on.take() else {
            slot.is_taken_back = true;
            self.shared.release(slot);
            counters.held.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        if self.shared.failure().is_none() {
            let taken_on = taken_on_stream.as_ref().unwrap_or(consumer);
            let users = std::mem::take(self.users.get_mut().expect("no code panics while holding this lock"));
            let capturing = || {
                let mut streams = std::iter::once(taken_on).chain(&users);
                streams.try_fold(false, |any, stream| Ok(any || gpu.is_capturing(stream)?))
            };
            let is_exported = *self.exported.get_mut();
            let deferred = capturing().and_then(|is_capturing| {
                let defers = is_capturing || is_exported && gpu.can_record_all();
                if !defers {
                    let exported_on = is_exported.then_some(consumer);
                    return self.mark(&slot, exported_on, &users, taken_on).map(|()| None);
                }
                let is_consumer_only = users.is_empty() && taken_on_stream.is_none() && !is_exported;
                Ok(Some(if is_consumer_only { SlotUse::OnItsStream } else { SlotUse::Anywhere }))
            });
            match deferred {
                Ok(None) => self.shared.release(slot),
                Ok(Some(slot_use)) => {
                    deferred_slots.lock().expect("no code panics while holding this lock").push((slot, slot_use));
                    if self.shared.is_ordered_when_taken() {
                        self.shared.try_release_deferred();
                    }
                }
                Err(e) => self.shared.fail(&e),
            }
        }
        counters.held.fetch_sub(1, Ordering::Relaxed);
    }
}
