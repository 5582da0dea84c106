//! Processes parts of batches: reads, plans, decodes, transforms and writes samples.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;

use super::meter::{Meter, Timed};
use super::task::{Again, Task};
use crate::batch::{Full, Part, Row};
use crate::cuda::DecodeOps;
use crate::decode::{self, Bitstream, Job, MAX_GROUP, MAX_IMAGES, MAX_PLANNED, Pixels};
use crate::engine::reading::{Fetched, Waits, Watch};
use crate::engine::settings::Share;
use crate::engine::state::Run;
use crate::error::{Result, guarded, panicked};
use crate::field::{Image, ImageField, MixScratch};
use crate::order::Entry;
use crate::recipe::{self, Planned, Recipe};
use crate::source::{Sample, Stop};
use crate::trace::{Stage, StageMap, nanos};
use crate::transform::{Plan, Resizer};

/// Maximum bytes of pixels for which the pixels alone count as a picture's memory, if eight such
/// pictures fit into a worker's own share. Decoders estimate the memory of larger pictures.
const SMALL: u64 = 1 << 20;

/// One worker, with its memory. The memory is kept from sample to sample, up to the worker's own
/// share ([`Scratch`](crate::engine::Scratch)).
pub(crate) struct Worker {
    recipe: Arc<Recipe>,
    run: Arc<Run>,
    index: usize,
    /// One buffer per sample and attempt. A failed attempt may still borrow its buffer.
    encoded: [Box<[Vec<u8>]>; MAX_GROUP],
    /// One buffer per image that is decoded. An image that is decoded with another one uses its buffer.
    pixels: [Pixels; MAX_PLANNED],
    image: Vec<u8>,
    resizer: Resizer,
    mixing: MixScratch,
    /// Boxes of a sample whose plan depends on them.
    boxes: Vec<[f32; 4]>,
    /// Entropy-coded data of a picture that a device decodes.
    bitstream: Bitstream,
}

/// A sample that was read.
struct Taken<'a> {
    place: usize,
    sample: Sample<'a>,
    timed: Timed<'a>,
    /// Bytes of memory that decoding its images and computing its fields takes.
    memory: usize,
    /// The plan of its picture in a loader without images, if fields follow the picture.
    shown: Option<Box<Plan>>,
}

/// Samples that are decoded together, with their images.
#[derive(Default)]
struct Group<'a> {
    samples: ArrayVec<Taken<'a>, MAX_GROUP>,
    images: ArrayVec<Planned<'a>, MAX_PLANNED>,
}

impl Worker {
    pub(crate) fn new(recipe: Arc<Recipe>, run: Arc<Run>, index: usize) -> Self {
        Worker {
            index,
            encoded: std::array::from_fn(|_| vec![Vec::new(); recipe.retries + 1].into_boxed_slice()),
            pixels: Default::default(),
            image: vec![0; recipe.fields.largest_image()],
            resizer: Resizer::new(),
            mixing: MixScratch::default(),
            boxes: Vec::new(),
            bitstream: Bitstream::default(),
            recipe,
            run,
        }
    }

    /// Fills the part of `task`, unless its run is cancelled. Leaves pictures to the device if `leave`
    /// is true. The last part of a batch to end returns the full slot.
    pub(crate) fn run(&mut self, task: Task, waits: &Waits, leave: bool) -> Option<Full> {
        let Task { mut part, fetched, .. } = task;
        // A panic may leave samples unread. They must not have the keys of an earlier batch.
        part.range().for_each(|place| {
            let meta = part.meta(place);
            meta.key.clear();
            meta.damaged = 0;
        });
        // Calls of the user's code are guarded separately. A panic here is a defect, or comes from the
        // user's logger. The batch continues, because its slot would be lost otherwise.
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
        self.recipe.fields.measure(&mut full);
        if full.header().mixing.is_some() {
            self.run.counters.worker(self.index).spent_more(Stage::Write, nanos(Instant::now(), start));
        }
        if let Err(e) = finished {
            let number = full.header().number;
            let e = panicked(e, || format!("a worker panicked at the end of batch {number}"));
            // The batch may be finished in part, so none of its samples counts.
            (0..full.len()).for_each(|place| full.meta_mut(place).fault = Some(e.clone()));
        }
        Some(full)
    }

    /// Decodes the pictures of a part that a device could not decode. The last part of a batch to end
    /// returns the full slot. A failure is a fault of the sample, as if a worker had decoded it first.
    pub(crate) fn run_again(&mut self, mut part: Part, again: &Again) -> Option<Full> {
        let range = part.range();
        for place in again.places.iter().copied().filter(|place| range.contains(place)) {
            if !again.is_wanted() {
                break;
            }
            let of = again.clone();
            let stop = Stop::new(move || !of.is_wanted());
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
            self.recipe.fields.measure(&mut full);
            if let Err(e) = finished {
                full.meta_mut(again.places[0]).fault = Some(e);
            }
        }
        Some(full)
    }

    /// Decodes the pictures of the sample at `place`, whose other fields are already written.
    fn make_again(&mut self, part: &mut Part, place: usize, again: &Again) -> Result<()> {
        let Worker { recipe, run, index, encoded, pixels: [pixels, ..], resizer, boxes, .. } = self;
        let (entry, epoch, share) = (part.header().entries[place], part.header().epoch, run.scratch.share());
        run.counters.worker(*index).enter(Stage::Decode, entry.sample);
        let sample = recipe.read(entry.sample, &mut encoded[0], || again.is_wanted());
        let sample = sample.map_err(|e| recipe.at_sample(entry.sample, "", e))?;
        recipe.check_length(&sample, &entry)?;
        // Those that a worker decoded before are decoded again.
        part.meta(place).damaged = 0;
        let buffer = share.admitted(sample.memory());
        let mut damaged = ArrayVec::<&[u8], MAX_IMAGES>::new();
        for field in &recipe.fields.images {
            let Planned { bytes, picture, plan, .. } =
                recipe.plan(field.described(), &sample, (epoch, &entry), &[], boxes)?;
            let mut picture = picture.expect("it waits to be decoded");
            let memory = usize::try_from(picture.memory(plan.region)).unwrap_or(usize::MAX).saturating_add(buffer);
            let large = memory > share.decode;
            let hold = large.then(|| {
                // Release buffers before blocking.
                pixels.release();
                decode::release();
                run.scratch.take(memory)
            });
            let made = guarded(|| {
                picture.decode(plan.region, pixels)?;
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

    /// Frees memory beyond the worker's own share.
    fn trim(&mut self) {
        let share = self.run.scratch.share();
        let encoded = self.encoded.iter().flatten().map(Vec::capacity).sum::<usize>();
        if encoded > share.encoded {
            self.encoded.iter_mut().flatten().for_each(|buffer| *buffer = Vec::new());
        }
        keep(&mut self.pixels, share.decode);
        keep_for_decoding(&mut self.bitstream, share);
    }

    /// Fills the next of `places`: one per buffer, or fewer if their encoded bytes are large. Returns
    /// the time in ns that reading waited.
    fn round(&mut self, part: &mut Part, fetched: Option<&Fetched>, places: &mut Range<usize>, leave: bool) -> u64 {
        let Worker { recipe, run, index, encoded, pixels, image, resizer, boxes, bitstream, .. } = self;
        let (recipe, run): (&Recipe, &Run) = (recipe, run);
        let meter = Meter::new(&run.counters, *index, part.header());
        let leaves = leave && recipe.fields.images.iter().any(ImageField::may_be_left);
        let mut filler = PartFiller { recipe, run, pixels, image, resizer, boxes, bitstream, leaves, part, meter };
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
            // Memory that is held comes in addition to the worker's own share.
            if hold.is_none() {
                filler.make_room(&group.samples[..count]);
            }
            filler.make(group.split(count, recipe.fields.images.len()));
            if first > share.decode {
                filler.release();
            }
            keep(filler.pixels, share.decode);
            keep_for_decoding(filler.bitstream, share);
        }
        waited
    }
}

impl Group<'_> {
    /// Takes the first `count` samples out, with `images` images each.
    fn split(&mut self, count: usize, images: usize) -> Self {
        Group { samples: self.samples.drain(..count).collect(), images: self.images.drain(..count * images).collect() }
    }
}

/// Number of `samples`, counted from the first, that fit into a worker's own share.
fn fitting(samples: &[Taken<'_>], share: Share) -> usize {
    let mut sum = 0_usize;
    samples
        .iter()
        .take_while(|taken| {
            // An estimate by the user's codec may be arbitrarily large.
            sum = sum.saturating_add(taken.memory);
            sum <= share.decode
        })
        .count()
}

/// Frees memory of `pixels` beyond `limit` bytes, starting at the end: the first buffers are used most.
fn keep(pixels: &mut [Pixels], limit: usize) {
    let mut left = limit;
    for pixels in pixels {
        match left.checked_sub(pixels.capacity()) {
            Some(less) => left = less,
            None => pixels.release(),
        }
    }
}

/// Frees memory beyond the share that is kept between pictures. Data for a device may keep half of
/// the share, and decoders the rest.
fn keep_for_decoding(bitstream: &mut Bitstream, share: Share) {
    bitstream.keep(share.kept / 2);
    decode::keep(share.kept - bitstream.memory());
}

/// Fills the samples of a part, with the memory of a worker.
struct PartFiller<'a> {
    recipe: &'a Recipe,
    run: &'a Run,
    pixels: &'a mut [Pixels; MAX_PLANNED],
    image: &'a mut [u8],
    resizer: &'a mut Resizer,
    boxes: &'a mut Vec<[f32; 4]>,
    /// Scratch for pictures that are left to the device, and whether they are.
    bitstream: &'a mut Bitstream,
    leaves: bool,
    part: &'a mut Part,
    meter: Meter<'a>,
}

impl<'a> PartFiller<'a> {
    /// Reads and plans the next of `places`.
    fn read(
        &mut self,
        encoded: &'a mut [Box<[Vec<u8>]>],
        fetched: Option<&'a Fetched>,
        places: &mut Range<usize>,
    ) -> Group<'a> {
        let (recipe, run, share) = (self.recipe, self.run, self.run.scratch.share());
        let first = self.part.range().start;
        let mut group = Group::default();
        // Bytes that sources may have copied.
        let mut held = 0;
        for buffers in encoded.iter_mut().take(self.most()) {
            let Some(place) = places.next() else { break };
            let entry = self.part.header().entries[place];
            let mut timed = Timed { id: entry.sample, key: "", ns: StageMap::default(), slowest: (0, 0) };
            self.meter.enter(Stage::Read, entry.sample);
            let meta = self.part.meta(place);
            meta.fault = None;
            let number = self.part.header().run;
            let go_on = || run.tries_again(number);
            let ahead = fetched.and_then(|fetched| fetched.sample(place - first));
            let ahead_ns = ahead.as_ref().map(|ahead| ahead.1);
            let read = ahead.map_or_else(|| recipe.read(entry.sample, buffers, go_on), |ahead| ahead.0);
            let read = read.map_err(|e| recipe.at_sample(entry.sample, "", e)).and_then(|sample| {
                timed.key = sample.key();
                self.part.meta(place).key.push_str(sample.key());
                recipe.check_length(&sample, &entry)?;
                let (memory, shown) = self.plan(&sample, &entry, &mut group)?;
                Ok((sample, memory, shown))
            });
            match read {
                Ok((sample, memory, shown)) => {
                    let bytes = sample.memory();
                    // Samples that were read ahead have a bound of their own.
                    let copied = if ahead_ns.is_some() { 0 } else { bytes };
                    let (buffer, memory) = (Share::buffer(copied), memory.saturating_add(share.admitted(copied)));
                    self.meter.stage(Stage::Read, &mut timed, bytes);
                    timed.ns[Stage::Read] += ahead_ns.unwrap_or(0);
                    group.samples.push(Taken { place, sample, timed, memory, shown });
                    held += buffer;
                    // Another sample of this size might exceed the share.
                    if held + buffer > share.encoded {
                        break;
                    }
                }
                // The time of a failed sample, including pauses before retries, must not count for
                // the next sample.
                Err(e) => {
                    group.images.truncate(group.samples.len() * self.images());
                    self.meter.stage(Stage::Read, &mut timed, 0);
                    timed.ns[Stage::Read] += ahead_ns.unwrap_or(0);
                    self.meter.done(&timed);
                    self.part.meta(place).fault = Some(e);
                }
            }
        }
        group
    }

    /// Number of images per sample.
    fn images(&self) -> usize {
        self.recipe.fields.images.len()
    }

    /// Number of samples that are decoded together.
    fn most(&self) -> usize {
        (MAX_PLANNED / self.images().max(1)).min(MAX_GROUP)
    }

    /// Plans the images of a sample. Returns the bytes of memory that decoding them and computing
    /// its fields takes, and the plan of a picture that is no image.
    fn plan(
        &mut self,
        sample: &Sample<'a>,
        entry: &Entry,
        group: &mut Group<'a>,
    ) -> Result<(usize, Option<Box<Plan>>)> {
        // If memory is scarce, the scratch of codecs counts too.
        let share = self.run.scratch.share();
        let ample = share.decode as u64 >= SMALL * MAX_GROUP as u64;
        let epoch = self.part.header().epoch;
        let (fields, first) = (&self.recipe.fields.images, group.images.len());
        for field in fields {
            let planned =
                self.recipe.plan(field.described(), sample, (epoch, entry), &group.images[first..], self.boxes)?;
            group.images.push(planned);
        }
        // A device takes pictures one by one.
        if !self.leaves {
            recipe::share(&mut group.images[first..], share.decode as u64);
        }
        // Pictures are copied for the device one at a time.
        let (mut memory, mut copied) = (0, 0);
        for (field, planned) in fields.iter().zip(&group.images[first..]) {
            let Some(picture) = &planned.picture else { continue };
            if picture.is_plain_jpeg() {
                self.meter.plain_jpeg();
            }
            let all = picture.size().area().saturating_mul(3);
            let one = if ample && all <= SMALL { all } else { picture.memory(planned.region) };
            let one = if self.recipe.strict { one.saturating_add(picture.check_memory()) } else { one };
            memory = usize::saturating_add(memory, usize::try_from(one).unwrap_or(usize::MAX));
            if self.leaves && field.may_be_left() {
                copied = copied.max(picture.bitstream_memory(planned.plan.region, self.part.encoded_room()));
            }
        }
        let shown = match &self.recipe.fields.shown {
            Some(name) => {
                let picture = (&Image::new(), &**name);
                Some(Box::new(self.recipe.plan(picture, sample, (epoch, entry), &[], self.boxes)?.plan))
            }
            None => None,
        };
        let plan = self.recipe.fields.followed.map(|number| &group.images[first + number].plan);
        let plan = plan.or(shown.as_deref());
        let computed = self.recipe.memory(sample, plan, entry)?;
        let memory = memory.saturating_add(usize::try_from(computed).unwrap_or(usize::MAX));
        Ok((if copied > share.kept / 2 { memory.saturating_add(copied) } else { memory }, shown))
    }

    /// Decodes, transforms and writes the images of `group`.
    fn make(&mut self, mut group: Group<'a>) {
        let each = self.images();
        if let Some(first) = group.samples.first().filter(|_| each > 0) {
            self.meter.enter(Stage::Decode, first.timed.id);
            self.meter.lap();
        }
        let mut results = self.judge(&mut group);
        let left = self.leave(&group, &results);
        let PartFiller { recipe, pixels, image, resizer, part, meter, .. } = self;
        let Group { mut samples, mut images } = group;

        if each > 0 && !samples.is_empty() {
            let time = |image: &Planned<'_>, left| if image.with.is_some() { Some(0) } else { left };
            let mut pictures: ArrayVec<_, MAX_PLANNED> =
                images.iter().zip(&left).map(|(image, &left)| (image.encoded_bytes(), 0, time(image, left))).collect();
            let mut jobs = ArrayVec::<Job<'_>, MAX_PLANNED>::new();
            let mut numbers = ArrayVec::<usize, MAX_PLANNED>::new();
            for (number, (planned, pixels)) in images.iter_mut().zip(pixels.iter_mut()).enumerate() {
                let Some(picture) = planned.picture.take() else { continue };
                if left[number].is_none() && results[number].is_ok() {
                    pixels.time = None;
                    jobs.push(Job::new(picture, planned.region, pixels));
                    numbers.push(number);
                }
            }
            Recipe::decode(&mut jobs);
            for (number, job) in numbers.into_iter().zip(jobs) {
                pictures[number].1 = job.out.data().len();
                pictures[number].2 = job.out.time.map(|time| time.as_nanos() as u64);
                let (timed, own) = (&samples[number / each].timed, number - number % each);
                let shared = images[own..own + each].iter().any(|image| image.with == Some(number - own));
                if shared && (job.result.is_err() || job.out.damage().is_some()) {
                    // The damage may lie outside an image, which is then sound if it is decoded alone.
                    images[number].apart = true;
                } else {
                    images[number].damaged = job.result.is_ok() && recipe.note_damage(timed.id, timed.key, job.out);
                    results[number] = job.result;
                }
            }
            meter.decoded(&mut samples, |taken| &mut taken.timed, &pictures);
        }

        let copied_bytes = part.schema().sample_bytes() - recipe.fields.computed_bytes();
        for (number, Taken { place, sample, mut timed, shown, .. }) in samples.into_iter().enumerate() {
            let own = number * each..(number + 1) * each;
            let mut made = recipe.fields.images.iter().zip(own.clone()).try_for_each(|(field, number)| {
                std::mem::replace(&mut results[number], Ok(()))?;
                if left[number].is_some() {
                    return Ok(());
                }
                let with = images[number].with.map_or(number, |with| own.start + with);
                let region = images[number].plan.region;
                if images[with].apart {
                    meter.enter(Stage::Decode, timed.id);
                    let bytes = images[with].bytes;
                    guarded(|| recipe.codecs.open(bytes)?.decode(region, &mut pixels[with]))?;
                    images[number].damaged = recipe.note_damage(timed.id, timed.key, &pixels[with]);
                    meter.stage(Stage::Decode, &mut timed, pixels[with].data().len());
                }
                meter.enter(Stage::Transform, timed.id);
                let planned = &mut images[number];
                recipe.transform(field, &pixels[with], planned, (resizer, image), (part, place))?;
                meter.stage(Stage::Transform, &mut timed, field.rgb_bytes());
                meter.enter(Stage::Write, timed.id);
                guarded(|| field.write(image, &planned.plan, &mut Row::new(part, place)))
            });
            part.meta(place).damaged = recipe::damaged(&images[own.clone()]);
            let plan = recipe.fields.followed.map(|number| &images[own][number].plan).or(shown.as_deref());
            if made.is_ok() {
                let mut copied = recipe.fields.copied.iter();
                made = copied.try_for_each(|field| recipe.write(field, &sample, plan, part, place));
            }
            meter.stage(Stage::Write, &mut timed, copied_bytes);
            for (number, field) in recipe.fields.computed.iter().enumerate() {
                if made.is_ok() {
                    meter.enter_field(number, timed.id);
                    made = recipe.write(field, &sample, plan, part, place);
                    meter.field(number, &mut timed, field.bytes);
                }
            }
            meter.done(&timed);
            if let Err(e) = made {
                part.meta(place).fault = Some(recipe.at_sample(timed.id, timed.key, e));
            }
        }
    }

    /// Reads all of each image if the loader is strict. An image that is damaged anywhere is an
    /// error, and is not decoded.
    fn judge(&self, group: &mut Group<'a>) -> ArrayVec<Result<()>, MAX_PLANNED> {
        let strict = self.recipe.strict;
        let pictures = group.images.iter_mut().map(|planned| planned.picture.as_mut().filter(|_| strict));
        pictures.map(|picture| picture.map_or(Ok(()), Recipe::refuse_damage)).collect()
    }

    /// Leaves images to the device, except failed ones. Returns the time in ns for each image that is
    /// left.
    fn leave(&mut self, group: &Group<'a>, results: &[Result<()>]) -> ArrayVec<Option<u64>, MAX_PLANNED> {
        let PartFiller { recipe, run, bitstream, leaves, part, meter, .. } = self;
        let fields = &recipe.fields.images;
        if !*leaves {
            return group.images.iter().map(|_| None).collect();
        }
        let leave = |(number, planned): (usize, &Planned<'_>)| {
            let (place, field) = (group.samples[number / fields.len()].place, &fields[number % fields.len()]);
            let picture = planned.picture.as_ref().filter(|_| results[number].is_ok())?;
            let (plan, start) = (&planned.plan, Instant::now());
            let left = guarded(|| {
                let room = part.encoded_room().saturating_sub(DecodeOps::SLACK);
                let grid = picture.bitstream(plan.region, room, bitstream);
                Ok(grid.is_some_and(|grid| field.leave(&grid, bitstream, plan, part, place)))
            });
            // A failure here repeats on the worker, which reports it.
            left.is_ok_and(|left| left).then(|| {
                meter.left_to_device();
                nanos(Instant::now(), start)
            })
        };
        let left = group.images.iter().enumerate().map(leave).collect();
        // The remaining images are decoded here, which needs the memory.
        bitstream.keep(run.scratch.share().kept / 2);
        left
    }

    /// Frees the memory of pictures.
    fn release(&mut self) {
        self.pixels.iter_mut().for_each(Pixels::release);
        self.bitstream.keep(0);
        decode::release();
    }

    /// Frees pixels of earlier pictures if they and `samples` together exceed the worker's own share.
    fn make_room(&mut self, samples: &[Taken<'_>]) {
        let needed = samples.iter().map(|taken| taken.memory).chain(std::iter::repeat(0));
        let kept = |pixels: &[Pixels]| pixels.iter().map(Pixels::capacity).sum::<usize>();
        let pixels = self.pixels.chunks(self.images().max(1));
        let sum: usize = pixels.zip(needed).map(|(pixels, needed)| kept(pixels).max(needed)).sum();
        if sum > self.run.scratch.share().decode {
            self.pixels.iter_mut().for_each(Pixels::release);
        }
    }
}

/// Fills a slot with the first `samples` samples, as one part, mixed if `mixing` says so. Leaves
/// their pictures to a device if `leave` is true. Returns the batch, and the worker.
#[cfg(test)]
pub(crate) fn filled(
    (recipe, run): (Recipe, Arc<Run>),
    slot: crate::batch::Free,
    (samples, mixing): (u64, Option<crate::transform::Mixing>),
    leave: bool,
) -> (Full, Worker) {
    let mut worker = Worker::new(Arc::new(recipe), run, 0);
    let entries = (0..samples).map(|sample| Entry { sample, variant: 0, valid: true });
    let begin = |header: &mut crate::batch::Header| {
        header.entries.extend(entries);
        header.mixing = mixing;
    };
    let part = slot.begin(samples as usize, begin).next().expect("one part");
    let full = worker.run(Task { part, fetched: None, again: None }, &Waits::new(), leave);
    (full.expect("the only part"), worker)
}

/// Fills the first `samples` places of a slot, and leaves their pictures to a device. Returns the
/// number of pictures left, the bytes that the worker keeps, and the size of its share.
#[cfg(all(test, feature = "cuda"))]
pub(crate) fn kept_after(recipe: Recipe, run: Run, slot: crate::batch::Free, samples: u64) -> (u64, usize, usize) {
    let run = Arc::new(run);
    let (full, worker) = filled((recipe, run.clone()), slot, (samples, None), true);
    assert!((0..full.len()).all(|place| full.meta(place).fault.is_none()));
    let encoded: usize = worker.encoded.iter().flatten().map(Vec::capacity).sum();
    let pixels: usize = worker.pixels.iter().map(Pixels::capacity).sum();
    let Share { decode, encoded: read, kept } = run.scratch.share();
    (run.counters.stats().decoded_on_device, encoded + pixels + worker.bitstream.memory(), decode + read + kept)
}

/// Fills a slot with the first sample, and decodes its pictures again, as those that a device could
/// not decode. Returns the bytes of shared memory that the second decoding asked for.
#[cfg(all(test, feature = "cuda"))]
pub(crate) fn taken_again(recipe: Recipe, run: Run, slot: crate::batch::Free) -> usize {
    let run = Arc::new(run);
    let (full, mut worker) = filled((recipe, run.clone()), slot, (1, None), true);
    run.scratch.most_taken();
    let wanted = Arc::new(());
    let again = Again { places: Arc::from([0]), wanted: Arc::downgrade(&wanted), done: Arc::new(|_| {}) };
    let part = full.again(1, &again.places).next().expect("one part");
    let full = worker.run_again(part, &again).expect("the only part");
    assert!(full.meta(0).fault.is_none(), "{:?}", full.meta(0).fault);
    run.scratch.most_taken()
}
