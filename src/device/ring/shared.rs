//! The state that the ring, its thread and its batches share. `ring` lists the invariants.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::Sender;

use super::device_stats::Counters;
use super::timing::{Pair, TimedKind, TimedOp};
use crate::batch::{BatchInfo, DecodeOps};
use crate::device::gpu::{Gpu, Recorded};
use crate::device::spec::{DeviceMemory, SlotLayout, Spec};
use crate::error::{Error, ErrorKind, Result};

/// Interval between checks of the copies in flight. Copying a typical batch takes several hundred
/// microseconds.
pub(super) const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Interval between checks of a request that the device is decoding. Decoding an image takes about
/// 300 microseconds.
pub(super) const REQUEST_POLL_INTERVAL: Duration = Duration::from_micros(10);
/// Interval at which the thread checks whether its run is canceled, and the consumer checks whether
/// any slot can still become free.
pub(super) const IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// A full host slot in page-locked memory. Dropping it frees the slot.
pub(crate) trait FullSlot: Send + 'static {
    fn info(&self) -> &BatchInfo;
    fn info_mut(&mut self) -> &mut BatchInfo;
    fn bytes(&self, span: usize) -> &[u8];
}

pub(crate) struct Shared<G: Gpu> {
    pub(crate) gpu: G,
    pub(crate) consumer: G::Stream,
    /// Whether a stream waits for a batch only when the batch is taken; see
    /// [`ConsumerBatch::take_on`](super::ConsumerBatch::take_on).
    pub(super) order_on_take: AtomicBool,
    pub(crate) memory: G::Buffer,
    pub(super) variants: Vec<Variant>,
    pub(super) plan: DeviceMemory,
    pub(super) free: Sender<Box<Slot<G>>>,
    /// ID of the current run, or 0 if there is none.
    pub(super) current_run: AtomicU64,
    /// The first driver error. After it, the ring only synchronizes its streams.
    pub(super) failure: Mutex<Option<Error>>,
    /// Slots of batches that were dropped during a capture or used on unknown streams. The event
    /// that covers all of their use has not been recorded yet.
    pub(super) deferred_slots: Mutex<Vec<(Box<Slot<G>>, SlotUse)>>,
    pub(super) counters: Arc<Counters>,
}

/// The arrays of a batch for one combination of image sizes, and their offsets in a slot.
pub(crate) struct Variant {
    pub(crate) spec: Spec,
    pub(crate) layout: SlotLayout,
    /// The layout of small batches, if they overlap. Array offsets equal those of `layout`.
    pub(crate) small_layout: Option<SlotLayout>,
}

/// The memory of a batch on the device.
pub(crate) struct Slot<G: Gpu> {
    pub(crate) offset: usize,
    /// Metadata of the batch. It is moved here from the host slot once only the bytes of the host
    /// slot are still needed.
    pub(crate) info: BatchInfo,
    pub(super) ready: G::Event,
    pub(super) released: G::Event,
    /// Timed events around the wait of the consumer's stream, which begins when the batch is
    /// requested. Not recorded if batches are ordered when they are taken.
    pub(super) wait_events: Option<Pair<G>>,
    /// Whether the batch has been delivered and `wait_events` has been recorded.
    pub(super) is_handed_over: bool,
    /// Whether the batch was prepared but never used. The next batch in this slot must then wait
    /// until the preparation is done.
    pub(super) is_taken_back: bool,
}

/// The work that must end before a deferred slot is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotUse {
    /// Work in the consumer's stream.
    OnItsStream,
    /// All work on the device. Other streams of the program may no longer exist when the slot is
    /// released, so no event can be recorded in them.
    Anywhere,
}

/// The ID of the copy thread's run, and a batch, an error, or `None` at the end of the run.
pub(super) type Message<G> = (u64, Option<Result<Box<Slot<G>>>>);

impl<G: Gpu> Slot<G> {
    pub(super) fn take_stall(&mut self) -> Option<(TimedOp, Pair<G>)> {
        let wait_events = std::mem::take(&mut self.is_handed_over).then(|| self.wait_events.take()).flatten()?;
        let (epoch, number) = (self.info.epoch(), self.info.batch_index());
        Some((TimedOp { kind: TimedKind::Stall, epoch, number, bytes: 0 }, wait_events))
    }
}

impl<G: Gpu> Shared<G> {
    pub(crate) fn variant(&self, info: &BatchInfo) -> &Variant {
        &self.variants[info.header.variant]
    }

    /// Returns the number of fault flags in a buffer, which suffices for every variant.
    pub(super) fn fault_flags(&self) -> usize {
        self.variants.iter().map(|variant| variant.layout.faults.len()).max().unwrap_or(0) / DecodeOps::FAULT_BYTES
    }

    pub(super) fn is_current(&self, run: u64) -> bool {
        self.current_run.load(Ordering::Relaxed) == run
    }

    pub(super) fn take_back(&self, message: Option<Result<Box<Slot<G>>>>) {
        if let Some(Ok(mut slot)) = message {
            slot.is_taken_back = true;
            self.release(slot);
        }
    }

    pub(super) fn release(&self, slot: Box<Slot<G>>) {
        self.counters.slots.fetch_sub(1, Ordering::Relaxed);
        let _ = self.free.send(slot);
    }

    /// Records `request` in the consumer's stream, unless an earlier call has done so
    /// (`is_recorded`). Fails if the stream is being captured.
    pub(super) fn record_request(&self, request: &G::Event, is_recorded: bool) -> Result<()> {
        self.refuse_capture(&self.consumer)?;
        self.release_deferred()?;
        if is_recorded { Ok(()) } else { self.gpu.record(request, &self.consumer) }
    }

    pub(super) fn refuse_capture(&self, stream: &G::Stream) -> Result<()> {
        if self.gpu.is_capturing(stream)? {
            let cause = "the stream that must wait for the batch is being captured into a CUDA graph; take the batch before the capture, \
                         copy it into a buffer that the graph keeps, and replay the graph for each batch";
            return Err(Error::new(ErrorKind::Capturing, cause));
        }
        Ok(())
    }

    pub(super) fn poll(&self) -> Duration {
        if self.is_ordered_when_taken() { REQUEST_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    pub(super) fn is_ordered_when_taken(&self) -> bool {
        self.order_on_take.load(Ordering::Relaxed)
    }

    pub(super) fn release_deferred(&self) -> Result<()> {
        let mut deferred_slots = self.deferred_slots.lock().expect("no code panics while holding this lock");
        if deferred_slots.is_empty() || self.gpu.is_capturing(&self.consumer)? {
            return Ok(());
        }
        for (slot, slot_use) in std::mem::take(&mut *deferred_slots) {
            let is_covered = match slot_use {
                SlotUse::OnItsStream => self.gpu.record(&slot.released, &self.consumer).map(|()| true)?,
                SlotUse::Anywhere => match self.gpu.record_all(&slot.released)? {
                    Recorded::Yes => true,
                    Recorded::NotNow => false,
                    // Without a new recording, `released` counts as done.
                    Recorded::Never => self.gpu.synchronize_all()?,
                },
            };
            if is_covered {
                self.release(slot);
            } else {
                deferred_slots.push((slot, slot_use));
            }
        }
        Ok(())
    }

    /// Releases deferred slots where possible. After a driver error, the ring fails.
    pub(super) fn try_release_deferred(&self) {
        if self.failure().is_none()
            && let Err(e) = self.release_deferred()
        {
            self.fail(&e);
        }
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.lock().expect("no code panics while holding this lock").clone()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    pub(super) fn fail(&self, e: &Error) {
        self.failure.lock().expect("no code panics while holding this lock").get_or_insert_with(|| e.clone());
    }
}
