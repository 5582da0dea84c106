use std::sync::Arc;

use crossbeam::channel::{Sender, bounded};

use super::engine::{Engine, Parts};
use crate::batch::{BatchInfo, Free, Full, Home, Role, SampleOps};
use crate::device::{FullSlot, HostFeed, Repair};
use crate::engine::working::Again;
use crate::error::Result;
use crate::transform::Mixing;

impl Engine<Crossing> {
    /// Creates an engine that copies full slots to a device.
    pub(crate) fn to_device(parts: Parts, slots: Vec<Free>) -> Result<Self> {
        Self::new(parts, slots, None, Box::new(Crossing::new))
    }
}

/// Writes the mixing parameters into the records of the batch, for the convert kernel.
fn mix_records(full: &mut Full, mixing: &Mixing) {
    let count = full.len();
    for span in 0..full.schema().spans.len() {
        if !matches!(full.schema().spans[span].role, Role::Records { .. }) {
            continue;
        }
        let (records, _) = full.bytes_mut(span).as_chunks_mut::<{ SampleOps::BYTES }>();
        for (place, record) in records.iter_mut().enumerate() {
            SampleOps::write_mixing(record, Mixing::partner(place, count), mixing);
        }
    }
}

/// A full slot that is being copied to the device. Dropping it returns the slot to the coordinator.
pub(crate) struct Crossing {
    full: Option<Full>,
    home: Sender<Free>,
}

impl Crossing {
    fn new(mut full: Full, home: &Home) -> Self {
        if let Some(mixing) = full.header().mixing {
            mix_records(&mut full, &mixing);
        }
        Crossing { full: Some(full), home: home.free.clone() }
    }

    fn full(&self) -> &Full {
        self.full.as_ref().expect("only drop takes the slot")
    }
}

impl FullSlot for Crossing {
    fn info(&self) -> &BatchInfo {
        self.full().info()
    }

    fn info_mut(&mut self) -> &mut BatchInfo {
        self.full.as_mut().expect("only drop takes the slot").info_mut()
    }

    fn bytes(&self, field: usize) -> &[u8] {
        self.full().bytes(field)
    }
}

impl HostFeed for Engine<Crossing> {
    fn repair(&mut self, mut batch: Crossing, places: &[usize]) -> Repair<Crossing> {
        let mut full = batch.full.take().expect("only drop takes the slot");
        let recipe = self.shared().recipe.clone();
        // If a damaged sample replaces other samples, the images of those samples are damaged as
        // well, and must be copied again.
        let mut places: Vec<usize> = places.iter().map(|&place| recipe.shown_at(&mut full, place)).collect();
        places.sort_unstable();
        places.dedup();
        let (sender, came) = bounded(1);
        let (wanted, home) = (Arc::new(()), batch.home.clone());
        // Sending fails if the batch was cancelled. The batch is then dropped here, which returns
        // its slot.
        let done = move |full| drop(sender.send(Crossing { full: Some(full), home: home.clone() }));
        let again = Again { places: places.into(), wanted: Arc::downgrade(&wanted), done: Arc::new(done) };
        self.make_again(full, &again);
        Repair::new(came, wanted)
    }

    fn repaired(&mut self, mut batch: Crossing) -> Result<Crossing> {
        let full = batch.full.take().expect("only drop takes the slot");
        self.judge(full).map(|full| (self.deliver)(full, self.home()))
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        if let Some(full) = self.full.take() {
            // If the loader has been dropped, the slot is freed here.
            let _ = self.home.send(full.release());
        }
    }
}
