//! [`Worker`] fills one part of a batch at a time, with its own buffers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;

use super::buffers::count_fitting;
use super::copier;
use super::filler::{Buffers, DeviceImages, PartFiller};
use super::meter::Meter;
use super::task::{RedecodeRequest, Task};
use crate::batch::{BatchHeader, FilledSlot, SlotPart};
#[cfg(all(test, feature = "_device"))]
use crate::decode::Pixels;
use crate::decode::{self, MAX_GROUP, MAX_IMAGES_PER_SAMPLE, Rect};
use crate::engine::reading::{BlockTimer, PrefetchedSamples, ReaderSwitch};
#[cfg(all(test, feature = "_device"))]
use crate::engine::settings::Share;
use crate::engine::state::Runtime;
#[cfg(test)]
use crate::engine::state::Shared;
use crate::error::{Result, guarded, panicked};
use crate::field::{ImageField, MixScratch};
use crate::recipe::{Recipe, frame_error};
#[cfg(test)]
use crate::sampler::Entry;
use crate::source::CancelToken;
use crate::trace::{Stage, nanos};

/// The buffers of one thread of the pool, which are reused from sample to sample. After each group
/// of samples, capacity beyond the worker's share of the memory
/// ([`Scratch`](crate::engine::Scratch)) is freed.
pub(crate) struct Worker {
    recipe: Arc<Recipe>,
    runtime: Arc<Runtime>,
    index: usize,
    /// One buffer per sample and read attempt. To the borrow checker, a failed read still borrows
    /// its buffer, so a retry needs a different one.
    encoded_buffers: [Box<[Vec<u8>]>; MAX_GROUP],
    buffers: Buffers,
    mixing: MixScratch,
}

impl Worker {
    pub(crate) fn new(recipe: Arc<Recipe>, runtime: Arc<Runtime>, index: usize) -> Self {
        Worker {
            index,
            encoded_buffers: std::array::from_fn(|_| vec![Vec::new(); recipe.retries + 1].into_boxed_slice()),
            buffers: Buffers::new(recipe.image_buffer_bytes()),
            mixing: MixScratch::default(),
            recipe,
            runtime,
        }
    }

    /// Fills the part of `task`, but skips the remaining rows if its run is canceled.
    /// `device_images` selects the images that the device decodes. Returns the full slot if this
    /// was the last part of the batch.
    pub(crate) fn fill_part(
        &mut self,
        task: Task,
        reader_switch: &ReaderSwitch,
        device_images: DeviceImages,
    ) -> Option<FilledSlot> {
        let Task { mut part, prefetched_samples, .. } = task;
        // Clear the old metadata, because a panic may leave a row unfilled.
        part.range().for_each(|row| {
            let meta = part.meta(row);
            meta.key.clear();
            meta.clear_texts();
            (meta.damaged_images, meta.damaged_field_images, meta.replaced_sample) = (0, 0, None);
            meta.image_area = Rect::default();
        });
        // User code is guarded separately, so a panic here is a bug or comes from the user's
        // logger. Finish the batch anyway, so that its slot is not lost.
        let cancel_token = self.runtime.cancel_token(part.header().run);
        let result = guarded(|| {
            cancel_token.run(|| self.fill_rows(&mut part, prefetched_samples.as_ref(), reader_switch, device_images));
            Ok(())
        });
        if let Err(e) = result {
            let (header, range) = (part.header(), part.range());
            let e = panicked(e, || {
                format!(
                    "a worker panicked while preparing samples {} to {} of batch {} of epoch {}",
                    range.start,
                    range.end - 1,
                    header.batch_index,
                    header.epoch
                )
            });
            range.for_each(|row| part.meta(row).fault = Some(e.clone()));
        }
        drop(prefetched_samples);
        let mut full = part.finish()?;
        if !self.runtime.is_current(full.header().run) {
            return Some(full);
        }
        let start = Instant::now();
        let finish_result = guarded(|| {
            self.recipe.finish(&mut full, &mut self.mixing);
            Ok(())
        });
        self.recipe.fields_of(full.header()).compute_launch_stats(&mut full);
        if full.header().mixing.is_some() {
            self.runtime.counters.worker(self.index).add_uncounted_time(Stage::Write, nanos(Instant::now(), start));
        }
        if let Err(e) = finish_result {
            let number = full.header().batch_index;
            let e = panicked(e, || format!("a worker panicked while finishing batch {number}"));
            (0..full.len()).for_each(|row| full.meta_mut(row).fault = Some(e.clone()));
        }
        Some(full)
    }

    /// Decodes the images of `part` that a device could not decode. Records errors on the affected
    /// sample, as if a worker had decoded the image in the first place. Returns the full slot if
    /// this was the last part of the batch.
    pub(crate) fn redecode(&mut self, mut part: SlotPart, request: &RedecodeRequest) -> Option<FilledSlot> {
        let range = part.range();
        for row in request.rows.iter().copied().filter(|row| range.contains(row)) {
            if !request.is_wanted() {
                break;
            }
            self.runtime.counters.worker(self.index).counts().device_failed_samples.bump();
            let watched_request = request.clone();
            let cancel_token = CancelToken::new(move || !watched_request.is_wanted());
            let result = guarded(|| cancel_token.run(|| self.redecode_sample(&mut part, row, request)));
            if let Err(e) = result {
                part.meta(row).fault = Some(e);
            }
            self.trim();
        }
        self.runtime.counters.worker(self.index).set_idle();
        let mut full = part.finish()?;
        if request.is_wanted() {
            let result = guarded(|| {
                self.recipe.finish_redecoded(&mut full, &request.rows);
                Ok(())
            });
            self.recipe.fields_of(full.header()).compute_launch_stats(&mut full);
            if let Err(e) = result {
                full.meta_mut(request.rows[0]).fault = Some(e);
            }
        }
        Some(full)
    }

    /// Decodes the images of the sample in row `row`, after its other fields have been written.
    fn redecode_sample(&mut self, part: &mut SlotPart, row: usize, request: &RedecodeRequest) -> Result<()> {
        let Worker { recipe, runtime, index, encoded_buffers, buffers, .. } = self;
        let Buffers { pixels: [pixels, ..], resizer, boxes, .. } = buffers;
        let &BatchHeader { epoch, variant, .. } = part.header();
        let (entry, share) = (part.header().entries[row], runtime.scratch.share());
        runtime.counters.worker(*index).enter(Stage::Decode, entry.sample);
        let sample = recipe.read((entry.sample, &entry), &mut encoded_buffers[0], || request.is_wanted());
        let sample = sample.map_err(|e| recipe.sample_error(entry.sample, "", e))?;
        recipe.check_size(&sample, entry.sample)?;
        // Combined images are never decoded on the device, so only this sample has to be read.
        // Decode all of its images again, so that each damaged image is counted exactly once, but
        // write only the images that were assigned to the device.
        part.meta(row).damaged_images = part.meta(row).damaged_field_images;
        let buffer_bytes = share.excess_buffer_bytes(sample.total_bytes());
        let mut damaged_images = ArrayVec::<&[u8], MAX_IMAGES_PER_SAMPLE>::new();
        for field in &recipe.fields_of(part.header()).images {
            let planned_image =
                recipe.plan_image(field.image_and_name(), &sample, (variant, epoch, &entry), None, (&[], boxes));
            let add_sample = |e| recipe.sample_error(entry.sample, sample.key(), e);
            let mut image = planned_image.map_err(add_sample)?;
            let (frames, mut damaged_frames) = (image.frames, 0);
            for frame in 0..frames.map_or(1, |frames| frames.len()) {
                let add_frame = |e| if frames.is_some() { frame_error(&field.name, frames, frame, e) } else { e };
                let mut encoded = match image.encoded_image.take() {
                    Some(encoded) => encoded,
                    None => recipe.open_frame(&field.name, &image, frame).map_err(add_sample)?,
                };
                let region = image.plan.region;
                let memory =
                    usize::try_from(encoded.decode_memory(region)).unwrap_or(usize::MAX).saturating_add(buffer_bytes);
                let is_large = memory > share.decode_bytes;
                let reservation = is_large.then(|| {
                    // A waiting worker must hold as little memory as possible.
                    pixels.release();
                    decode::release_scratch();
                    runtime.scratch.take(memory)
                });
                let result = guarded(|| {
                    encoded.decode(region, pixels)?;
                    let is_damaged = recipe.record_damage_at(entry.sample, sample.key(), pixels, add_frame);
                    damaged_frames += u32::from(is_damaged);
                    if field.decodes_on_device(part, (row, frame)) {
                        field.write_redecoded(pixels, &image.plan, resizer, part, (row, frame))?;
                    }
                    Ok(())
                });
                if is_large {
                    pixels.release();
                    decode::release_scratch();
                }
                drop(reservation);
                result.map_err(|e| add_sample(add_frame(e)))?;
            }
            if damaged_frames > 0 && !damaged_images.iter().any(|other| std::ptr::eq(*other, image.bytes)) {
                damaged_images.push(image.bytes);
                part.meta(row).damaged_images += damaged_frames;
            }
        }
        Ok(())
    }

    fn fill_rows(
        &mut self,
        part: &mut SlotPart,
        prefetched_samples: Option<&PrefetchedSamples>,
        reader_switch: &ReaderSwitch,
        device_images: DeviceImages,
    ) {
        let mut rows = part.range();
        let (fill_start, mut wait_ns) = (Instant::now(), 0);
        while !rows.is_empty() && self.runtime.is_current(part.header().run) {
            if prefetched_samples.is_none() && self.recipe.can_copy {
                let mut timer = BlockTimer::new();
                let rows_before = rows.len();
                copier::copy(&self.recipe, &self.runtime, self.index, part, &mut rows);
                wait_ns += timer.take_blocked_ns(rows_before - rows.len());
                if rows.is_empty() {
                    break;
                }
            }
            wait_ns += self.fill_group(part, prefetched_samples, &mut rows, device_images);
            self.trim();
        }
        if prefetched_samples.is_none() {
            reader_switch.record_worker_part(wait_ns, nanos(Instant::now(), fill_start));
        }
        self.runtime.counters.worker(self.index).set_idle();
    }

    fn trim(&mut self) {
        let share = self.runtime.scratch.share();
        let encoded_capacity = self.encoded_buffers.iter().flatten().map(Vec::capacity).sum::<usize>();
        if encoded_capacity > share.encoded_bytes {
            self.encoded_buffers.iter_mut().flatten().for_each(|buffer| *buffer = Vec::new());
        }
        self.buffers.trim(share);
    }

    /// Fills rows from the front of `rows`, as many as can be decoded together, or fewer if the
    /// encoded samples are large. Removes these rows from `rows`. Returns the time for which reads
    /// blocked in ns, or 0 if a reader has read the part.
    fn fill_group(
        &mut self,
        part: &mut SlotPart,
        prefetched_samples: Option<&PrefetchedSamples>,
        rows: &mut Range<usize>,
        device_images: DeviceImages,
    ) -> u64 {
        let Worker { recipe, runtime, index, encoded_buffers, buffers, .. } = self;
        let (recipe, runtime): (&Recipe, &Runtime) = (recipe, runtime);
        let meter = Meter::new(&runtime.counters, *index, part.header());
        let may_decode_on_device = recipe.any_fields().images.iter().any(ImageField::may_decode_on_device);
        let device_images = if may_decode_on_device { device_images } else { DeviceImages::None };
        let mut filler = PartFiller { recipe, runtime, buffers, device_images, part, meter };
        let mut timer = prefetched_samples.is_none().then(BlockTimer::new);
        let mut group = filler.read_group(encoded_buffers, prefetched_samples, rows);
        let wait_ns = timer.as_mut().map_or(0, |timer| timer.take_blocked_ns(group.samples.len()));
        let share = runtime.scratch.share();
        while !group.samples.is_empty() {
            let total_memory = group.samples.iter().fold(0, |sum: usize, sample| sum.saturating_add(sample.memory));
            if total_memory <= share.decode_bytes {
                filler.free_buffers(&group.samples);
                filler.process(group);
                break;
            }
            let first_memory = group.samples[0].memory;
            let (count, reservation) = match runtime.scratch.try_take(total_memory) {
                Some(reservation) => (group.samples.len(), Some(reservation)),
                None if first_memory <= share.decode_bytes => (count_fitting(&group.samples, share), None),
                None => {
                    // A waiting worker must hold as little memory as possible.
                    filler.release();
                    (1, Some(runtime.scratch.take(first_memory)))
                }
            };
            if !runtime.is_current(filler.part.header().run) {
                return wait_ns;
            }
            // Without shared memory, these samples and the buffers from earlier images must fit
            // into the worker's own share.
            if reservation.is_none() {
                filler.free_buffers(&group.samples[..count]);
            }
            filler.process(group.drain_front(count));
            if first_memory > share.decode_bytes {
                filler.release();
            }
            filler.buffers.trim(share);
        }
        wait_ns
    }
}

/// Fills a slot with the first `sample_count` samples as a single part.
#[cfg(test)]
pub(crate) fn fill_slot(
    shared: &Shared,
    slot: crate::batch::FreeSlot,
    sample_count: u64,
    mixing: Option<crate::transform::Mixing>,
    device_images: DeviceImages,
) -> (FilledSlot, Worker) {
    let mut worker = Worker::new(shared.recipe.clone(), shared.runtime.clone(), 0);
    let entries = (0..sample_count).map(|sample| Entry { sample, variant: 0, valid: true });
    let begin = |header: &mut crate::batch::BatchHeader| {
        header.entries.extend(entries);
        header.mixing = mixing;
    };
    let part = slot.begin(sample_count as usize, begin).next().expect("the slot has one part");
    let full =
        worker.fill_part(Task { part, prefetched_samples: None, redecode: None }, &ReaderSwitch::new(), device_images);
    (full.expect("finishing the only part returns the slot"), worker)
}

/// Fills the first `sample_count` rows of a slot without decoding the images that a device would
/// decode. Returns the number of these images, the number of bytes that the worker retains, and the
/// number that it may retain.
#[cfg(all(test, feature = "_device"))]
pub(crate) fn memory_after_fill(
    shared: &Shared,
    slot: crate::batch::FreeSlot,
    sample_count: u64,
) -> (u64, usize, usize) {
    let runtime = &shared.runtime;
    let (full, worker) = fill_slot(shared, slot, sample_count, None, DeviceImages::All);
    assert!((0..full.len()).all(|row| full.meta(row).fault.is_none()));
    let encoded_capacity: usize = worker.encoded_buffers.iter().flatten().map(Vec::capacity).sum();
    let pixel_capacity: usize = worker.buffers.pixels.iter().map(Pixels::capacity).sum();
    let Share { decode_bytes, encoded_bytes, retained_bytes } = runtime.scratch.share();
    (
        runtime.counters.stats().images_sent_to_device,
        encoded_capacity + pixel_capacity + worker.buffers.bitstream.memory(),
        decode_bytes + encoded_bytes + retained_bytes,
    )
}

/// Fills a slot with the first `sample_count` samples. Returns the number of images that workers
/// have left to the device since the loader was opened.
#[cfg(all(test, feature = "_device"))]
pub(crate) fn images_left_to_device(
    shared: &Shared,
    slot: crate::batch::FreeSlot,
    sample_count: u64,
    device_images: DeviceImages,
) -> u64 {
    let (full, _) = fill_slot(shared, slot, sample_count, None, device_images);
    assert!((0..full.len()).all(|row| full.meta(row).fault.is_none()));
    shared.runtime.counters.stats().images_sent_to_device
}

/// Fills a slot with the first sample, and decodes its images again, as if a device had failed.
/// Returns the largest number of bytes that the second decode took from the shared memory at once.
#[cfg(all(test, feature = "_device"))]
pub(crate) fn redecode_memory(shared: &Shared, slot: crate::batch::FreeSlot) -> usize {
    let runtime = &shared.runtime;
    let (full, mut worker) = fill_slot(shared, slot, 1, None, DeviceImages::All);
    runtime.scratch.take_largest_grant();
    let token = Arc::new(());
    let request =
        RedecodeRequest { rows: Arc::from([0]), live_token: Arc::downgrade(&token), on_done: Arc::new(|_| {}) };
    let part = full.split_for_refill(1, &request.rows).next().expect("the slot has one part");
    let full = worker.redecode(part, &request).expect("finishing the only part returns the slot");
    assert!(full.meta(0).fault.is_none(), "{:?}", full.meta(0).fault);
    runtime.scratch.take_largest_grant()
}
