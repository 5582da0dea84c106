//! [`UploadingSlot`] is a full slot that is being uploaded to a device. This module also makes the
//! engine deliver and repair such slots.

use std::sync::Arc;

use crossbeam::channel::{Sender, bounded};

use super::engine::{Engine, EngineConfig};
use crate::batch::{BatchInfo, FilledSlot, FreeSlot, Role, SampleOps, SlotReturn};
use crate::device::{FullSlot, HostFeed, Repair};
use crate::engine::working::RedecodeRequest;
use crate::error::Result;
use crate::transform::Mixing;

impl Engine<UploadingSlot> {
    pub(crate) fn to_device(config: EngineConfig, slots: Vec<FreeSlot>) -> Result<Self> {
        Self::new(config, slots, None, Box::new(UploadingSlot::new))
    }
}

/// Writes the parameters of `mixing` into the records that the convert kernel reads.
fn mix_records(full: &mut FilledSlot, mixing: &Mixing) {
    let count = full.len();
    for span in 0..full.schema().spans.len() {
        if !matches!(full.schema().spans[span].role, Role::Records { .. }) {
            continue;
        }
        let (records, _) = full.bytes_mut(span).as_chunks_mut::<{ SampleOps::BYTES }>();
        for (row, record) in records.iter_mut().enumerate() {
            SampleOps::write_mixing(record, Mixing::partner(row, count), mixing);
        }
    }
}

/// A full slot that is being uploaded. Dropping it returns the slot to the coordinator.
pub(crate) struct UploadingSlot {
    full: Option<FilledSlot>,
    slot_return: Sender<FreeSlot>,
}

impl UploadingSlot {
    fn new(mut full: FilledSlot, slot_return: &SlotReturn) -> Self {
        if let Some(mixing) = full.header().mixing {
            mix_records(&mut full, &mixing);
        }
        UploadingSlot { full: Some(full), slot_return: slot_return.free.clone() }
    }

    fn full(&self) -> &FilledSlot {
        self.full.as_ref().expect("the slot is taken only when the batch is repaired or dropped")
    }
}

impl FullSlot for UploadingSlot {
    fn info(&self) -> &BatchInfo {
        self.full().info()
    }

    fn info_mut(&mut self) -> &mut BatchInfo {
        self.full.as_mut().expect("the slot is taken only when the batch is repaired or dropped").info_mut()
    }

    fn bytes(&self, field: usize) -> &[u8] {
        self.full().bytes(field)
    }
}

impl HostFeed for Engine<UploadingSlot> {
    fn repair(&mut self, mut batch: UploadingSlot, rows: &[usize]) -> Repair<UploadingSlot> {
        let mut full = batch.full.take().expect("the slot is taken only when the batch is repaired or dropped");
        let recipe = self.shared().recipe.clone();
        // A row with a failed sample may contain copies of the images of a different row. Repair
        // that row instead, which also updates the copies.
        let mut rows: Vec<usize> = rows.iter().map(|&row| recipe.image_source_row(&mut full, row)).collect();
        rows.sort_unstable();
        rows.dedup();
        let (sender, receiver) = bounded(1);
        let (live_token, slot_return) = (Arc::new(()), batch.slot_return.clone());
        // If the batch was canceled, sending fails, and dropping the batch returns its slot.
        let on_done =
            move |full| drop(sender.send(UploadingSlot { full: Some(full), slot_return: slot_return.clone() }));
        let request =
            RedecodeRequest { rows: rows.into(), live_token: Arc::downgrade(&live_token), on_done: Arc::new(on_done) };
        self.redecode(full, &request);
        Repair::new(receiver, live_token)
    }

    fn finish_repair(&mut self, mut batch: UploadingSlot) -> Result<UploadingSlot> {
        let full = batch.full.take().expect("the slot is taken only when the batch is repaired or dropped");
        self.apply_error_policy(full).map(|full| (self.deliver)(full, self.slot_return()))
    }
}

impl Drop for UploadingSlot {
    fn drop(&mut self) {
        if let Some(full) = self.full.take() {
            let _ = self.slot_return.send(full.release());
        }
    }
}
