//! Host slots and batches whose work the device has not finished.

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

/// Host slots whose copies are in flight, oldest first, with spare events and the times of work in
/// flight.
pub(super) struct Flight<G: Gpu, H> {
    pub(super) in_flight: VecDeque<Load<G, H>>,
    pub(super) events: Vec<G::Event>,
    pub(super) faults: Vec<G::Faults>,
    pub(super) timing: Timing<G>,
}

/// A host slot in flight.
pub(super) struct Load<G: Gpu, H> {
    pub(super) host: H,
    /// Passed when the device no longer needs the slot.
    pub(super) done: G::Event,
    /// Fault flags of the images that the device decodes.
    pub(super) faults: Option<G::Faults>,
}

/// A batch that is delivered in its turn.
pub(super) struct Queued<G: Gpu, H> {
    pub(super) slot: Box<Slot<G>>,
    pub(super) stage: Stage<G, H>,
}

impl<G: Gpu, H: FullSlot> Queued<G, H> {
    /// A batch whose work has been submitted to the device. The record of `host` moves to its slot.
    pub(super) fn sent(mut slot: Box<Slot<G>>, host: &mut H) -> Self {
        std::mem::swap(&mut slot.info, host.info_mut());
        Queued { slot, stage: Stage::Sent }
    }
}

/// Progress of a batch.
pub(super) enum Stage<G: Gpu, H> {
    /// All of its work has been submitted.
    Sent,
    /// The device decodes images of it, and then reports those that it cannot decode.
    Decoding(Load<G, H>),
    /// Workers decode some of its images.
    Repairing(Repair<H>),
    /// The batch ends the run with this error in its turn.
    Failed(Error),
}

impl<G: Gpu, H> Flight<G, H> {
    pub(super) fn new(times: Arc<Counters>) -> Self {
        Flight { in_flight: VecDeque::new(), events: Vec::new(), faults: Vec::new(), timing: Timing::new(times) }
    }

    /// The load that was sent last.
    pub(super) fn last(&self) -> &Load<G, H> {
        self.in_flight.back().expect("just pushed")
    }

    /// An event that no work waits for.
    pub(super) fn event(&mut self, gpu: &G) -> Result<G::Event> {
        self.events.pop().map_or_else(|| gpu.event(), Ok)
    }

    /// Returns the host slots whose copies are done, and the time until the next check.
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

    /// Returns a host slot that the device no longer needs.
    pub(super) fn unload(&mut self, load: Load<G, H>) {
        let Load { host, done, faults } = load;
        drop(host);
        self.events.push(done);
        self.faults.extend(faults);
    }

    /// Takes over the times of a slot that was with the consumer.
    pub(super) fn returned(&mut self, slot: &mut Slot<G>) {
        if let Some((what, pair)) = slot.stall() {
            self.timing.recorded(what, pair);
        }
    }
}

impl<G: Gpu, H> Stage<G, H> {
    /// Whether a copy or a queued batch is due for a check.
    pub(super) fn is_due(&mut self, gpu: &G) -> Result<bool> {
        match self {
            Stage::Sent | Stage::Failed(_) => Ok(false),
            Stage::Decoding(load) => gpu.is_done(&load.done),
            Stage::Repairing(repair) => Ok(repair.is_done()),
        }
    }
}

/// Whether a queued batch is due for a check.
pub(super) fn is_due<G: Gpu, H>(gpu: &G, queue: &mut VecDeque<Queued<G, H>>) -> Result<bool> {
    queue.iter_mut().try_fold(false, |any, queued| Ok(any || queued.stage.is_due(gpu)?))
}
