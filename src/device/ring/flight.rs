//! Host slots and batches whose work on the device is unfinished.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::repair::Repair;
use super::shared::{FullSlot, POLL, Slot, TICK};
use super::timing::Timing;
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::trace::Counters;

pub(super) struct Staging<G: Gpu> {
    pub(super) offset: usize,
    pub(super) converted: G::Event,
}

/// Host slots with copies in flight, oldest first, together with spare events and the timing of
/// pending work.
pub(super) struct Flight<G: Gpu, H> {
    pub(super) in_flight: VecDeque<Load<G, H>>,
    pub(super) events: Vec<G::Event>,
    pub(super) faults: Vec<G::Faults>,
    pub(super) timing: Timing<G>,
}

/// A host slot in flight.
pub(super) struct Load<G: Gpu, H> {
    pub(super) host: H,
    /// Event that completes when the device no longer reads the slot.
    pub(super) done: G::Event,
    /// Fault flags of the images that the device decodes, if any.
    pub(super) faults: Option<G::Faults>,
}

/// A batch that waits in the queue for its delivery.
pub(super) struct Queued<G: Gpu, H> {
    pub(super) slot: Box<Slot<G>>,
    pub(super) stage: Stage<G, H>,
}

impl<G: Gpu, H: FullSlot> Queued<G, H> {
    /// Creates a batch whose work has all been submitted to the device. The `info` of `host` moves
    /// to the slot.
    pub(super) fn sent(mut slot: Box<Slot<G>>, host: &mut H) -> Self {
        std::mem::swap(&mut slot.info, host.info_mut());
        Queued { slot, stage: Stage::Sent }
    }
}

/// Progress of a queued batch.
pub(super) enum Stage<G: Gpu, H> {
    /// All work of the batch has been submitted.
    Sent,
    /// The device is decoding images of the batch, and then reports the ones that it cannot decode.
    Decoding(Load<G, H>),
    /// Workers are decoding some images of the batch.
    Repairing(Repair<H>),
    /// The batch failed. The run ends with this error once all earlier batches have been delivered.
    Failed(Error),
}

impl<G: Gpu, H> Flight<G, H> {
    pub(super) fn new(times: Arc<Counters>) -> Self {
        Flight { in_flight: VecDeque::new(), events: Vec::new(), faults: Vec::new(), timing: Timing::new(times) }
    }

    /// Returns the most recent load.
    pub(super) fn last(&self) -> &Load<G, H> {
        self.in_flight.back().expect("just pushed")
    }

    /// Returns an event that no work waits for.
    pub(super) fn event(&mut self, gpu: &G) -> Result<G::Event> {
        self.events.pop().map_or_else(|| gpu.event(), Ok)
    }

    /// Returns the host slots whose copies are done to the workers, and returns the time until the
    /// next check.
    pub(super) fn land(&mut self, gpu: &G) -> Result<Duration> {
        self.timing.settle(gpu)?;
        while let Some(load) = self.in_flight.front() {
            if !gpu.is_done(&load.done)? {
                return Ok(POLL);
            }
            let load = self.in_flight.pop_front().expect("there is a front");
            self.unload(load);
        }
        Ok(TICK)
    }

    /// Returns a host slot, which the device no longer reads, to the workers.
    pub(super) fn unload(&mut self, load: Load<G, H>) {
        let Load { host, done, faults } = load;
        drop(host);
        self.events.push(done);
        self.faults.extend(faults);
    }

    /// Takes over the timing of a slot that the consumer has returned.
    pub(super) fn returned(&mut self, slot: &mut Slot<G>) {
        if let Some((what, pair)) = slot.stall() {
            self.timing.recorded(what, pair);
        }
    }
}

impl<G: Gpu, H> Stage<G, H> {
    /// Returns whether this batch can advance to the next stage.
    pub(super) fn is_due(&mut self, gpu: &G) -> Result<bool> {
        match self {
            Stage::Sent | Stage::Failed(_) => Ok(false),
            Stage::Decoding(load) => gpu.is_done(&load.done),
            Stage::Repairing(repair) => Ok(repair.is_done()),
        }
    }
}

/// Returns whether any queued batch can advance to the next stage.
pub(super) fn is_due<G: Gpu, H>(gpu: &G, queue: &mut VecDeque<Queued<G, H>>) -> Result<bool> {
    queue.iter_mut().try_fold(false, |any, queued| Ok(any || queued.stage.is_due(gpu)?))
}
