use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::repair::Repair;
use super::shared::{FullSlot, IDLE_INTERVAL, POLL_INTERVAL, Slot};
use super::timing::Timing;
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::trace::Counters;

/// Device memory for preparing one batch at a time. `staging` and `scratch` are byte offsets in the
/// ring's device memory.
pub(super) struct Workspace<G: Gpu> {
    pub(super) staging: usize,
    pub(super) scratch: usize,
    /// Index of the convert stream that uses this memory.
    pub(super) stream: usize,
    /// Event after which this memory is free for the next batch.
    pub(super) converted: G::Event,
}

/// Uploads in flight and their timing, with events and fault buffers for reuse.
pub(super) struct InFlight<G: Gpu, H> {
    pub(super) uploads: VecDeque<PendingUpload<G, H>>,
    pub(super) events: Vec<G::Event>,
    /// Buffers that have space for the flags of a batch of any variant.
    pub(super) faults: Vec<G::Faults>,
    pub(super) timing: Timing<G>,
}

pub(super) struct PendingUpload<G: Gpu, H> {
    pub(super) host: H,
    /// Event after which the device no longer reads the host slot.
    pub(super) done: G::Event,
    /// The fault flags, or `None` if no decoding of images has been queued.
    pub(super) faults: Option<G::Faults>,
}

pub(super) struct Queued<G: Gpu, H> {
    pub(super) slot: Box<Slot<G>>,
    pub(super) stage: Stage<G, H>,
}

impl<G: Gpu, H: FullSlot> Queued<G, H> {
    pub(super) fn submitted(mut slot: Box<Slot<G>>, host: &mut H) -> Self {
        std::mem::swap(&mut slot.info, host.info_mut());
        Queued { slot, stage: Stage::Submitted }
    }
}

pub(super) enum Stage<G: Gpu, H> {
    Submitted,
    /// The device is decoding images of the batch, and will report images that it cannot decode.
    Decoding(PendingUpload<G, H>),
    Repairing(Repair<H>),
    /// The batch failed. The run ends with this error once all earlier batches are delivered.
    Failed(Error),
}

impl<G: Gpu, H> InFlight<G, H> {
    pub(super) fn new(faults: Vec<G::Faults>, counters: Arc<Counters>) -> Self {
        InFlight { uploads: VecDeque::new(), events: Vec::new(), faults, timing: Timing::new(counters) }
    }

    /// Returns the most recent upload. Panics if none is in flight.
    pub(super) fn newest_upload(&self) -> &PendingUpload<G, H> {
        self.uploads.back().expect("an upload is in flight")
    }

    pub(super) fn take_event(&mut self, gpu: &G) -> Result<G::Event> {
        self.events.pop().map_or_else(|| gpu.event(), Ok)
    }

    /// Reads completed timings and frees the host slots whose copies have completed. Returns the
    /// maximum time until the next call.
    pub(super) fn free_completed(&mut self, gpu: &G) -> Result<Duration> {
        self.timing.read_completed(gpu)?;
        while let Some(upload) = self.uploads.front() {
            if !gpu.is_done(&upload.done)? {
                return Ok(POLL_INTERVAL);
            }
            let upload = self.uploads.pop_front().expect("the queue is not empty");
            self.free(upload);
        }
        Ok(IDLE_INTERVAL)
    }

    pub(super) fn free(&mut self, upload: PendingUpload<G, H>) {
        let PendingUpload { host, done, faults } = upload;
        drop(host);
        self.events.push(done);
        self.faults.extend(faults);
    }

    /// Moves the two events that enclose the consumer's wait from the slot to `timing`, if they
    /// have been recorded.
    pub(super) fn record_stall(&mut self, slot: &mut Slot<G>) {
        if let Some((op, pair)) = slot.take_stall() {
            self.timing.push(op, pair);
        }
    }
}

impl<G: Gpu, H> Stage<G, H> {
    pub(super) fn is_due(&mut self, gpu: &G) -> Result<bool> {
        match self {
            Stage::Submitted | Stage::Failed(_) => Ok(false),
            Stage::Decoding(upload) => gpu.is_done(&upload.done),
            Stage::Repairing(repair) => Ok(repair.is_done()),
        }
    }
}

pub(super) fn any_is_due<G: Gpu, H>(gpu: &G, queue: &mut VecDeque<Queued<G, H>>) -> Result<bool> {
    queue.iter_mut().try_fold(false, |any, queued| Ok(any || queued.stage.is_due(gpu)?))
}
