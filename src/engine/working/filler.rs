//! Reads, plans, decodes, transforms and writes the samples of a part, within the memory limit of a
//! worker.

use std::ops::Range;
use std::time::Instant;

use arrayvec::ArrayVec;

use super::meter::{Meter, Timed};
use crate::batch::{DecodeOps, Part, Row};
use crate::decode::{self, Bitstream, Job, MAX_GROUP, MAX_PLANNED, Pixels};
use crate::engine::reading::Fetched;
use crate::engine::settings::Share;
use crate::engine::state::Run;
use crate::error::{Error, Result, guarded};
use crate::field::{Image, NOTHING, Pasted};
use crate::recipe::{self, Partners, Recipe, Shot};
use crate::sampler::Entry;
use crate::source::Sample;
use crate::trace::{Stage, StageMap, nanos};
use crate::transform::{Plan, Resizer, TILES};

/// Images with at most this many bytes of pixels are counted by their pixels only, provided that
/// eight such images fit into a worker's own share. For larger images, decoders estimate the
/// memory.
const SMALL: u64 = 1 << 20;

/// A sample that has been read.
pub(super) struct Taken<'a> {
    pub(super) place: usize,
    pub(super) sample: Sample<'a>,
    /// Partners of the sample in its mosaic, each with its source index.
    pub(super) others: Others<'a>,
    pub(super) timed: Timed<'a>,
    /// Number of images of this sample in the group.
    pub(super) shots: usize,
    /// Memory needed to decode its images and compute its fields, in bytes.
    pub(super) memory: usize,
    /// The plan of the sample's image, if the loader has fields that are transformed with the image
    /// but does not load the image itself.
    shown: Option<Box<Plan>>,
}

/// Buffers for the samples of an image, and the samples that a reader has already read.
type Reads<'a> = (&'a mut [Box<[Vec<u8>]>], Option<&'a Fetched>);

type Others<'a> = ArrayVec<(u64, Sample<'a>), { TILES - 1 }>;

impl Taken<'_> {
    /// Returns the source index and key of the sample that provides tile `tile` of an image.
    fn owner(&self, tile: usize) -> (u64, &str) {
        let other = tile.checked_sub(1).map(|number| &self.others[number]);
        other.map_or((self.timed.id, self.timed.key), |(id, sample)| (*id, sample.key()))
    }
}

/// What was read for a sample and its partners.
#[derive(Default)]
struct Got {
    /// Total number of bytes.
    bytes: usize,
    /// Number of bytes that the worker may have copied.
    copied: usize,
    /// Time in ns that readers spent on the other bytes.
    ahead_ns: u64,
}

/// Samples that are decoded together, with their images.
#[derive(Default)]
pub(super) struct Group<'a> {
    pub(super) samples: ArrayVec<Taken<'a>, MAX_GROUP>,
    pub(super) shots: ArrayVec<Shot<'a>, MAX_PLANNED>,
}

impl<'a> Group<'a> {
    /// Splits off the first `count` samples, with their images.
    pub(super) fn split(&mut self, count: usize) -> Self {
        let samples: ArrayVec<_, MAX_GROUP> = self.samples.drain(..count).collect();
        let shots: usize = samples.iter().map(|taken| taken.shots).sum();
        Group { samples, shots: self.shots.drain(..shots).collect() }
    }

    /// Returns each sample with its images.
    fn each(&mut self) -> impl Iterator<Item = (&mut Taken<'a>, &mut [Shot<'a>])> {
        let mut rest = &mut self.shots[..];
        self.samples.iter_mut().map(move |taken| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(taken.shots);
            rest = others;
            (taken, own)
        })
    }
}

/// Returns the length of the longest prefix of `samples` that fits into a worker's own share.
pub(super) fn fitting(samples: &[Taken<'_>], share: Share) -> usize {
    let mut sum = 0_usize;
    samples
        .iter()
        .take_while(|taken| {
            // A user's codec may return an arbitrary estimate, so the sum must not overflow.
            sum = sum.saturating_add(taken.memory);
            sum <= share.decode
        })
        .count()
}

/// Fills one part of a batch, within the memory limit of a worker.
pub(super) struct PartFiller<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) run: &'a Run,
    pub(super) pixels: &'a mut [Pixels; MAX_PLANNED],
    pub(super) image: &'a mut [u8],
    pub(super) resizer: &'a mut Resizer,
    pub(super) pasted: &'a mut Pasted,
    pub(super) boxes: &'a mut Vec<[f32; 4]>,
    /// Scratch memory for images that the device decodes.
    pub(super) bitstream: &'a mut Bitstream,
    /// Whether images of this part are left to the device.
    pub(super) leaves: bool,
    pub(super) part: &'a mut Part,
    pub(super) meter: Meter<'a>,
}

impl<'a> PartFiller<'a> {
    /// Reads and plans as many of the samples at `places` as fit.
    pub(super) fn read(
        &mut self,
        encoded: &'a mut [Box<[Vec<u8>]>],
        fetched: Option<&'a Fetched>,
        places: &mut Range<usize>,
    ) -> Group<'a> {
        let share = self.run.scratch.share();
        let epoch = self.part.header().epoch;
        let tiles = self.recipe.most_tiles(epoch);
        let mut group = Group::default();
        // Number of bytes that the source may have copied into buffers.
        let mut held = 0;
        for buffers in encoded.chunks_mut(tiles).take(self.most(tiles)) {
            let Some(place) = places.next() else { break };
            let (entry, before) = (self.part.header().entries[place], group.shots.len());
            let mut timed = Timed { id: entry.sample, key: "", ns: StageMap::default(), slowest: (0, 0) };
            self.meter.enter(Stage::Read, entry.sample);
            self.part.meta(place).fault = None;
            let mut got = Got::default();
            let taken = self.take((place, &entry), (buffers, fetched), &mut got, (&mut timed.key, &mut group));
            self.meter.stage(Stage::Read, &mut timed, got.bytes);
            timed.ns[Stage::Read] += got.ahead_ns;
            match taken {
                Ok((sample, others, memory, shown)) => {
                    let (buffer, shots) = (Share::buffer(got.copied), group.shots.len() - before);
                    let memory = memory.saturating_add(share.admitted(got.copied));
                    group.samples.push(Taken { place, sample, others, timed, shots, memory, shown });
                    held += buffer;
                    // Stop here, because another sample of this size might exceed the share.
                    if held + buffer > share.encoded {
                        break;
                    }
                }
                // Start a new lap, so that the time spent on a failed sample and its retries is not
                // attributed to the next sample.
                Err(e) => {
                    group.shots.truncate(before);
                    self.meter.done(&timed);
                    self.part.meta(place).fault = Some(self.recipe.at_joined(epoch, &entry, timed.key, e));
                }
            }
        }
        group
    }

    /// Reads and plans a sample and its partners. Returns them with the memory that they need.
    fn take(
        &mut self,
        (place, entry): (usize, &Entry),
        (buffers, fetched): Reads<'a>,
        got: &mut Got,
        (key, group): (&mut &'a str, &mut Group<'a>),
    ) -> Result<(Sample<'a>, Others<'a>, usize, Option<Box<Plan>>)> {
        let (recipe, run, header) = (self.recipe, self.run, self.part.header());
        let (epoch, number, offset) = (header.epoch, header.run, place - self.part.range().start);
        let mut buffers = buffers.iter_mut();
        let mut read = |tile: usize, id: u64| -> Result<Sample<'a>> {
            let buffers = buffers.next().expect("one per sample of an image");
            let sample = match fetched.and_then(|fetched| fetched.sample((offset, tile))) {
                Some((sample, ns)) => {
                    got.ahead_ns += ns;
                    sample
                }
                // Samples that were read ahead have their own budget.
                None => {
                    recipe.read(id, buffers, || run.tries_again(number)).inspect(|read| got.copied += read.memory())
                }
            };
            // An error must name a partner by its source index, not by the number that the user
            // assigned.
            let sample = sample.map_err(|e| recipe.at_sample(id, "", if tile > 0 { e.of_sample(id) } else { e }))?;
            got.bytes += sample.memory();
            Ok(sample)
        };
        let sample = read(0, entry.sample)?;
        *key = sample.key();
        self.part.meta(place).key.push_str(sample.key());
        let partners = recipe.partners(epoch, entry)?;
        let mut others = Others::new();
        for (id, tile) in partners.iter().flat_map(|partners| &partners.samples).copied().zip(1..) {
            others.push((id, read(tile, id)?));
        }
        recipe.check_length(&sample, entry.sample)?;
        others.iter().try_for_each(|(id, other)| recipe.check_length(other, *id))?;
        let (memory, shown) = self.plan((&sample, &others), entry, partners.as_ref(), group)?;
        Ok((sample, others, memory, shown))
    }

    /// Returns the number of images per sample.
    fn images(&self) -> usize {
        self.recipe.any_fields().images.len()
    }

    /// Returns the maximum number of samples that are decoded together if an image has up to
    /// `tiles` tiles.
    fn most(&self, tiles: usize) -> usize {
        (MAX_PLANNED / (tiles * self.images().max(1))).clamp(1, MAX_GROUP)
    }

    /// Plans the images of a sample. Returns the memory, in bytes, that decoding and computing the
    /// fields need. If the loader has no images, also returns the plan that its fields follow.
    fn plan(
        &mut self,
        (sample, others): (&Sample<'a>, &Others<'a>),
        entry: &Entry,
        partners: Option<&Partners>,
        group: &mut Group<'a>,
    ) -> Result<(usize, Option<Box<Plan>>)> {
        // Count the scratch memory of the codecs only if memory is scarce.
        let share = self.run.scratch.share();
        let ample = share.decode as u64 >= SMALL * MAX_GROUP as u64;
        let epoch = self.part.header().epoch;
        let (fields, first) = (&self.recipe.any_fields().images, group.shots.len());
        for (number, field) in fields.iter().enumerate() {
            let join = partners.filter(|_| field.image.own().is_none()).map(|partners| &partners.join);
            let mut plan = |of: &Sample<'a>, tile: usize| {
                let (tile, scratch) = (join.map(|join| (join, tile)), (&group.shots[first..], &mut *self.boxes));
                let shot = self.recipe.plan(field.described(), of, (epoch, entry), tile, scratch)?;
                group.shots.push(Shot { field: number, ..shot });
                Ok(())
            };
            plan(sample, 0)?;
            for ((id, other), tile) in others.iter().zip(1..).filter(|_| join.is_some()) {
                plan(other, tile).map_err(|e: Error| e.at_sample(*id, other.key()))?;
            }
        }
        // A device decodes images one at a time.
        if !self.leaves {
            recipe::share(&mut group.shots[first..], share.decode as u64);
        }
        // `copied` is a maximum, not a sum, because images are copied for the device one at a time.
        let (mut memory, mut copied) = (0, 0);
        for shot in &group.shots[first..] {
            let Some(encoded) = &shot.opened else { continue };
            if encoded.is_plain_jpeg() {
                self.meter.counts().plain_jpegs.bump();
            }
            let all = encoded.size().area().saturating_mul(3);
            let one = if ample && all <= SMALL { all } else { encoded.memory(shot.region) };
            let one = if self.recipe.strict { one.saturating_add(encoded.check_memory()) } else { one };
            memory = usize::saturating_add(memory, usize::try_from(one).unwrap_or(usize::MAX));
            if self.leaves && others.is_empty() && fields[shot.field].may_be_left() {
                copied = copied.max(encoded.bitstream_memory(shot.plan.region, self.part.encoded_room()));
            }
        }
        let shown = match &self.recipe.any_fields().shown {
            Some(name) => {
                let field = (&Image::new(), &**name);
                Some(Box::new(self.recipe.plan(field, sample, (epoch, entry), None, (&[], self.boxes))?.plan))
            }
            None => None,
        };
        let (plan, tiles) = self.recipe.shown(&group.shots[first..], others);
        let pasted = group.shots[first..].iter().any(|image| image.pastes).then_some(&NOTHING);
        let computed = self.recipe.memory(sample, (plan.or(shown.as_deref()), &tiles, pasted), entry)?;
        let memory = memory.saturating_add(usize::try_from(computed).unwrap_or(usize::MAX));
        Ok((if copied > share.kept / 2 { memory.saturating_add(copied) } else { memory }, shown))
    }

    /// Decodes, transforms and writes the images of `group`.
    pub(super) fn make(&mut self, mut group: Group<'a>) {
        if let Some(first) = group.samples.first().filter(|_| !group.shots.is_empty()) {
            self.meter.enter(Stage::Decode, first.timed.id);
            self.meter.lap();
            self.decode(&mut group);
        }
        let mut first = 0;
        for (taken, shots) in group.each() {
            let made = self.write(taken, shots, first);
            first += shots.len();
            self.meter.done(&taken.timed);
            if let Err(e) = made {
                let (epoch, entry) = self.entry(taken.place);
                self.part.meta(taken.place).fault = Some(self.recipe.at_joined(epoch, &entry, taken.timed.key, e));
            }
        }
    }

    /// Decodes the images of `group`, or leaves them to the device.
    fn decode(&mut self, group: &mut Group<'a>) {
        if self.recipe.strict {
            // If damage is an error, fail the damaged image here instead of decoding it.
            for shot in &mut group.shots {
                shot.result = shot.opened.as_mut().map_or(Ok(()), Recipe::refuse_damage);
            }
        }
        if self.leaves {
            self.leave(group);
        }
        let mut jobs = ArrayVec::<Job<'_>, MAX_PLANNED>::new();
        let mut numbers = ArrayVec::<usize, MAX_PLANNED>::new();
        for (number, (shot, pixels)) in group.shots.iter_mut().zip(self.pixels.iter_mut()).enumerate() {
            let Some(encoded) = shot.opened.take() else { continue };
            if !shot.left && shot.result.is_ok() && shot.is_shown() {
                jobs.push(Job::new(encoded, shot.region, pixels));
                numbers.push(number);
            }
        }
        Recipe::decode(&mut jobs);
        let (mut jobs, mut first) = (numbers.into_iter().zip(jobs).peekable(), 0);
        for (taken, shots) in group.each() {
            while let Some((number, job)) = jobs.next_if(|(number, _)| *number < first + shots.len()) {
                let shared = shots.iter().any(|shot| shot.with == Some(number - first));
                let shot = &mut shots[number - first];
                let (id, key) = taken.owner(shot.tile);
                (shot.pixels, shot.ns) = (job.out.data().len(), job.time.map(|time| time.as_nanos() as u64));
                // The damage may be outside the region that this image needs, so decode the image
                // again on its own.
                shot.apart = shared && (job.result.is_err() || job.out.damage().is_some());
                if !shot.apart {
                    shot.damaged = job.result.is_ok() && self.recipe.note_damage(id, key, job.out);
                    shot.result = job.result;
                }
            }
            first += shots.len();
        }
        let Group { samples, shots } = group;
        self.meter.decoded(shots, samples.iter_mut().map(|taken| (&mut taken.timed, taken.shots)));
    }

    /// Leaves all images to the device, except those that failed.
    fn leave(&mut self, group: &mut Group<'a>) {
        let PartFiller { recipe, run, bitstream, part, meter, .. } = self;
        let fields = &recipe.fields_of(part.header()).images;
        // Skip mosaics: they are composed on the CPU, and their samples are not decoded again.
        for (taken, shots) in group.each().filter(|(taken, _)| taken.others.is_empty()) {
            for shot in shots.iter_mut().filter(|shot| shot.result.is_ok()) {
                let Some(encoded) = &shot.opened else { continue };
                let (field, plan, start) = (&fields[shot.field], &shot.plan, Instant::now());
                let left = guarded(|| {
                    let room = part.encoded_room().saturating_sub(DecodeOps::SLACK);
                    let grid = encoded.bitstream(plan.region, room, bitstream);
                    Ok(grid.is_some_and(|grid| field.leave(&grid, bitstream, plan, part, taken.place)))
                });
                // If this fails, decoding on the worker fails as well, and reports the error.
                shot.left = left.is_ok_and(|left| left);
                if shot.left {
                    meter.counts().decoded_on_device.bump();
                    shot.ns = Some(nanos(Instant::now(), start));
                }
            }
        }
        // Free the memory, because this worker needs it to decode the remaining images.
        bitstream.keep(run.scratch.share().kept / 2);
    }

    /// Writes the images and the other fields of a sample. `first` is the group index of the
    /// sample's first image.
    fn write(&mut self, taken: &mut Taken<'a>, shots: &mut [Shot<'a>], first: usize) -> Result<()> {
        let pastes = shots.iter().any(|shot| shot.pastes);
        let mut made = if pastes { self.paste(taken, shots) } else { Ok(()) };
        if made.is_ok() {
            made = (0..shots.len()).try_for_each(|number| self.image(taken, shots, (number, first)));
        }
        let PartFiller { recipe, pasted, part, meter, .. } = self;
        let (place, fields) = (taken.place, recipe.fields_of(part.header()));
        part.meta(place).damaged = recipe::damaged(shots);
        let (plan, tiles) = recipe.shown(shots, &taken.others);
        let plan = plan.or(taken.shown.as_deref());
        let image = |plan: &Plan| recipe.part_with_image(plan, (!tiles.is_empty() && !pastes, pastes));
        part.meta(place).shown = plan.map(image).unwrap_or_default();
        let (sample, timed, shown) = (&taken.sample, &mut taken.timed, (plan, &tiles[..], pastes.then_some(&**pasted)));
        if made.is_ok() {
            made = fields.copied.iter().try_for_each(|field| recipe.write(field, sample, shown, part, place));
        }
        meter.stage(Stage::Write, timed, part.schema().sample_bytes() - fields.computed_bytes());
        made?;
        for (number, field) in fields.computed.iter().enumerate() {
            meter.enter_field(number, timed.id);
            let made = recipe.write(field, sample, shown, part, place);
            meter.field(number, timed, field.bytes);
            made?;
        }
        Ok(())
    }

    /// Selects the objects to paste into the image of a sample.
    fn paste(&mut self, taken: &Taken<'a>, shots: &[Shot<'a>]) -> Result<()> {
        self.meter.enter(Stage::Transform, taken.timed.id);
        let (epoch, entry) = self.entry(taken.place);
        self.recipe.paste(shots, &taken.others, (epoch, &entry), self.pasted)
    }

    /// Transforms image `number` of a sample, and writes the output image once all tiles are done.
    /// `first` is the group index of the sample's first image.
    fn image(&mut self, taken: &mut Taken<'a>, shots: &mut [Shot<'a>], (number, first): (usize, usize)) -> Result<()> {
        let PartFiller { recipe, pixels, image, resizer, pasted, part, meter, .. } = self;
        let with = shots[number].with.unwrap_or(number);
        let (apart, bytes) = (shots[with].apart, shots[with].bytes);
        let (shot, pixels, id) = (&mut shots[number], &mut pixels[first + with], taken.timed.id);
        let (tile, (owner, key)) = (shot.tile, taken.owner(shot.tile));
        let of_partner = |e: Error| if tile > 0 { e.at_sample(owner, key) } else { e };
        std::mem::replace(&mut shot.result, Ok(())).map_err(of_partner)?;
        if shot.left {
            return Ok(());
        }
        if apart && shot.is_shown() {
            meter.enter(Stage::Decode, id);
            let decoded = guarded(|| recipe.codecs.open(bytes)?.decode(shot.plan.region, pixels));
            decoded.map_err(of_partner)?;
            shot.damaged = recipe.note_damage(owner, key, pixels);
            meter.stage(Stage::Decode, &mut taken.timed, pixels.data().len());
        }
        meter.enter(Stage::Transform, id);
        let field = &recipe.fields_of(part.header()).images[shot.field];
        recipe.transform(field, pixels, shot, ((resizer, image), pasted), (part, taken.place))?;
        if !shot.is_last() {
            return Ok(());
        }
        meter.stage(Stage::Transform, &mut taken.timed, field.rgb_bytes());
        meter.enter(Stage::Write, id);
        guarded(|| field.write(image, &shot.plan, &mut Row::new(part, taken.place)))
    }

    /// Returns the epoch and the entry at `place`.
    fn entry(&self, place: usize) -> (u64, Entry) {
        let header = self.part.header();
        (header.epoch, header.entries[place])
    }

    /// Frees the memory for pixels.
    pub(super) fn release(&mut self) {
        self.pixels.iter_mut().for_each(Pixels::release);
        self.bitstream.keep(0);
        decode::release();
    }

    /// Frees the pixel buffers of earlier images if these buffers and `samples` together exceed the
    /// worker's own share.
    pub(super) fn make_room(&mut self, samples: &[Taken<'_>]) {
        let kept = |pixels: &[Pixels]| pixels.iter().map(Pixels::capacity).sum::<usize>();
        let (mut sum, mut rest) = (0_usize, &self.pixels[..]);
        for taken in samples {
            let (own, others) = rest.split_at(taken.shots);
            sum = sum.saturating_add(kept(own).max(taken.memory));
            rest = others;
        }
        if sum.saturating_add(kept(rest)) > self.run.scratch.share().decode {
            self.pixels.iter_mut().for_each(Pixels::release);
        }
    }
}
