//! The copy thread. For each full host slot that it receives from the feed (the engine), it queues
//! the upload, the decoding and the conversion on the device, and then sends the batch to the ring.
//!
//! A batch of a decoder is *small* if it fits into a lane, a part of the device memory. The device
//! processes several small batches at the same time; see `Lanes` in `spec.rs`. All other batches
//! are large.
//! The docs of `ring` list the invariants.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender};

use super::in_flight::{InFlight, PendingUpload, Queued, Stage, Workspace, any_is_due};
use super::on_time::wake_on_time;
use super::repair::{HostFeed, Repair};
use super::shared::{FullSlot, Message, Shared, Slot};
use super::timing::{Pair, TimedKind, TimedOp};
use crate::batch::{BatchInfo, DecodeOps, RunPlan, Wait, threads_ended_error};
use crate::device::spec::{DecodeStep, Location, SlotLayout, Upload};
use crate::device::{Decode, Gpu, Job};
use crate::error::Result;

/// Up to this many bytes at the start of the first timed upload are uploaded twice, so that no
/// timed event directly follows a wait in the copy stream. `device/README.md` explains why.
const LEAD_BYTES: usize = 1 << 17;

/// Maximum gap, in bytes, between images that are uploaded in one copy. The gap contains images
/// that the device decodes, and is uploaded as well, because each copy costs the host a few
/// microseconds.
const MERGE_BYTES: usize = 1 << 20;

/// Calls `each` with the ranges of the indices below `count` for which `is_excluded` is false. A
/// range continues across up to `max_gap` consecutive excluded indices.
fn runs(
    count: usize,
    max_gap: usize,
    is_excluded: impl Fn(usize) -> bool,
    mut each: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut run: Option<Range<usize>> = None;
    for index in (0..count).filter(|&index| !is_excluded(index)) {
        match &mut run {
            Some(run) if index - run.end <= max_gap => run.end = index + 1,
            _ => run.replace(index..index + 1).map_or(Ok(()), &mut each)?,
        }
    }
    run.map_or(Ok(()), each)
}

/// The copy thread. Once the ring is open, other threads make device calls only for streams of the
/// consumer, to copy or download a batch, or to record the event that releases it.
pub(super) struct Thread<G: Gpu, F: HostFeed> {
    pub(super) shared: Arc<Shared<G>>,
    pub(super) feed: Option<F>,
    pub(super) end_sender: Option<Sender<()>>,
    pub(super) run_receiver: Receiver<RunPlan>,
    pub(super) freed_slots: Receiver<Box<Slot<G>>>,
    pub(super) messages: Sender<Message<G>>,
    pub(super) kernels: Vec<G::Kernels>,
    pub(super) copy_stream: G::Stream,
    /// Streams for decoding and conversion. Large batches use the first one, and each small batch
    /// uses the stream of its workspace.
    pub(super) convert_streams: Vec<G::Stream>,
    /// The workspaces for large batches, followed by the workspaces for small batches. Both use the
    /// same memory, so when the batches change from large to small or back, the next copy waits
    /// (see `queue_copy`).
    pub(super) workspaces: [Vec<Workspace<G>>; 2],
    /// Whether the batch that was submitted to the device last is small.
    pub(super) is_small: bool,
    /// Number of submissions so far, which determines the workspace of the next batch.
    pub(super) submitted_batches: usize,
    pub(super) in_flight: InFlight<G, F::Batch>,
    pub(super) queue: VecDeque<Queued<G, F::Batch>>,
}

impl<G: Gpu, F: HostFeed> Thread<G, F> {
    pub(super) fn run(mut self) {
        // If this fails, the first device call also fails, and reports the error.
        let _guard = self.shared.gpu.call_guard();
        while let Ok(run_plan) = self.run_receiver.recv() {
            let run = run_plan.run;
            if !self.shared.is_current(run) {
                continue;
            }
            if self.shared.is_ordered_when_taken() {
                wake_on_time();
            }
            self.feed().start(run_plan);
            let result = self.submit_batches(run);
            self.take_back();
            self.feed().stop();
            if self.shared.is_current(run) {
                let _ = self.messages.send((run, result.err().map(Err)));
            }
            if self.shared.failure().is_some() {
                break;
            }
        }
    }

    /// Frees the device slots of batches that will not be delivered. Workers that are decoding
    /// images of such a batch return its host slot to the feed.
    fn take_back(&mut self) {
        for Queued { slot, stage } in self.queue.drain(..) {
            self.shared.counters.slots.fetch_add(1, Ordering::Relaxed);
            self.shared.take_back(Some(Ok(slot)));
            if let Stage::Decoding(pending_upload) = stage {
                self.in_flight.uploads.push_back(pending_upload);
            }
        }
    }

    fn feed(&mut self) -> &mut F {
        self.feed.as_mut().expect("the feed is taken only in `drop`")
    }

    fn submit_batches(&mut self, run: u64) -> Result<()> {
        let mut wait_start = Instant::now();
        loop {
            self.deliver(run)?;
            let Thread { shared, feed: Some(feed), in_flight, queue, .. } = self else {
                unreachable!("the feed is taken only in `drop`")
            };
            let (mut failure, mut has_due) = (None, false);
            let mut idle = || {
                if !shared.is_current(run) {
                    return None;
                }
                let wait = shared
                    .check()
                    .and_then(|()| Ok((in_flight.free_completed(&shared.gpu)?, any_is_due(&shared.gpu, queue)?)));
                match wait.map_err(|e| failure = Some(e)).ok()? {
                    (_, true) => {
                        has_due = true;
                        None
                    }
                    (wait, false) => Some(if queue.is_empty() { wait } else { shared.poll() }),
                }
            };
            let host = feed.next(&mut Wait::new(wait_start, false, &mut idle));
            if let Some(e) = failure {
                self.shared.fail(&e);
                return Err(e);
            }
            let host = match host {
                Some(Ok(host)) => host,
                // Deliver the earlier batches first.
                Some(Err(e)) => return self.deliver_all(run).and(Err(e)),
                None if has_due && self.shared.is_current(run) => continue,
                None => return self.deliver_all(run),
            };
            let Some(slot) = self.free_slot(run)? else { return Ok(()) };
            let queued = self.submit(host, slot).inspect_err(|e| self.shared.fail(e))?;
            self.queue.push_back(queued);
            wait_start = Instant::now();
        }
    }

    fn deliver(&mut self, run: u64) -> Result<()> {
        self.advance()?;
        while let Some(Stage::Submitted | Stage::Failed(_)) = self.queue.front().map(|queued| &queued.stage) {
            let Queued { mut slot, stage } = self.queue.pop_front().expect("the queue is not empty");
            if let Stage::Failed(e) = stage {
                slot.is_taken_back = true;
                let _ = self.shared.free.send(slot);
                return Err(e);
            }
            let counters = &self.shared.counters;
            let slots = counters.slots.fetch_add(1, Ordering::Relaxed) + 1;
            counters.peak.fetch_max(slots, Ordering::Relaxed);
            let _ = self.messages.send((run, Some(Ok(slot))));
        }
        Ok(())
    }

    fn deliver_all(&mut self, run: u64) -> Result<()> {
        while !self.queue.is_empty() && self.shared.is_current(run) {
            self.deliver(run)?;
            if !self.queue.is_empty() {
                std::thread::sleep(self.shared.poll());
            }
        }
        Ok(())
    }

    /// Advances all queued batches, not only the first, so that repairs begin early.
    fn advance(&mut self) -> Result<()> {
        for index in 0..self.queue.len() {
            let (gpu, queued) = (&self.shared.gpu, &mut self.queue[index]);
            if !queued.stage.is_due(gpu).inspect_err(|e| self.shared.fail(e))? {
                continue;
            }
            let Queued { slot, stage } = self.queue.remove(index).expect("the index is in the queue");
            let queued = match stage {
                Stage::Decoding(pending_upload) => self.check_faults(pending_upload, slot),
                Stage::Repairing(repair) => self.finish_repair(repair, slot)?,
                stage => Queued { slot, stage },
            };
            self.queue.insert(index, queued);
        }
        Ok(())
    }

    /// Checks the fault flags of a batch. If any flag is set, sends the batch back to the workers,
    /// which decode the faulty images again.
    fn check_faults(
        &mut self,
        mut pending_upload: PendingUpload<G, F::Batch>,
        slot: Box<Slot<G>>,
    ) -> Queued<G, F::Batch> {
        let gpu = &self.shared.gpu;
        let layout = &self.shared.variant(pending_upload.host.info()).layout;
        let is_damaged_row = |row: &usize| {
            layout.decode_steps.iter().any(|step: &DecodeStep| {
                let first_flag = (step.faults - layout.faults.start) / DecodeOps::FAULT_BYTES + row * step.frames;
                let mut images = first_flag..first_flag + step.frames;
                pending_upload.faults.as_ref().is_some_and(|faults| images.any(|index| gpu.is_fault(faults, index)))
            })
        };
        let damaged_rows: Vec<usize> = (0..pending_upload.host.info().len()).filter(is_damaged_row).collect();
        if damaged_rows.is_empty() {
            let queued = Queued::submitted(slot, &mut pending_upload.host);
            self.in_flight.free(pending_upload);
            return queued;
        }
        let PendingUpload { host, done, faults } = pending_upload;
        self.in_flight.events.push(done);
        self.in_flight.faults.extend(faults);
        Queued { slot, stage: Stage::Repairing(self.feed().repair(host, &damaged_rows)) }
    }

    /// Sends a batch to the device again, after workers have decoded some of its images.
    fn finish_repair(&mut self, repair: Repair<F::Batch>, mut slot: Box<Slot<G>>) -> Result<Queued<G, F::Batch>> {
        match repair.take().ok_or_else(threads_ended_error).and_then(|batch| self.feed().finish_repair(batch)) {
            Ok(host) => {
                slot.is_taken_back = true;
                self.submit(host, slot).inspect_err(|e| self.shared.fail(e))
            }
            Err(e) => Ok(Queued { slot, stage: Stage::Failed(e) }),
        }
    }

    /// Waits for a device slot, which the consumer's queued work may still be reading. Returns
    /// `None` if the run is canceled.
    fn free_slot(&mut self, run: u64) -> Result<Option<Box<Slot<G>>>> {
        self.in_flight.free_completed(&self.shared.gpu).inspect_err(|e| self.shared.fail(e))?;
        let batches_ahead = self.queue.len() + self.messages.len();
        self.feed().set_batches_ahead(batches_ahead);
        let mut slot = self.freed_slots.try_recv().ok();
        if slot.is_none() {
            slot = self.wait_for_slot(run)?;
        }
        if let Some(slot) = &mut slot {
            self.in_flight.record_stall(slot);
        }
        Ok(slot)
    }

    fn wait_for_slot(&mut self, run: u64) -> Result<Option<Box<Slot<G>>>> {
        loop {
            if !self.shared.is_current(run) {
                return Ok(None);
            }
            self.shared.check()?;
            let wait = self.in_flight.free_completed(&self.shared.gpu).inspect_err(|e| self.shared.fail(e))?;
            // The consumer may need a queued batch before it returns a slot.
            self.deliver(run)?;
            let wait = if self.queue.is_empty() { wait } else { self.shared.poll() };
            if let Ok(slot) = self.freed_slots.recv_timeout(wait) {
                return Ok(Some(slot));
            }
        }
    }

    /// Queues the work that copies `host` into `slot` and converts it. Does not wait for this work.
    fn submit(&mut self, host: F::Batch, mut slot: Box<Slot<G>>) -> Result<Queued<G, F::Batch>> {
        let info = host.info();
        let has_decoding = info.header.launch_stats.iter().any(Option::is_some);
        let has_compute = has_decoding || !self.shared.variant(info).layout.compute_steps.is_empty();
        let copy_done = self.in_flight.take_event(&self.shared.gpu)?;
        if slot.wait_events.is_none() {
            slot.wait_events = Some(self.in_flight.timing.pair(&self.shared.gpu)?);
        }
        let time = self.in_flight.timing.pair(&self.shared.gpu)?;
        let work = TimedOp { kind: TimedKind::Copy, epoch: info.epoch(), number: info.batch_index(), bytes: 0 };
        // The host slot is in flight from its first upload on. Even if an upload fails, the slot
        // must not be freed before the copy stream has stopped.
        self.in_flight.uploads.push_back(PendingUpload { host, done: copy_done, faults: None });
        let is_small = self.is_small();
        let has_switched = std::mem::replace(&mut self.is_small, is_small) != is_small;
        let work = TimedOp { bytes: self.queue_copy(&mut slot, &time, has_switched)?, ..work };
        self.in_flight.timing.push(work, time);
        let mut decoding = None;
        if has_compute {
            self.shared.gpu.wait(self.convert_stream(), &self.in_flight.newest_upload().done)?;
            if has_decoding {
                decoding = Some(self.decode(&slot, work)?);
            }
            self.compute(&slot, work)?;
        } else {
            self.shared.gpu.record(&slot.ready, &self.copy_stream)?;
        }
        self.submitted_batches += 1;
        self.shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        let Some((done, faults)) = decoding else {
            let pending_upload = self.in_flight.uploads.back_mut().expect("pushed above");
            return Ok(Queued::submitted(slot, &mut pending_upload.host));
        };
        // Keep the host slot until the flags are checked: if the device cannot decode an image,
        // workers write its pixels into this slot, and the slot is uploaded again.
        let PendingUpload { host, done: copy_done, .. } = self.in_flight.uploads.pop_back().expect("pushed above");
        self.in_flight.events.push(copy_done);
        Ok(Queued { slot, stage: Stage::Decoding(PendingUpload { host, done, faults: Some(faults) }) })
    }

    /// Returns whether the host slot that was added last fits into a workspace for small batches.
    fn is_small(&self) -> bool {
        let host = &self.in_flight.newest_upload().host;
        let (info, variant) = (host.info(), self.shared.variant(host.info()));
        let fits = |small: &SlotLayout| {
            let encoded = variant.spec.decoding.as_ref().map_or(0, |decoding| host.bytes(decoding.encoded).len());
            let blocks = info.header.launch_stats.iter().flatten().map(|stats| stats.end_block).max();
            info.len() <= small.samples && encoded <= small.encoded_bytes && blocks.unwrap_or(0) <= small.blocks
        };
        variant.small_layout.as_ref().is_some_and(fits)
    }

    fn layout(&self, info: &BatchInfo) -> &SlotLayout {
        let variant = self.shared.variant(info);
        variant.small_layout.as_ref().filter(|_| self.is_small).unwrap_or(&variant.layout)
    }

    fn workspace(&self) -> Option<&Workspace<G>> {
        let workspaces = &self.workspaces[usize::from(self.is_small)];
        workspaces.get(self.submitted_batches % workspaces.len().max(1))
    }

    /// Returns the offsets of the staging buffer and of the scratch memory. Both are 0 if there is
    /// no workspace.
    fn workspace_offsets(&self) -> (usize, usize) {
        self.workspace().map_or((0, 0), |workspace| (workspace.staging, workspace.scratch))
    }

    fn convert_stream(&self) -> &G::Stream {
        &self.convert_streams[self.workspace().map_or(0, |workspace| workspace.stream)]
    }

    /// Queues the uploads of the most recent host slot. `time` measures the uploads into the
    /// staging buffer or, without one, the first `image_uploads` uploads. Returns the bytes of the
    /// measured uploads. If `has_switched`, the batch is small and the previous one was large, or
    /// vice versa, so the uploads wait for all earlier batches.
    fn queue_copy(&self, slot: &mut Slot<G>, time: &Pair<G>, has_switched: bool) -> Result<usize> {
        let Shared { gpu, memory, .. } = &*self.shared;
        let PendingUpload { host, done: copy_done, .. } = self.in_flight.newest_upload();
        let layout = self.layout(host.info());
        if std::mem::take(&mut slot.is_taken_back) {
            gpu.wait(&self.copy_stream, &slot.ready)?;
        }
        // Time only the copies of images. The other copies are small, and the copy stream may wait
        // for the consumer between them.
        let upload_timed = |uploads: &[Upload], base: usize| {
            if let Some(&Upload { span, offset, .. }) = uploads.first() {
                let bytes = host.bytes(span);
                // SAFETY: as in `upload`.
                unsafe { gpu.upload(&self.copy_stream, memory, base + offset, &bytes[..bytes.len().min(LEAD_BYTES)]) }?;
            }
            gpu.record(&time.begin, &self.copy_stream)?;
            let bytes = self.upload(uploads, base)?;
            gpu.record(&time.end, &self.copy_stream)?;
            Ok(bytes)
        };
        let (timed_uploads, other_uploads) = layout.copied_uploads.split_at(layout.image_uploads);
        let timed_bytes = match self.workspace() {
            Some(workspace) => {
                gpu.wait(&self.copy_stream, &workspace.converted)?;
                if has_switched {
                    let other_workspaces = &self.workspaces[usize::from(!self.is_small)];
                    other_workspaces
                        .iter()
                        .try_for_each(|workspace| gpu.wait(&self.copy_stream, &workspace.converted))?;
                }
                let timed_bytes = upload_timed(&layout.staged_uploads, workspace.staging)?;
                gpu.wait(&self.copy_stream, &slot.released)?;
                self.upload(&layout.copied_uploads, slot.offset)?;
                timed_bytes
            }
            None => {
                gpu.wait(&self.copy_stream, &slot.released)?;
                self.upload(other_uploads, slot.offset)?;
                upload_timed(timed_uploads, slot.offset)?
            }
        };
        gpu.record(copy_done, &self.copy_stream)?;
        Ok(timed_bytes)
    }

    /// Queues uploads of the most recent host slot to the memory at `base`. Skips images that the
    /// device decodes, except for short gaps (see `MERGE_BYTES`). Returns the number of bytes.
    fn upload(&self, uploads: &[Upload], base: usize) -> Result<usize> {
        let Shared { gpu, memory, counters, .. } = &*self.shared;
        let PendingUpload { host, .. } = self.in_flight.newest_upload();
        let (layout, launch_stats) = (self.layout(host.info()), &host.info().header.launch_stats);
        let mut total = 0;
        for &Upload { span, offset, decode_step } in uploads {
            let bytes = host.bytes(span);
            let mut upload = |range: Range<usize>| {
                total += range.len();
                counters.bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
                // SAFETY: `host` stays in flight until `copy_done` has completed (invariant 1),
                // which `queue_copy` records after these uploads, in the same stream.
                unsafe { gpu.upload(&self.copy_stream, memory, base + offset + range.start, &bytes[range]) }
            };
            match decode_step.filter(|&index| launch_stats[index].is_some()) {
                Some(index) => {
                    let step = &layout.decode_steps[index];
                    let image_bytes = step.size.0 * step.size.1 * 3;
                    let records = host.bytes(step.span);
                    let is_decoded = |index: usize| DecodeOps::is_for_device(&records[index * DecodeOps::BYTES..]);
                    runs(bytes.len() / image_bytes, MERGE_BYTES / image_bytes, is_decoded, |images| {
                        upload(images.start * image_bytes..images.end * image_bytes)
                    })?;
                }
                None => upload(0..bytes.len())?,
            }
        }
        Ok(total)
    }

    /// Queues the decoding of the most recent host slot. Returns an event, and the fault flags,
    /// which are valid after the event.
    fn decode(&mut self, slot: &Slot<G>, work: TimedOp) -> Result<(G::Event, G::Faults)> {
        let Shared { gpu, memory, .. } = &*self.shared;
        let time = self.in_flight.timing.pair(gpu)?;
        let (done, faults) = (self.in_flight.take_event(gpu)?, self.in_flight.faults.pop());
        let info = self.in_flight.newest_upload().host.info();
        let (layout, (staging, scratch), convert_stream) =
            (self.layout(info), self.workspace_offsets(), self.convert_stream());
        let (numbers, first_flag) = (layout.faults.len() / DecodeOps::FAULT_BYTES, scratch + layout.faults.start);
        gpu.record(&time.begin, convert_stream)?;
        let images: usize = layout.decode_steps.iter().map(|step| step.frames).sum();
        if info.len() * images < numbers {
            // A partial batch does not write all flags, but all flags are fetched.
            gpu.clear(convert_stream, memory, first_flag, layout.faults.len())?;
        }
        self.decode_images((staging, slot.offset, scratch), info)?;
        let mut faults = faults.map_or_else(|| gpu.faults(self.shared.fault_flags()), Ok)?;
        // SAFETY: `faults` is neither freed nor read before `done` has completed. `done` is
        // recorded below, in the same stream. After an error, the memory is freed once the device
        // has finished.
        unsafe { gpu.fetch(convert_stream, memory, first_flag, numbers, &mut faults) }?;
        gpu.record(&done, convert_stream)?;
        gpu.record(&time.end, convert_stream)?;
        self.in_flight.timing.push(TimedOp { kind: TimedKind::Decode, ..work }, time);
        Ok((done, faults))
    }

    fn compute(&mut self, slot: &Slot<G>, work: TimedOp) -> Result<()> {
        let Shared { gpu, memory, .. } = &*self.shared;
        let time = self.in_flight.timing.pair(gpu)?;
        let (info, (staging, _), convert_stream) =
            (self.in_flight.newest_upload().host.info(), self.workspace_offsets(), self.convert_stream());
        gpu.record(&time.begin, convert_stream)?;
        for step in &self.layout(info).compute_steps {
            let source = match step.source {
                Location::Staging(offset) => staging + offset,
                Location::Slot(offset) => slot.offset + offset,
            };
            let (output, records) = (slot.offset + step.output, step.records.map(|offset| slot.offset + offset));
            let job = Job { array: step.array, from: source, output, records, count: info.len() * step.frames };
            gpu.compute(convert_stream, memory, &self.kernels[info.header.variant], job)?;
        }
        gpu.record(&time.end, convert_stream)?;
        if let Some(workspace) = self.workspace() {
            gpu.record(&workspace.converted, convert_stream)?;
        }
        gpu.record(&slot.ready, convert_stream)?;
        self.in_flight.timing.push(TimedOp { kind: TimedKind::Convert, ..work }, time);
        Ok(())
    }

    fn decode_images(&self, (staging, slot, scratch): (usize, usize, usize), info: &BatchInfo) -> Result<()> {
        let Shared { gpu, memory, .. } = &*self.shared;
        let (layout, convert_stream) = (self.layout(info), self.convert_stream());
        for (image, (step, launch_stats)) in layout.decode_steps.iter().zip(&info.header.launch_stats).enumerate() {
            let count = info.len() * step.frames;
            let Some(launch_stats) = *launch_stats else {
                // The device decodes none of these images.
                gpu.clear(convert_stream, memory, scratch + step.faults, count * DecodeOps::FAULT_BYTES)?;
                continue;
            };
            let pixels = match step.pixels {
                Location::Staging(offset) => staging + offset,
                Location::Slot(offset) => slot + offset,
            };
            let job = Decode {
                image,
                size: step.size,
                records: staging + step.records,
                encoded: staging + step.encoded,
                encoded_bytes: layout.encoded_bytes,
                pixels,
                coefficients: scratch + step.coefficients,
                planes: scratch + step.planes,
                axes: scratch + step.axes,
                tables: scratch + step.tables,
                starts: scratch + step.starts,
                faults: scratch + step.faults,
                count,
                launch_stats,
            };
            gpu.decode(convert_stream, memory, &self.kernels[info.header.variant], job)?;
        }
        Ok(())
    }
}

impl<G: Gpu, F: HostFeed> Drop for Thread<G, F> {
    /// Upholds invariants 1, 5 and 7 even if a panic ends the thread. If a driver error has made
    /// the context unusable, the waits fail immediately.
    fn drop(&mut self) {
        // Take the batches back before the feed is dropped, so that workers do not decode images of
        // canceled batches.
        self.take_back();
        drop(self.feed.take());
        drop(self.end_sender.take());
        for stream in self.convert_streams.iter().chain([&self.copy_stream]) {
            if let Err(e) = self.shared.gpu.synchronize(stream) {
                self.shared.fail(&e);
            }
        }
        while let Ok(mut slot) = self.freed_slots.try_recv() {
            self.in_flight.record_stall(&mut slot);
        }
        if self.shared.failure().is_none() {
            let _ = self.in_flight.timing.read_completed(&self.shared.gpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    #[test]
    fn runs_cover_all_other_indices_and_only_short_gaps() {
        let mut rng = Rng::new(1, 2, 3);
        for count in 0..200 {
            let (density, max_gap) = (rng.below(11), rng.below(4) as usize);
            let is_excluded: Vec<bool> = (0..count).map(|_| rng.below(10) < density).collect();
            let mut ranges = Vec::new();
            let result = runs(
                count,
                max_gap,
                |index| is_excluded[index],
                |range| {
                    ranges.push(range);
                    Ok(())
                },
            );
            result.unwrap();
            let mut expected: Vec<Range<usize>> = Vec::new();
            for index in (0..count).filter(|&index| !is_excluded[index]) {
                match expected.last_mut() {
                    Some(last) if (last.end..index).len() <= max_gap => last.end = index + 1,
                    _ => expected.push(index..index + 1),
                }
            }
            assert_eq!(ranges, expected, "{is_excluded:?}, gaps up to {max_gap}");
            let is_covered = |index| ranges.iter().any(|range| range.contains(&index));
            assert!((0..count).all(|index| is_excluded[index] || is_covered(index)));
        }
    }
}
