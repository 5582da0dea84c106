//! A worker, which processes parts of batches and owns the memory that this requires.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;

use super::filler::{PartFiller, fitting};
use super::meter::Meter;
use super::task::{Again, Task};
use crate::batch::{Full, Part};
use crate::decode::{self, Bitstream, MAX_GROUP, MAX_IMAGES, MAX_PLANNED, Pixels, Rect};
use crate::engine::reading::{Fetched, Waits, Watch};
use crate::engine::settings::Share;
use crate::engine::state::Run;
#[cfg(test)]
use crate::engine::state::Shared;
use crate::error::{Result, guarded, panicked};
use crate::field::{ImageField, MixScratch, Pasted};
use crate::recipe::{Recipe, Shot};
#[cfg(test)]
use crate::sampler::Entry;
use crate::source::CancelToken;
use crate::trace::{Stage, nanos};
use crate::transform::Resizer;

/// One worker and its memory. Buffers are reused from sample to sample, up to the worker's own
/// share ([`Scratch`](crate::engine::Scratch)).
pub(crate) struct Worker {
    recipe: Arc<Recipe>,
    run: Arc<Run>,
    index: usize,
    /// One buffer per sample and attempt. A failed attempt may still borrow its buffer.
    encoded: [Box<[Vec<u8>]>; MAX_GROUP],
    /// One buffer per decoded image. Images that are cut from the same decoded image share a
    /// buffer.
    pixels: [Pixels; MAX_PLANNED],
    image: Vec<u8>,
    resizer: Resizer,
    /// The objects that are pasted into an image.
    pasted: Pasted,
    mixing: MixScratch,
    /// Boxes of the current sample, if its plan depends on them.
    boxes: Vec<[f32; 4]>,
    /// Entropy-coded data of an image, for decoding on a device.
    bitstream: Bitstream,
}

impl Worker {
    pub(crate) fn new(recipe: Arc<Recipe>, run: Arc<Run>, index: usize) -> Self {
        Worker {
            index,
            encoded: std::array::from_fn(|_| vec![Vec::new(); recipe.retries + 1].into_boxed_slice()),
            pixels: Default::default(),
            image: vec![0; recipe.image_room()],
            resizer: Resizer::new(),
            pasted: Pasted::default(),
            mixing: MixScratch::default(),
            boxes: Vec::new(),
            bitstream: Bitstream::default(),
            recipe,
            run,
        }
    }

    /// Fills the part of `task`, unless the part's run has been cancelled. Leaves images to the
    /// device if `leave` is true. The last worker to finish a part of the batch returns the full
    /// slot.
    pub(crate) fn run(&mut self, task: Task, waits: &Waits, leave: bool) -> Option<Full> {
        let Task { mut part, fetched, .. } = task;
        // After a panic, some samples may not have been filled. They must not retain the keys of an
        // earlier batch.
        part.range().for_each(|place| {
            let meta = part.meta(place);
            meta.key.clear();
            meta.clear_texts();
            (meta.damaged, meta.replaced) = (0, None);
            meta.shown = Rect::default();
        });
        // User code is guarded separately. A panic here is a bug, or comes from the user's logger.
        // Processing of the batch continues, because otherwise its slot would be lost.
        let stop = self.run.stop(part.header().run);
        let filled = guarded(|| {
            stop.during(|| self.fill(&mut part, fetched.as_ref(), waits, leave));
            Ok(())
        });
        if let Err(e) = filled {
            let (header, range) = (part.header(), part.range());
            let e = panicked(e, || {
                format!(
                    "a worker panicked at samples {} to {} of batch {} of epoch {}",
                    range.start,
                    range.end - 1,
                    header.number,
                    header.epoch
                )
            });
            range.for_each(|place| part.meta(place).fault = Some(e.clone()));
        }
        drop(fetched);
        let mut full = part.finish()?;
        if !self.run.is_wanted(full.header().run) {
            return Some(full);
        }
        let start = Instant::now();
        let finished = guarded(|| {
            self.recipe.finish(&mut full, &mut self.mixing);
            Ok(())
        });
        self.recipe.fields_of(full.header()).measure(&mut full);
        if full.header().mixing.is_some() {
            self.run.counters.worker(self.index).spent_more(Stage::Write, nanos(Instant::now(), start));
        }
        if let Err(e) = finished {
            let number = full.header().number;
            let e = panicked(e, || format!("a worker panicked at the end of batch {number}"));
            // The batch may be partly finished, so all its samples fail.
            (0..full.len()).for_each(|place| full.meta_mut(place).fault = Some(e.clone()));
        }
        Some(full)
    }

    /// Decodes the images of a part that a device could not decode. The last worker to finish a
    /// part of the batch returns the full slot. Errors are stored with the sample, as if a worker
    /// had decoded it in the first place.
    pub(crate) fn run_again(&mut self, mut part: Part, again: &Again) -> Option<Full> {
        let range = part.range();
        for place in again.places.iter().copied().filter(|place| range.contains(place)) {
            if !again.is_wanted() {
                break;
            }
            let of = again.clone();
            let stop = CancelToken::new(move || !of.is_wanted());
            let made = guarded(|| stop.during(|| self.make_again(&mut part, place, again)));
            if let Err(e) = made {
                part.meta(place).fault = Some(e);
            }
            self.trim();
        }
        self.run.counters.worker(self.index).idle();
        let mut full = part.finish()?;
        if again.is_wanted() {
            let finished = guarded(|| {
                self.recipe.finish_again(&mut full, &again.places);
                Ok(())
            });
            self.recipe.fields_of(full.header()).measure(&mut full);
            if let Err(e) = finished {
                full.meta_mut(again.places[0]).fault = Some(e);
            }
        }
        Some(full)
    }

    /// Decodes the images of the sample at `place`. The other fields of the sample have already
    /// been written.
    fn make_again(&mut self, part: &mut Part, place: usize, again: &Again) -> Result<()> {
        let Worker { recipe, run, index, encoded, pixels: [pixels, ..], resizer, boxes, .. } = self;
        let (entry, epoch, share) = (part.header().entries[place], part.header().epoch, run.scratch.share());
        run.counters.worker(*index).enter(Stage::Decode, entry.sample);
        let sample = recipe.read(entry.sample, &mut encoded[0], || again.is_wanted());
        let sample = sample.map_err(|e| recipe.at_sample(entry.sample, "", e))?;
        recipe.check_length(&sample, entry.sample)?;
        // Mosaics are never left to the device, so the sample is a single image. Images that a
        // worker already decoded are decoded again, so the count of damaged images restarts at 0.
        part.meta(place).damaged = 0;
        let buffer = share.admitted(sample.memory());
        let mut damaged = ArrayVec::<&[u8], MAX_IMAGES>::new();
        for field in &recipe.fields_of(part.header()).images {
            let shot = recipe.plan(field.described(), &sample, (epoch, &entry), None, (&[], boxes));
            let Shot { bytes, opened, plan, .. } = shot.map_err(|e| recipe.at_sample(entry.sample, sample.key(), e))?;
            let mut encoded = opened.expect("it has not been decoded");
            let memory = usize::try_from(encoded.memory(plan.region)).unwrap_or(usize::MAX).saturating_add(buffer);
            let large = memory > share.decode;
            let hold = large.then(|| {
                // Release buffers before blocking.
                pixels.release();
                decode::release();
                run.scratch.take(memory)
            });
            let made = guarded(|| {
                encoded.decode(plan.region, pixels)?;
                let is_damaged = recipe.note_damage(entry.sample, sample.key(), pixels);
                if is_damaged && !damaged.iter().any(|before| std::ptr::eq(*before, bytes)) {
                    damaged.push(bytes);
                    part.meta(place).damaged += 1;
                }
                field.take_back(pixels, &plan, resizer, part, place)
            });
            if large {
                pixels.release();
                decode::release();
            }
            drop(hold);
            made.map_err(|e| recipe.at_sample(entry.sample, sample.key(), e))?;
        }
        Ok(())
    }

    fn fill(&mut self, part: &mut Part, fetched: Option<&Fetched>, waits: &Waits, leave: bool) {
        let mut places = part.range();
        let (start, mut waited) = (Instant::now(), 0);
        while !places.is_empty() && self.run.is_wanted(part.header().run) {
            waited += self.round(part, fetched, &mut places, leave);
            self.trim();
        }
        if fetched.is_none() {
            waits.worker_saw(waited, nanos(Instant::now(), start));
        }
        self.run.counters.worker(self.index).idle();
    }

    /// Frees memory that exceeds the worker's own share.
    fn trim(&mut self) {
        let share = self.run.scratch.share();
        let encoded = self.encoded.iter().flatten().map(Vec::capacity).sum::<usize>();
        if encoded > share.encoded {
            self.encoded.iter_mut().flatten().for_each(|buffer| *buffer = Vec::new());
        }
        keep(&mut self.pixels, share.decode);
        keep_for_decoding(&mut self.bitstream, share);
    }

    /// Fills samples from the front of `places`: as many as there are buffers, or fewer if the
    /// encoded samples are large. Returns the time in ns that was spent waiting for reads.
    fn round(&mut self, part: &mut Part, fetched: Option<&Fetched>, places: &mut Range<usize>, leave: bool) -> u64 {
        let Worker { recipe, run, index, encoded, pixels, image, resizer, pasted, boxes, bitstream, .. } = self;
        let (recipe, run): (&Recipe, &Run) = (recipe, run);
        let meter = Meter::new(&run.counters, *index, part.header());
        let leaves = leave && recipe.any_fields().images.iter().any(ImageField::may_be_left);
        let mut filler =
            PartFiller { recipe, run, pixels, image, resizer, pasted, boxes, bitstream, leaves, part, meter };
        let mut watch = fetched.is_none().then(Watch::new);
        let mut group = filler.read(encoded, fetched, places);
        let waited = watch.as_mut().map_or(0, |watch| watch.waited(group.samples.len()));
        let share = run.scratch.share();
        while !group.samples.is_empty() {
            let all = group.samples.iter().fold(0, |sum: usize, taken| sum.saturating_add(taken.memory));
            if all <= share.decode {
                filler.make_room(&group.samples);
                filler.make(group);
                break;
            }
            let first = group.samples[0].memory;
            let (count, hold) = match run.scratch.try_take(all) {
                Some(hold) => (group.samples.len(), Some(hold)),
                None if first <= share.decode => (fitting(&group.samples, share), None),
                None => {
                    // Release buffers before blocking.
                    filler.release();
                    (1, Some(run.scratch.take(first)))
                }
            };
            if !run.is_wanted(filler.part.header().run) {
                return waited;
            }
            // Memory that was admitted comes on top of the worker's own share.
            if hold.is_none() {
                filler.make_room(&group.samples[..count]);
            }
            filler.make(group.split(count));
            if first > share.decode {
                filler.release();
            }
            keep(filler.pixels, share.decode);
            keep_for_decoding(filler.bitstream, share);
        }
        waited
    }
}

/// Frees buffers of `pixels` until at most `limit` bytes remain, starting at the end, because the
/// first buffers are used most.
fn keep(pixels: &mut [Pixels], limit: usize) {
    let mut left = limit;
    for pixels in pixels {
        match left.checked_sub(pixels.capacity()) {
            Some(less) => left = less,
            None => pixels.release(),
        }
    }
}

/// Frees memory that exceeds the part of the share that is reused from image to image. Data for a
/// device may use half of that part, and decoders may use the other half.
fn keep_for_decoding(bitstream: &mut Bitstream, share: Share) {
    bitstream.keep(share.kept / 2);
    decode::keep(share.kept - bitstream.memory());
}

/// Fills a slot with the first `samples` samples as a single part, mixed according to `mixing`.
/// Leaves the images to a device if `leave` is true. Returns the batch and the worker.
#[cfg(test)]
pub(crate) fn filled(
    shared: &Shared,
    slot: crate::batch::Free,
    (samples, mixing): (u64, Option<crate::transform::Mixing>),
    leave: bool,
) -> (Full, Worker) {
    let mut worker = Worker::new(shared.recipe.clone(), shared.run.clone(), 0);
    let entries = (0..samples).map(|sample| Entry { sample, variant: 0, valid: true });
    let begin = |header: &mut crate::batch::Header| {
        header.entries.extend(entries);
        header.mixing = mixing;
    };
    let part = slot.begin(samples as usize, begin).next().expect("one part");
    let full = worker.run(Task { part, fetched: None, again: None }, &Waits::new(), leave);
    (full.expect("the only part"), worker)
}

/// Fills the first `samples` rows of a slot, and leaves the images to a device. Returns the number
/// of images left, the bytes that the worker retains, and the size of its share.
#[cfg(all(test, feature = "_device"))]
pub(crate) fn kept_after(shared: &Shared, slot: crate::batch::Free, samples: u64) -> (u64, usize, usize) {
    let run = &shared.run;
    let (full, worker) = filled(shared, slot, (samples, None), true);
    assert!((0..full.len()).all(|place| full.meta(place).fault.is_none()));
    let encoded: usize = worker.encoded.iter().flatten().map(Vec::capacity).sum();
    let pixels: usize = worker.pixels.iter().map(Pixels::capacity).sum();
    let Share { decode, encoded: read, kept } = run.scratch.share();
    (run.counters.stats().decoded_on_device, encoded + pixels + worker.bitstream.memory(), decode + read + kept)
}

/// Fills a slot with the first sample, and decodes its images again, as if a device had failed to
/// decode them. Returns the amount of shared memory, in bytes, that the second decoding requested.
#[cfg(all(test, feature = "_device"))]
pub(crate) fn taken_again(shared: &Shared, slot: crate::batch::Free) -> usize {
    let run = &shared.run;
    let (full, mut worker) = filled(shared, slot, (1, None), true);
    run.scratch.most_taken();
    let wanted = Arc::new(());
    let again = Again { places: Arc::from([0]), wanted: Arc::downgrade(&wanted), done: Arc::new(|_| {}) };
    let part = full.again(1, &again.places).next().expect("one part");
    let full = worker.run_again(part, &again).expect("the only part");
    assert!(full.meta(0).fault.is_none(), "{:?}", full.meta(0).fault);
    run.scratch.most_taken()
}
