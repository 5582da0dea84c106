use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Sender;

use super::{Engine, Feed, Work};
use crate::batch::{Free, Full};
use crate::cuda::SampleOps;
use crate::device::{CudaBatch, DeviceStats, Filled, Nvidia, Ring, Supply};
use crate::error::Result;
use crate::order::Pick;
use crate::trace::{self, WAIT};
use crate::transform::Mixing;

/// Delivers batches in device memory: full slots go through the prefetch ring.
pub(crate) struct CudaFeed {
    pub(crate) ring: Ring<Nvidia>,
    pub(crate) work: Arc<Work>,
}

impl Feed for CudaFeed {
    type Batch = CudaBatch;

    fn start(&mut self, epoch: u64, first: u64) {
        self.work.begin();
        self.ring.start(epoch, first);
    }

    fn next(&mut self) -> Option<Result<CudaBatch>> {
        let _range = trace::range(WAIT);
        let asked = self.work.counters.asked(self.ring.ready());
        let batch = self.ring.next()?.map(CudaBatch);
        if let Ok(batch) = &batch {
            self.work.delivered(batch.epoch(), batch.number(), batch.len(), asked);
        }
        Some(batch)
    }

    fn stop(&mut self) {
        self.work.end();
        self.ring.stop();
    }

    fn device_stats(&self) -> Option<DeviceStats> {
        Some(self.ring.stats())
    }
}

/// The engine as the ring's thread sees it.
impl Supply for Engine {
    type Slot = Crossing;

    fn start(&mut self, epoch: u64, first: u64) {
        Engine::start(self, epoch, first);
    }

    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Crossing>> {
        let full = self.next_while(idle)?;
        Some(full.map(|mut full| {
            if let Some(mixing) = full.header().mixing {
                mix_records(&mut full, &mixing);
            }
            Crossing { full: Some(full), home: self.home().free.clone() }
        }))
    }

    fn stop(&mut self) {
        Engine::stop(self);
    }
}

/// Enters the mixing into the batch's records, which the convert kernel reads. They are the slot's
/// last field.
fn mix_records(full: &mut Full, mixing: &Mixing) {
    let count = full.len();
    let span = full.plan().spans.len() - 1;
    let (records, _) = full.bytes_mut(span).as_chunks_mut::<{ SampleOps::BYTES }>();
    for (place, record) in records.iter_mut().enumerate() {
        SampleOps::write_mixing(record, Mixing::partner(place, count), mixing);
    }
}

/// A full slot whose bytes are being copied to the device; dropped, it goes back to the
/// coordinator.
pub(crate) struct Crossing {
    full: Option<Full>,
    home: Sender<Free>,
}

impl Crossing {
    fn full(&self) -> &Full {
        self.full.as_ref().expect("the slot leaves in drop only")
    }
}

impl Filled for Crossing {
    fn epoch(&self) -> u64 {
        self.full().header().epoch
    }

    fn number(&self) -> u64 {
        self.full().header().number
    }

    fn picks(&self) -> &[Pick] {
        &self.full().header().picks
    }

    fn key(&self, place: usize) -> &str {
        &self.full().meta(place).key
    }

    fn mixing(&self) -> Option<Mixing> {
        self.full().header().mixing
    }

    fn labelled(&self) -> bool {
        self.full().header().labelled
    }

    fn bytes(&self, field: usize) -> &[u8] {
        self.full().bytes(field)
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        if let Some(full) = self.full.take() {
            // The loader may be gone already: then the slot is freed here.
            let _ = self.home.send(full.release());
        }
    }
}
