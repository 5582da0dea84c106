//! Reads, plans, decodes, transforms and writes the samples of a part, with the memory of a worker.

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
use crate::order::Entry;
use crate::recipe::{self, Partners, Planned, Recipe};
use crate::source::Sample;
use crate::trace::{Stage, StageMap, nanos};
use crate::transform::{Plan, Resizer, TILES};

/// Maximum bytes of pixels for which the pixels alone count as a picture's memory, if eight such
/// pictures fit into a worker's own share. Decoders estimate the memory of larger pictures.
const SMALL: u64 = 1 << 20;

/// A sample that was read.
pub(super) struct Taken<'a> {
    pub(super) place: usize,
    pub(super) sample: Sample<'a>,
    /// The other samples that its image shows, each with its number in the source.
    pub(super) others: Others<'a>,
    pub(super) timed: Timed<'a>,
    /// Number of its pictures in the group.
    pub(super) pictures: usize,
    /// Bytes of memory that decoding its images and computing its fields takes.
    pub(super) memory: usize,
    /// The plan of its picture in a loader without images, if fields follow the picture.
    shown: Option<Box<Plan>>,
}

/// Where the samples of an image are read to, and those that a reader has read already.
type Reads<'a> = (&'a mut [Box<[Vec<u8>]>], Option<&'a Fetched>);

type Others<'a> = ArrayVec<(u64, Sample<'a>), { TILES - 1 }>;

impl Taken<'_> {
    /// Number and key of the sample with picture `tile` of an image.
    fn owner(&self, tile: usize) -> (u64, &str) {
        let other = tile.checked_sub(1).map(|number| &self.others[number]);
        other.map_or((self.timed.id, self.timed.key), |(id, sample)| (*id, sample.key()))
    }
}

/// The bytes of a sample and its partners, those of them that the worker may have copied, and the
/// time in ns in which readers read the others.
#[derive(Default)]
struct Got {
    bytes: usize,
    copied: usize,
    ahead_ns: u64,
}

/// Samples that are decoded together, with their images.
#[derive(Default)]
pub(super) struct Group<'a> {
    pub(super) samples: ArrayVec<Taken<'a>, MAX_GROUP>,
    pub(super) images: ArrayVec<Planned<'a>, MAX_PLANNED>,
}

impl Group<'_> {
    /// Takes the first `count` samples out, with their images.
    pub(super) fn split(&mut self, count: usize) -> Self {
        let samples: ArrayVec<_, MAX_GROUP> = self.samples.drain(..count).collect();
        let images: usize = samples.iter().map(|taken| taken.pictures).sum();
        Group { samples, images: self.images.drain(..images).collect() }
    }

    /// For each image, the number of its sample.
    fn samples_of_images(&self) -> ArrayVec<usize, MAX_PLANNED> {
        let each = |(number, taken): (usize, &Taken<'_>)| std::iter::repeat_n(number, taken.pictures);
        self.samples.iter().enumerate().flat_map(each).collect()
    }
}

/// Number of `samples`, counted from the first, that fit into a worker's own share.
pub(super) fn fitting(samples: &[Taken<'_>], share: Share) -> usize {
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

/// Fills the samples of a part, with the memory of a worker.
pub(super) struct PartFiller<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) run: &'a Run,
    pub(super) pixels: &'a mut [Pixels; MAX_PLANNED],
    pub(super) image: &'a mut [u8],
    pub(super) resizer: &'a mut Resizer,
    pub(super) pasted: &'a mut Pasted,
    pub(super) boxes: &'a mut Vec<[f32; 4]>,
    /// Scratch for pictures that are left to the device, and whether they are.
    pub(super) bitstream: &'a mut Bitstream,
    pub(super) leaves: bool,
    pub(super) part: &'a mut Part,
    pub(super) meter: Meter<'a>,
}

impl<'a> PartFiller<'a> {
    /// Reads and plans the next of `places`.
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
        // Bytes that sources may have copied.
        let mut held = 0;
        for buffers in encoded.chunks_mut(tiles).take(self.most(tiles)) {
            let Some(place) = places.next() else { break };
            let (entry, before) = (self.part.header().entries[place], group.images.len());
            let mut timed = Timed { id: entry.sample, key: "", ns: StageMap::default(), slowest: (0, 0) };
            self.meter.enter(Stage::Read, entry.sample);
            self.part.meta(place).fault = None;
            let mut got = Got::default();
            let taken = self.take((place, &entry), (buffers, fetched), &mut got, (&mut timed.key, &mut group));
            self.meter.stage(Stage::Read, &mut timed, got.bytes);
            timed.ns[Stage::Read] += got.ahead_ns;
            match taken {
                Ok((sample, others, memory, shown)) => {
                    let (buffer, pictures) = (Share::buffer(got.copied), group.images.len() - before);
                    let memory = memory.saturating_add(share.admitted(got.copied));
                    group.samples.push(Taken { place, sample, others, timed, pictures, memory, shown });
                    held += buffer;
                    // Another sample of this size might exceed the share.
                    if held + buffer > share.encoded {
                        break;
                    }
                }
                // The time of a failed sample, including pauses before retries, must not count for
                // the next sample.
                Err(e) => {
                    group.images.truncate(before);
                    self.meter.done(&timed);
                    self.part.meta(place).fault = Some(self.recipe.at_joined(epoch, &entry, timed.key, e));
                }
            }
        }
        group
    }

    /// Reads and plans a sample and its partners. Returns them with the bytes of memory that they
    /// take.
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
                // Samples that were read ahead have a bound of their own.
                None => {
                    recipe.read(id, buffers, || run.tries_again(number)).inspect(|read| got.copied += read.memory())
                }
            };
            // An error of a partner must not name a sample of the user's own numbering.
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

    /// Number of images per sample.
    fn images(&self) -> usize {
        self.recipe.any_fields().images.len()
    }

    /// Number of samples that are decoded together, if images show up to `tiles`.
    fn most(&self, tiles: usize) -> usize {
        (MAX_PLANNED / (tiles * self.images().max(1))).clamp(1, MAX_GROUP)
    }

    /// Plans the images of a sample. Returns the bytes of memory that decoding them and computing
    /// its fields takes, and the plan of a picture that is no image.
    fn plan(
        &mut self,
        (sample, others): (&Sample<'a>, &Others<'a>),
        entry: &Entry,
        partners: Option<&Partners>,
        group: &mut Group<'a>,
    ) -> Result<(usize, Option<Box<Plan>>)> {
        // If memory is scarce, the scratch of codecs counts too.
        let share = self.run.scratch.share();
        let ample = share.decode as u64 >= SMALL * MAX_GROUP as u64;
        let epoch = self.part.header().epoch;
        let (fields, first) = (&self.recipe.any_fields().images, group.images.len());
        for (number, field) in fields.iter().enumerate() {
            let join = partners.filter(|_| field.image.own().is_none()).map(|partners| &partners.join);
            let mut plan = |of: &Sample<'a>, tile: usize| {
                let (tile, scratch) = (join.map(|join| (join, tile)), (&group.images[first..], &mut *self.boxes));
                let planned = self.recipe.plan(field.described(), of, (epoch, entry), tile, scratch)?;
                group.images.push(Planned { field: number, ..planned });
                Ok(())
            };
            plan(sample, 0)?;
            for ((id, other), tile) in others.iter().zip(1..).filter(|_| join.is_some()) {
                plan(other, tile).map_err(|e: Error| e.at_sample(*id, other.key()))?;
            }
        }
        // A device takes pictures one by one.
        if !self.leaves {
            recipe::share(&mut group.images[first..], share.decode as u64);
        }
        // Pictures are copied for the device one at a time.
        let (mut memory, mut copied) = (0, 0);
        for planned in &group.images[first..] {
            let Some(picture) = &planned.picture else { continue };
            if picture.is_plain_jpeg() {
                self.meter.counts().plain_jpegs.bump();
            }
            let all = picture.size().area().saturating_mul(3);
            let one = if ample && all <= SMALL { all } else { picture.memory(planned.region) };
            let one = if self.recipe.strict { one.saturating_add(picture.check_memory()) } else { one };
            memory = usize::saturating_add(memory, usize::try_from(one).unwrap_or(usize::MAX));
            if self.leaves && others.is_empty() && fields[planned.field].may_be_left() {
                copied = copied.max(picture.bitstream_memory(planned.plan.region, self.part.encoded_room()));
            }
        }
        let shown = match &self.recipe.any_fields().shown {
            Some(name) => {
                let picture = (&Image::new(), &**name);
                Some(Box::new(self.recipe.plan(picture, sample, (epoch, entry), None, (&[], self.boxes))?.plan))
            }
            None => None,
        };
        let (plan, tiles) = self.recipe.shown(&group.images[first..], others);
        let pasted = group.images[first..].iter().any(|image| image.pastes).then_some(&NOTHING);
        let computed = self.recipe.memory(sample, (plan.or(shown.as_deref()), &tiles, pasted), entry)?;
        let memory = memory.saturating_add(usize::try_from(computed).unwrap_or(usize::MAX));
        Ok((if copied > share.kept / 2 { memory.saturating_add(copied) } else { memory }, shown))
    }

    /// Decodes, transforms and writes the images of `group`.
    pub(super) fn make(&mut self, mut group: Group<'a>) {
        if let Some(first) = group.samples.first().filter(|_| !group.images.is_empty()) {
            self.meter.enter(Stage::Decode, first.timed.id);
            self.meter.lap();
        }
        let mut results = self.judge(&mut group);
        let left = self.leave(&group, &results);
        let PartFiller { recipe, pixels, image, resizer, pasted, part, meter, .. } = self;
        let of = group.samples_of_images();
        let Group { mut samples, mut images } = group;

        if !images.is_empty() {
            let time = |image: &Planned<'_>, left| if image.with.is_some() { Some(0) } else { left };
            let mut pictures: ArrayVec<_, MAX_PLANNED> = images
                .iter()
                .zip(&left)
                .zip(&of)
                .map(|((image, &left), &of)| (of, image.encoded_bytes(), 0, time(image, left)))
                .collect();
            let mut jobs = ArrayVec::<Job<'_>, MAX_PLANNED>::new();
            let mut numbers = ArrayVec::<usize, MAX_PLANNED>::new();
            for (number, (planned, pixels)) in images.iter_mut().zip(pixels.iter_mut()).enumerate() {
                let Some(picture) = planned.picture.take() else { continue };
                if left[number].is_none() && results[number].is_ok() && planned.is_shown() {
                    jobs.push(Job::new(picture, planned.region, pixels));
                    numbers.push(number);
                }
            }
            Recipe::decode(&mut jobs);
            for (number, job) in numbers.into_iter().zip(jobs) {
                pictures[number].2 = job.out.data().len();
                pictures[number].3 = job.time.map(|time| time.as_nanos() as u64);
                let own = of.partition_point(|&before| before < of[number]);
                let taken = &samples[of[number]];
                let shared = images[own..own + taken.pictures].iter().any(|image| image.with == Some(number - own));
                let (id, key) = taken.owner(images[number].tile);
                if shared && (job.result.is_err() || job.out.damage().is_some()) {
                    // The damage may lie outside an image, which is then sound if it is decoded
                    // alone.
                    images[number].apart = true;
                } else {
                    images[number].damaged = job.result.is_ok() && recipe.note_damage(id, key, job.out);
                    results[number] = job.result;
                }
            }
            meter.decoded(&mut samples, |taken| &mut taken.timed, &pictures);
        }

        let fields = recipe.fields_of(part.header());
        let copied_bytes = part.schema().sample_bytes() - fields.computed_bytes();
        let mut begin = 0;
        for mut taken in samples {
            let (place, own) = (taken.place, begin..begin + taken.pictures);
            begin = own.end;
            let mut made = Ok(());
            let pastes = images[own.clone()].iter().any(|image| image.pastes);
            if pastes {
                meter.enter(Stage::Transform, taken.timed.id);
                let (epoch, entry) = (part.header().epoch, part.header().entries[place]);
                made = recipe.paste(&images[own.clone()], &taken.others, (epoch, &entry), pasted);
            }
            let mut make = |number: usize| {
                let (tile, field) = (images[number].tile, &fields.images[images[number].field]);
                let of_partner = |e: Error| {
                    let (id, key) = taken.owner(tile);
                    if tile > 0 { e.at_sample(id, key) } else { e }
                };
                std::mem::replace(&mut results[number], Ok(())).map_err(of_partner)?;
                if left[number].is_some() {
                    return Ok(());
                }
                let with = images[number].with.map_or(number, |with| own.start + with);
                let region = images[number].plan.region;
                if images[with].apart && images[number].is_shown() {
                    meter.enter(Stage::Decode, taken.timed.id);
                    let bytes = images[with].bytes;
                    let decoded = guarded(|| recipe.codecs.open(bytes)?.decode(region, &mut pixels[with]));
                    decoded.map_err(of_partner)?;
                    let (id, key) = taken.owner(tile);
                    images[number].damaged = recipe.note_damage(id, key, &pixels[with]);
                    meter.stage(Stage::Decode, &mut taken.timed, pixels[with].data().len());
                }
                meter.enter(Stage::Transform, taken.timed.id);
                let planned = &mut images[number];
                recipe.transform(field, &pixels[with], planned, ((resizer, image), pasted), (part, place))?;
                if !planned.is_last() {
                    return Ok(());
                }
                meter.stage(Stage::Transform, &mut taken.timed, field.rgb_bytes());
                meter.enter(Stage::Write, taken.timed.id);
                guarded(|| field.write(image, &planned.plan, &mut Row::new(part, place)))
            };
            if made.is_ok() {
                made = own.clone().try_for_each(&mut make);
            }
            part.meta(place).damaged = recipe::damaged(&images[own.clone()]);
            let (plan, tiles) = recipe.shown(&images[own], &taken.others);
            let plan = plan.or(taken.shown.as_deref());
            let picture = |plan: &Plan| recipe.part_with_picture(plan, (!tiles.is_empty() && !pastes, pastes));
            part.meta(place).shown = plan.map(picture).unwrap_or_default();
            let (sample, timed, shown) =
                (&taken.sample, &mut taken.timed, (plan, &tiles[..], pastes.then_some(&**pasted)));
            if made.is_ok() {
                let mut copied = fields.copied.iter();
                made = copied.try_for_each(|field| recipe.write(field, sample, shown, part, place));
            }
            meter.stage(Stage::Write, timed, copied_bytes);
            for (number, field) in fields.computed.iter().enumerate() {
                if made.is_ok() {
                    meter.enter_field(number, timed.id);
                    made = recipe.write(field, sample, shown, part, place);
                    meter.field(number, timed, field.bytes);
                }
            }
            meter.done(timed);
            if let Err(e) = made {
                let (epoch, entry) = (part.header().epoch, part.header().entries[place]);
                part.meta(place).fault = Some(recipe.at_joined(epoch, &entry, timed.key, e));
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

    /// Leaves images to the device, except failed ones. Returns the time in ns for each image that
    /// is left.
    fn leave(&mut self, group: &Group<'a>, results: &[Result<()>]) -> ArrayVec<Option<u64>, MAX_PLANNED> {
        let PartFiller { recipe, run, bitstream, leaves, part, meter, .. } = self;
        let fields = &recipe.fields_of(part.header()).images;
        if !*leaves {
            return group.images.iter().map(|_| None).collect();
        }
        let of = group.samples_of_images();
        let leave = |(number, planned): (usize, &Planned<'_>)| {
            let (taken, field) = (&group.samples[of[number]], &fields[planned.field]);
            // Pictures that are joined become one image here, and its sample is not decoded again.
            let picture = planned.picture.as_ref().filter(|_| results[number].is_ok() && taken.others.is_empty())?;
            let (plan, start) = (&planned.plan, Instant::now());
            let left = guarded(|| {
                let room = part.encoded_room().saturating_sub(DecodeOps::SLACK);
                let grid = picture.bitstream(plan.region, room, bitstream);
                Ok(grid.is_some_and(|grid| field.leave(&grid, bitstream, plan, part, taken.place)))
            });
            // A failure here repeats on the worker, which reports it.
            left.is_ok_and(|left| left).then(|| {
                meter.counts().decoded_on_device.bump();
                nanos(Instant::now(), start)
            })
        };
        let left = group.images.iter().enumerate().map(leave).collect();
        // The remaining images are decoded here, which needs the memory.
        bitstream.keep(run.scratch.share().kept / 2);
        left
    }

    /// Frees the memory of pictures.
    pub(super) fn release(&mut self) {
        self.pixels.iter_mut().for_each(Pixels::release);
        self.bitstream.keep(0);
        decode::release();
    }

    /// Frees pixels of earlier pictures if they and `samples` together exceed the worker's own
    /// share.
    pub(super) fn make_room(&mut self, samples: &[Taken<'_>]) {
        let kept = |pixels: &[Pixels]| pixels.iter().map(Pixels::capacity).sum::<usize>();
        let (mut sum, mut rest) = (0_usize, &self.pixels[..]);
        for taken in samples {
            let (own, others) = rest.split_at(taken.pictures);
            sum = sum.saturating_add(kept(own).max(taken.memory));
            rest = others;
        }
        if sum.saturating_add(kept(rest)) > self.run.scratch.share().decode {
            self.pixels.iter_mut().for_each(Pixels::release);
        }
    }
}
