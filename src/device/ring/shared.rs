//! State that the ring, its thread and its batches share. The invariants are those of `ring`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam::channel::Sender;

use super::gauge::Counters;
use super::timing::{Bracket, Bracketed, Pair};
use crate::batch::BatchInfo;
use crate::device::gpu::{Gpu, Recorded};
use crate::device::spec::{DeviceMemory, Places, Spec};
use crate::error::{Error, ErrorKind, Result};

/// Interval between checks of copies in flight. A copy of a batch takes some hundreds of
/// microseconds.
pub(super) const POLL: Duration = Duration::from_micros(100);
/// Interval between checks while a request of a decoder is on the device, which decodes an image
/// in about 300 microseconds.
pub(super) const POLL_REQUEST: Duration = Duration::from_micros(10);
/// Interval at which the thread checks for cancellation, and the consumer for a failed thread.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// A full host slot, in page-locked memory. Dropping it returns it to the workers.
pub(crate) trait FullSlot: Send + 'static {
    fn info(&self) -> &BatchInfo;
    fn info_mut(&mut self) -> &mut BatchInfo;
    /// Bytes of span `span` of the host's schema, for all samples.
    fn bytes(&self, span: usize) -> &[u8];
}

/// State that the ring, its thread and its batches share.
pub(crate) struct Shared<G: Gpu> {
    pub(crate) gpu: G,
    pub(crate) consumer: G::Stream,
    /// Whether batches are ordered when they are taken; see
    /// [`Held::take_on`](super::Held::take_on).
    pub(super) when_taken: AtomicBool,
    pub(crate) memory: G::Buffer,
    /// The forms of batches, by their numbers.
    pub(super) forms: Vec<Form>,
    pub(super) plan: DeviceMemory,
    pub(super) free: Sender<Box<Slot<G>>>,
    /// The current run, or 0 for none.
    pub(super) wanted: AtomicU64,
    /// The first driver error. No call is made after it.
    pub(super) failed: Mutex<Option<Error>>,
    /// Batches that were dropped when the consumer's stream could not be marked, or that another
    /// framework used on unknown streams.
    pub(super) deferred: Mutex<Vec<(Box<Slot<G>>, Used)>>,
    pub(super) counters: Arc<Counters>,
}

/// The arrays of batches of one form, and their places in a slot.
pub(crate) struct Form {
    pub(crate) spec: Spec,
    pub(crate) places: Places,
}

/// A batch's place on the device.
pub(crate) struct Slot<G: Gpu> {
    /// Offset in the device memory.
    pub(crate) offset: usize,
    /// The batch's record. It moves here from the host slot once only the bytes of that slot are
    /// needed.
    pub(crate) info: BatchInfo,
    pub(super) ready: G::Event,
    pub(super) released: G::Event,
    /// Brackets the consumer's wait, from the request on. Recorded if the batch was delivered.
    pub(super) waited: Option<Pair<G>>,
    pub(super) handed_over: bool,
    /// Whether the batch was prepared but never delivered. The next fill then waits for this one.
    pub(super) taken_back: bool,
}

/// The work that the slot of a dropped batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Used {
    /// Work of the consumer's stream.
    OnItsStream,
    /// All work.
    Anywhere,
}

/// Run, and a batch of it, an error, or its end.
pub(super) type Message<G> = (u64, Option<Result<Box<Slot<G>>>>);

impl<G: Gpu> Slot<G> {
    /// Returns the wait of the consumer's stream for the slot, if the slot was handed over.
    pub(super) fn stall(&mut self) -> Option<(Bracketed, Pair<G>)> {
        let waited = std::mem::take(&mut self.handed_over).then(|| self.waited.take()).flatten()?;
        let (epoch, number) = (self.info.epoch(), self.info.number());
        Some((Bracketed { what: Bracket::Stall, epoch, number, bytes: 0 }, waited))
    }
}

impl<G: Gpu> Shared<G> {
    /// The form of a batch.
    pub(crate) fn form(&self, info: &BatchInfo) -> &Form {
        &self.forms[info.header.form]
    }

    pub(super) fn is_wanted(&self, run: u64) -> bool {
        self.wanted.load(Ordering::Relaxed) == run
    }

    pub(super) fn take_back(&self, message: Option<Result<Box<Slot<G>>>>) {
        if let Some(Ok(mut slot)) = message {
            slot.taken_back = true;
            self.release(slot);
        }
    }

    /// Makes the slot available for writing after its mark.
    pub(super) fn release(&self, slot: Box<Slot<G>>) {
        self.counters.slots.fetch_sub(1, Ordering::Relaxed);
        let _ = self.free.send(slot);
    }

    /// Marks the request of a batch in the consumer's stream, unless it was marked `before`.
    pub(super) fn ask(&self, asked: &G::Event, before: bool) -> Result<()> {
        self.refuse_capture(&self.consumer)?;
        self.release_deferred()?;
        if before { Ok(()) } else { self.gpu.record(asked, &self.consumer) }
    }

    /// Returns an error if `stream`, which is about to wait for a batch, is being captured.
    pub(super) fn refuse_capture(&self, stream: &G::Stream) -> Result<()> {
        if self.gpu.is_capturing(stream)? {
            let cause = "the stream that is to wait for the batch is being captured into a CUDA graph; take the batch before the capture, \
                         copy it into a buffer that the graph keeps, and replay the graph for each batch";
            return Err(Error::new(ErrorKind::Capturing, cause));
        }
        Ok(())
    }

    /// Interval between checks of batches that the device decodes.
    pub(super) fn poll(&self) -> Duration {
        if self.is_ordered_when_taken() { POLL_REQUEST } else { POLL }
    }

    pub(super) fn is_ordered_when_taken(&self) -> bool {
        self.when_taken.load(Ordering::Relaxed)
    }

    /// Marks the slots that were dropped while marking was impossible.
    pub(super) fn release_deferred(&self) -> Result<()> {
        let mut deferred = self.deferred.lock().expect("nothing panics while holding it");
        if deferred.is_empty() || self.gpu.is_capturing(&self.consumer)? {
            return Ok(());
        }
        for (slot, used) in std::mem::take(&mut *deferred) {
            let recorded = match used {
                Used::OnItsStream => Recorded::Never,
                Used::Anywhere => self.gpu.record_all(&slot.released)?,
            };
            match recorded {
                Recorded::Yes => {}
                Recorded::Never => self.gpu.record(&slot.released, &self.consumer)?,
                Recorded::NotNow => {
                    deferred.push((slot, used));
                    continue;
                }
            }
            self.release(slot);
        }
        Ok(())
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.failed.lock().expect("nothing panics while holding it").clone()
    }

    /// Returns the error that ended all use of the device, if any.
    pub(super) fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    pub(super) fn fail(&self, e: &Error) {
        self.failed.lock().expect("nothing panics while holding it").get_or_insert_with(|| e.clone());
    }
}
