//! Turns the samples of a part into rows of the batch: reads, plans, decodes, transforms and writes
//! them within the worker's memory limit.

use std::ops::Range;
use std::time::Instant;

use arrayvec::ArrayVec;

use super::meter::{Meter, Timed};
#[cfg(feature = "video")]
use crate::batch::YuvRegion;
use crate::batch::{DecodeOps, Header, Part, Row};
#[cfg(feature = "video")]
use crate::decode::decode_planes;
use crate::decode::{Bitstream, EncodedImage, Job, Lookup, MAX_GROUP, MAX_PLANNED, Pixels, Rect};
use crate::engine::reading::Fetched;
use crate::engine::settings::Share;
use crate::engine::state::Run;
use crate::error::{Error, Result, guarded};
use crate::field::{Image, NOTHING, Pasted};
use crate::recipe::{self, Partners, Recipe, SampleImage};
use crate::sampler::Entry;
use crate::source::Sample;
use crate::trace::{Stage, StageMap, nanos};
use crate::transform::{Plan, Resizer, TILES};

/// An image is divided into bands, which idle workers help to decode, if its pixels take at least
/// `LARGE` bytes and at least `RARE` times as much as the average. If all images are large, no
/// worker is idle, and decoding the rows that two bands share would only take additional time.
const LARGE: u64 = 6 << 20;
const RARE: u64 = 12;

/// The images of a part that the device decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceImages {
    None,
    /// Only images that are so large that their batch would have to wait for the worker.
    Large,
    All,
}

/// A sample that has been read and planned.
pub(super) struct ReadSample<'a> {
    pub(super) row: usize,
    pub(super) sample: Sample<'a>,
    /// The other samples of the mosaic, each with its source index.
    pub(super) others: MosaicSamples<'a>,
    pub(super) timed: Timed<'a>,
    /// Number of images of this sample in the group.
    pub(super) image_count: usize,
    /// Memory for decoding the images and computing the fields, in bytes.
    pub(super) memory: usize,
    /// Geometric plan for fields such as boxes if the loader does not deliver the image.
    field_plan: Option<Box<Plan>>,
}

/// The other samples of a mosaic, each with its source index.
type MosaicSamples<'a> = ArrayVec<(u64, Sample<'a>), { TILES - 1 }>;

impl ReadSample<'_> {
    /// Returns the source index and key of the sample that provides tile `tile` of an image.
    fn owner(&self, tile: usize) -> (u64, &str) {
        let other = tile.checked_sub(1).map(|index| &self.others[index]);
        other.map_or((self.timed.id, self.timed.key), |(id, sample)| (*id, sample.key()))
    }
}

/// Cost of reading a sample and the other samples of its mosaic.
#[derive(Default)]
struct ReadCost {
    bytes: usize,
    /// Bytes that this worker read and may have copied into its buffers.
    copied: usize,
    /// Time that readers spent on prefetching the other bytes, in ns.
    ahead_ns: u64,
}

/// Samples with images that are decoded together.
#[derive(Default)]
pub(super) struct Group<'a> {
    pub(super) samples: ArrayVec<ReadSample<'a>, MAX_GROUP>,
    pub(super) sample_images: ArrayVec<SampleImage<'a>, MAX_PLANNED>,
}

impl<'a> Group<'a> {
    pub(super) fn split(&mut self, count: usize) -> Self {
        let samples: ArrayVec<_, MAX_GROUP> = self.samples.drain(..count).collect();
        let sample_images: usize = samples.iter().map(|taken| taken.image_count).sum();
        Group { samples, sample_images: self.sample_images.drain(..sample_images).collect() }
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (&mut ReadSample<'a>, &mut [SampleImage<'a>])> {
        let mut rest = &mut self.sample_images[..];
        self.samples.iter_mut().map(move |taken| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(taken.image_count);
            rest = others;
            (taken, own)
        })
    }
}

pub(super) struct PartFiller<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) run: &'a Run,
    pub(super) pixels: &'a mut [Pixels; MAX_PLANNED],
    pub(super) image: &'a mut [u8],
    pub(super) resizer: &'a mut Resizer,
    pub(super) pasted: &'a mut Pasted,
    pub(super) boxes: &'a mut Vec<[f32; 4]>,
    /// Buffer for the entropy-coded data of images that the device decodes.
    pub(super) bitstream: &'a mut Bitstream,
    pub(super) device_images: DeviceImages,
    pub(super) part: &'a mut Part,
    pub(super) meter: Meter<'a>,
}

impl<'a> PartFiller<'a> {
    pub(super) fn read(
        &mut self,
        encoded: &'a mut [Box<[Vec<u8>]>],
        fetched: Option<&'a Fetched>,
        rows: &mut Range<usize>,
    ) -> Group<'a> {
        let share = self.run.scratch.share();
        let epoch = self.part.header().epoch;
        let tiles = self.recipe.max_tiles(epoch);
        let mut group = Group::default();
        // Size of the buffers that the source may have filled, in bytes.
        let mut held = 0;
        for buffers in encoded.chunks_mut(tiles).take(self.max_samples(tiles)) {
            let Some(row) = rows.next() else { break };
            let (entry, before) = (self.part.header().entries[row], group.sample_images.len());
            let mut timed = Timed { id: entry.sample, key: "", bytes: 0, ns: StageMap::default(), slowest: (0, 0) };
            self.meter.enter(Stage::Read, entry.sample);
            self.part.meta(row).fault = None;
            let mut cost = ReadCost::default();
            let taken = self.take(row, buffers, fetched, &mut cost, &mut timed.key, &mut group);
            self.meter.stage(Stage::Read, &mut timed, cost.bytes);
            timed.ns[Stage::Read] += cost.ahead_ns;
            timed.bytes = cost.bytes;
            match taken {
                Ok((sample, others, memory, field_plan)) => {
                    let (buffer, image_count) = (Share::buffer(cost.copied), group.sample_images.len() - before);
                    let memory = memory.saturating_add(share.excess_buffer(cost.copied));
                    group.samples.push(ReadSample { row, sample, others, timed, image_count, memory, field_plan });
                    held += buffer;
                    // Stop before the next sample, because one more sample of this size might
                    // exceed the share.
                    if held + buffer > share.encoded {
                        break;
                    }
                }
                // End the lap here, so that the time of the failed sample is not attributed to the
                // next sample.
                Err(e) => {
                    group.sample_images.truncate(before);
                    self.meter.finish_sample(&timed);
                    self.part.meta(row).fault = Some(self.recipe.at_global_sample(epoch, &entry, timed.key, e));
                }
            }
        }
        group
    }

    /// Reads and plans the sample in row `row`, and the other samples of its mosaic. Returns the
    /// sample, the other samples, the memory in bytes that all of them need, and the [plan for the
    /// fields](ReadSample::field_plan).
    fn take(
        &mut self,
        row: usize,
        buffers: &'a mut [Box<[Vec<u8>]>],
        fetched: Option<&'a Fetched>,
        cost: &mut ReadCost,
        key: &mut &'a str,
        group: &mut Group<'a>,
    ) -> Result<(Sample<'a>, MosaicSamples<'a>, usize, Option<Box<Plan>>)> {
        let (recipe, run, header) = (self.recipe, self.run, self.part.header());
        let (epoch, run_number, offset) = (header.epoch, header.run, row - self.part.range().start);
        let entry = &header.entries[row].clone();
        let mut buffers = buffers.iter_mut();
        let mut read = |tile: usize, id: u64| -> Result<Sample<'a>> {
            let buffers = buffers.next().expect("there is one buffer per sample of an image");
            let sample = match fetched.and_then(|fetched| fetched.sample((offset, tile))) {
                Some((sample, ns)) => {
                    cost.ahead_ns += ns;
                    sample
                }
                // Prefetched samples count toward a separate budget.
                None => recipe
                    .read((id, entry), buffers, || run.tries_again(run_number))
                    .inspect(|read| cost.copied += read.memory()),
            };
            // Name the other samples of a mosaic by their source index, because a number that the
            // user assigned applies only to the first sample.
            let sample = sample.map_err(|e| recipe.at_sample(id, "", if tile > 0 { e.of_sample(id) } else { e }))?;
            cost.bytes += sample.memory();
            Ok(sample)
        };
        let sample = read(0, entry.sample)?;
        *key = sample.key();
        self.part.meta(row).key.push_str(sample.key());
        let partners = recipe.partners(epoch, entry)?;
        let mut others = MosaicSamples::new();
        for (id, tile) in partners.iter().flat_map(|partners| &partners.samples).copied().zip(1..) {
            others.push((id, read(tile, id)?));
        }
        recipe.check_length(&sample, entry.sample)?;
        others.iter().try_for_each(|(id, other)| recipe.check_length(other, *id))?;
        let (memory, field_plan) = self.plan((&sample, &others), entry, partners.as_ref(), group)?;
        Ok((sample, others, memory, field_plan))
    }

    fn images(&self) -> usize {
        self.recipe.any_fields().images.len()
    }

    /// Returns how many samples can be decoded together if each image has up to `tiles` tiles.
    fn max_samples(&self, tiles: usize) -> usize {
        // The frames of a clip use the buffers of other samples, so only one sample is decoded at a
        // time.
        let most = if self.recipe.any_fields().has_clips() { 1 } else { MAX_GROUP };
        (MAX_PLANNED / (tiles * self.images().max(1))).clamp(1, most)
    }

    /// Plans the images of a sample. Returns the memory, in bytes, for decoding the images and
    /// computing the fields, and the [plan for the fields](ReadSample::field_plan).
    fn plan(
        &mut self,
        (sample, others): (&Sample<'a>, &MosaicSamples<'a>),
        entry: &Entry,
        partners: Option<&Partners>,
        group: &mut Group<'a>,
    ) -> Result<(usize, Option<Box<Plan>>)> {
        let share = self.run.scratch.share();
        let &Header { epoch, variant, .. } = self.part.header();
        let (fields, first) = (&self.recipe.any_fields().images, group.sample_images.len());
        for (index, field) in fields.iter().enumerate() {
            let join = partners.filter(|_| field.image.own_augment().is_none()).map(|partners| &partners.join);
            let mut plan = |of: &Sample<'a>, tile: usize| {
                let (tile, scratch) =
                    (join.map(|join| (join, tile)), (&group.sample_images[first..], &mut *self.boxes));
                let sample_image = self.recipe.plan(field.described(), of, (variant, epoch, entry), tile, scratch)?;
                group.sample_images.push(SampleImage { field: index, ..sample_image });
                Ok(())
            };
            plan(sample, 0)?;
            for ((id, other), tile) in others.iter().zip(1..).filter(|_| join.is_some()) {
                plan(other, tile).map_err(|e: Error| e.at_sample(*id, other.key()))?;
            }
        }
        let (clips, mut copied) = self.plan_clips(&mut group.sample_images[first..], others.is_empty())?;
        self.find_decoded(&mut group.sample_images[first..]);
        if self.device_images != DeviceImages::All {
            recipe::share(&mut group.sample_images[first..], share.decode as u64);
        }
        // `copied` is the maximum, not the sum, because images are copied for the device one at a
        // time.
        let mut memory = clips;
        let alone = fields.len() == 1 && others.is_empty();
        for sample_image in &mut group.sample_images[first..] {
            if sample_image.frames.is_none() {
                self.choose(sample_image, alone);
            }
            let Some(encoded) = &sample_image.opened else { continue };
            if encoded.is_plain_jpeg() {
                self.meter.counts().plain_jpegs.bump();
            }
            let kept = sample_image.kept_coefficients();
            memory = memory.saturating_add(self.decoding_memory(encoded, sample_image.region)).saturating_add(kept);
            if sample_image.wants_device && others.is_empty() && fields[sample_image.field].may_decode_on_device() {
                copied = copied.max(encoded.bitstream_memory(sample_image.plan.region, self.part.free_encoded_bytes()));
            }
        }
        let field_plan = match &self.recipe.any_fields().shown {
            Some(name) => {
                let field = (&Image::new(), &**name);
                Some(Box::new(self.recipe.plan(field, sample, (variant, epoch, entry), None, (&[], self.boxes))?.plan))
            }
            None => None,
        };
        let (plan, tiles) = self.recipe.plan_and_tiles(&group.sample_images[first..], others);
        let pasted = group.sample_images[first..].iter().any(|image| image.pastes).then_some(&NOTHING);
        let computed = self.recipe.memory(sample, (plan.or(field_plan.as_deref()), &tiles, pasted), entry)?;
        let memory = memory.saturating_add(usize::try_from(computed).unwrap_or(usize::MAX));
        Ok((if copied > share.retained / 2 { memory.saturating_add(copied) } else { memory }, field_plan))
    }

    /// Finds images in the cache of decoded images. Images for which the cache has space are
    /// decoded completely.
    fn find_decoded(&self, sample_images: &mut [SampleImage<'a>]) {
        if self.recipe.cache.is_none() {
            return;
        }
        for index in 0..sample_images.len() {
            let (before, rest) = sample_images.split_at_mut(index);
            let sample_image = &mut rest[0];
            let view = before.iter().find(|view| view.shows_the_same(sample_image) && view.is_shown());
            let is_shown = sample_image.is_shown();
            let Some(encoded) = sample_image.opened.as_mut().filter(|_| is_shown) else { continue };
            if self.device_images == DeviceImages::All && encoded.suits_device() {
                continue;
            }
            if let Some(view) = view {
                if let Some(pixels) = view.cached.clone() {
                    sample_image.use_cached(pixels);
                } else if let Some(coefficients) = view.opened.as_ref().and_then(EncodedImage::coefficients) {
                    encoded.set_coefficients(coefficients.clone());
                }
                continue;
            }
            match self.recipe.find_decoded(encoded) {
                Lookup::Hit(pixels) => sample_image.use_cached(pixels),
                Lookup::Admitted(admission) => {
                    (sample_image.region, sample_image.admission) = (Rect::full(encoded.size()), Some(admission));
                }
                Lookup::Coefficients | Lookup::Declined => {}
            }
        }
    }

    /// Chooses where an image is decoded, and by how many threads. `alone` is true if it is the
    /// only image of its sample.
    fn choose(&self, sample_image: &mut SampleImage<'_>, alone: bool) {
        let pixels = sample_image.region.size().area().saturating_mul(3);
        let large = pixels >= LARGE && self.meter.mean_decoded_bytes().is_some_and(|usual| pixels / RARE >= usual);
        sample_image.wants_device =
            self.device_images == DeviceImages::All || (large && alone && self.device_images == DeviceImages::Large);
        let is_divisible = sample_image.opened.as_ref().is_some_and(EncodedImage::is_divisible);
        sample_image.divided = large && is_divisible && sample_image.kept_coefficients() == 0;
    }

    pub(super) fn process(&mut self, mut group: Group<'a>) {
        if let Some(first) = group.samples.first().filter(|_| !group.sample_images.is_empty()) {
            self.meter.enter(Stage::Decode, first.timed.id);
            self.meter.lap();
            self.decode(&mut group);
        }
        let mut first = 0;
        for (taken, sample_images) in group.iter_mut() {
            let made = self.write(taken, sample_images, first);
            first += sample_images.len();
            self.meter.finish_sample(&taken.timed);
            if let Err(e) = made {
                let (epoch, entry) = self.entry(taken.row);
                self.part.meta(taken.row).fault = Some(self.recipe.at_global_sample(epoch, &entry, taken.timed.key, e));
            }
        }
    }

    /// Decodes the images of `group`, or copies their data if the device decodes them.
    fn decode(&mut self, group: &mut Group<'a>) {
        if self.recipe.strict {
            // Damage is an error in strict mode, so fail damaged images before decoding them.
            for sample_image in &mut group.sample_images {
                sample_image.result = sample_image.opened.as_mut().map_or(Ok(()), Recipe::refuse_damage);
            }
        }
        if self.device_images != DeviceImages::None {
            self.store_for_device(group);
        }
        let mut jobs = ArrayVec::<Job<'_>, MAX_PLANNED>::new();
        let mut indices = ArrayVec::<usize, MAX_PLANNED>::new();
        for (index, (sample_image, pixels)) in group.sample_images.iter_mut().zip(self.pixels.iter_mut()).enumerate() {
            let Some(encoded) = sample_image.opened.take() else { continue };
            if !sample_image.on_device && sample_image.result.is_ok() && sample_image.is_shown() {
                let keep = sample_image.kept_coefficients();
                jobs.push(Job {
                    divided: sample_image.divided,
                    keep,
                    ..Job::new(encoded, sample_image.region, pixels)
                });
                indices.push(index);
            }
        }
        Recipe::decode(&mut jobs);
        let (mut jobs, mut first) = (indices.into_iter().zip(jobs).peekable(), 0);
        for (taken, sample_images) in group.iter_mut() {
            while let Some((index, job)) = jobs.next_if(|(index, _)| *index < first + sample_images.len()) {
                let shared = sample_images.iter().any(|sample_image| sample_image.shared_with == Some(index - first));
                let sample_image = &mut sample_images[index - first];
                let (id, key) = taken.owner(sample_image.tile);
                (sample_image.pixels, sample_image.ns) =
                    (job.out.data().len(), job.time.map(|time| time.as_nanos() as u64));
                let (admission, faulty) =
                    (sample_image.admission.take(), job.result.is_err() || job.out.damage().is_some());
                // If several images are cut from this decoded region, or if it was decoded for the
                // cache, the damage may lie outside the part that one of the images needs. So
                // decode each of these images separately.
                sample_image.separately = faulty && (shared || admission.is_some());
                if let Some(admission) = admission.filter(|_| !faulty) {
                    admission.fill(job.image.size(), job.out, job.coefficients);
                }
                if !sample_image.separately {
                    sample_image.damaged = job.result.is_ok() && self.recipe.note_damage(id, key, job.out);
                    sample_image.result = job.result;
                }
            }
            first += sample_images.len();
        }
        let Group { samples, sample_images } = group;
        self.meter.decoded(sample_images, samples.iter_mut().map(|taken| (&mut taken.timed, taken.image_count)));
    }

    /// Copies the data of the images that the device decodes.
    fn store_for_device(&mut self, group: &mut Group<'a>) {
        // Mosaics are composed on the CPU.
        for (taken, sample_images) in group.iter_mut().filter(|(taken, _)| taken.others.is_empty()) {
            for sample_image in
                sample_images.iter_mut().filter(|sample_image| sample_image.wants_device && sample_image.result.is_ok())
            {
                let Some(encoded) = &sample_image.opened else { continue };
                let start = Instant::now();
                let stored = self.store_images(std::slice::from_ref(encoded), sample_image, (taken.row, 0));
                sample_image.on_device = stored[0];
                if sample_image.on_device {
                    sample_image.ns = Some(nanos(Instant::now(), start));
                }
            }
        }
        self.bitstream.keep(self.run.scratch.share().retained / 2);
    }

    /// Copies the data of `images` for the device: `sample_image`, or consecutive frames of it.
    /// `place` is the row of the sample and the index of the first frame. Returns `false` for each
    /// image that a worker must decode.
    pub(super) fn store_images(
        &mut self,
        images: &[EncodedImage<'a>],
        sample_image: &SampleImage<'a>,
        (row, first): (usize, usize),
    ) -> ArrayVec<bool, MAX_GROUP> {
        #[cfg(feature = "video")]
        if images.iter().any(EncodedImage::is_video) {
            return self.store_video(images, sample_image, (row, first));
        }
        let frames = images.iter().zip(first..);
        frames.map(|(encoded, frame)| self.store_image(encoded, sample_image, (row, frame))).collect()
    }

    /// Like [`store_images`](Self::store_images), for the frames of a video. A worker decodes them,
    /// and the device converts them to RGB.
    #[cfg(feature = "video")]
    fn store_video(
        &mut self,
        images: &[EncodedImage<'a>],
        sample_image: &SampleImage<'a>,
        (row, first): (usize, usize),
    ) -> ArrayVec<bool, MAX_GROUP> {
        let PartFiller { recipe, part, meter, .. } = self;
        let (field, plan) = (&recipe.fields_of(part.header()).images[sample_image.field], &sample_image.plan);
        let mut stored: ArrayVec<bool, MAX_GROUP> = images.iter().map(|_| false).collect();
        // Do not decode frames twice if there is no space for them.
        let fits =
            plan.region.size().area().saturating_mul(3) / 2 * images.len() as u64 <= part.free_encoded_bytes() as u64;
        if !field.device_supports(plan) || !fits {
            meter.counts().device_full.add(if fits { 0 } else { images.len() as u64 });
            return stored;
        }
        decode_planes(images, |index, planes, orientation| {
            let yuv = YuvRegion::new(planes, orientation, plan.region);
            stored[index] = yuv.is_some_and(|yuv| field.store_yuv(&yuv, plan, part, (row, first + index)));
        });
        for _ in stored.iter().filter(|&&stored| stored) {
            meter.counts().decoded_on_device.bump();
        }
        stored
    }

    /// Copies the data of `encoded` for the device: `sample_image`, or one of its frames. `place`
    /// is the row of the sample and the index of the frame. Returns `false` if a worker must decode
    /// the image.
    fn store_image(
        &mut self,
        encoded: &EncodedImage<'a>,
        sample_image: &SampleImage<'a>,
        place: (usize, usize),
    ) -> bool {
        let PartFiller { recipe, bitstream, part, meter, .. } = self;
        let (field, plan) = (&recipe.fields_of(part.header()).images[sample_image.field], &sample_image.plan);
        if !field.device_supports(plan) {
            return false;
        }
        let free = part.free_encoded_bytes().saturating_sub(DecodeOps::SLACK);
        let stored = guarded(|| {
            let grid = encoded.bitstream(plan.region, free, bitstream);
            Ok(grid.map(|grid| field.store_encoded(&grid, bitstream, plan, part, place)))
        });
        // If this fails, decoding on the worker fails as well, and reports the error.
        let stored = stored.unwrap_or_default();
        if stored == Some(true) {
            meter.counts().decoded_on_device.bump();
        } else if stored == Some(false) || encoded.bytes().len() > free {
            meter.counts().device_full.bump();
        }
        stored == Some(true)
    }

    /// Writes the images and the other fields of a sample. `first` is the index of its first image
    /// in the group.
    fn write(&mut self, taken: &mut ReadSample<'a>, sample_images: &mut [SampleImage<'a>], first: usize) -> Result<()> {
        let pastes = sample_images.iter().any(|sample_image| sample_image.pastes);
        let mut made = if pastes { self.paste(taken, sample_images) } else { Ok(()) };
        if made.is_ok() {
            made = (0..sample_images.len()).try_for_each(|index| self.image(taken, sample_images, index, first));
        }
        let PartFiller { recipe, pasted, part, meter, .. } = self;
        let (row, fields) = (taken.row, recipe.fields_of(part.header()));
        part.meta(row).damaged = recipe::damaged(sample_images) + recipe::damaged_frames(sample_images);
        let (plan, tiles) = recipe.plan_and_tiles(sample_images, &taken.others);
        let plan = plan.or(taken.field_plan.as_deref());
        let image = |plan: &Plan| recipe.part_with_image(plan, (!tiles.is_empty() && !pastes, pastes));
        part.meta(row).shown = plan.map(image).unwrap_or_default();
        let (sample, timed, shown) = (&taken.sample, &mut taken.timed, (plan, &tiles[..], pastes.then_some(&**pasted)));
        if made.is_ok() {
            made = fields.copied.iter().try_for_each(|field| recipe.write(field, sample, shown, part, row));
        }
        meter.stage(Stage::Write, timed, part.schema().sample_bytes() - fields.computed_bytes());
        made?;
        for (index, field) in fields.computed.iter().enumerate() {
            meter.enter_field(index, timed.id);
            let made = recipe.write(field, sample, shown, part, row);
            meter.field(index, timed, field.bytes);
            made?;
        }
        Ok(())
    }

    fn paste(&mut self, taken: &ReadSample<'a>, sample_images: &[SampleImage<'a>]) -> Result<()> {
        self.meter.enter(Stage::Transform, taken.timed.id);
        let (epoch, entry) = self.entry(taken.row);
        self.recipe.paste(sample_images, &taken.others, (epoch, &entry), self.pasted)
    }

    /// Transforms image `index` of a sample. Writes the output image if `index` is the last of its
    /// tiles. `first` is the index of the sample's first image in the group.
    fn image(
        &mut self,
        taken: &mut ReadSample<'a>,
        sample_images: &mut [SampleImage<'a>],
        index: usize,
        first: usize,
    ) -> Result<()> {
        if sample_images[index].frames.is_some() {
            let used = first + sample_images.len();
            return self.clip(taken, &mut sample_images[index], used);
        }
        let PartFiller { recipe, pixels, image, resizer, pasted, part, meter, .. } = self;
        let source = sample_images[index].shared_with.unwrap_or(index);
        let (separately, bytes) = (sample_images[source].separately, sample_images[source].bytes);
        let (sample_image, pixels, id) = (&mut sample_images[index], &mut pixels[first + source], taken.timed.id);
        let cached = sample_image.cached.take();
        let (tile, (owner, key)) = (sample_image.tile, taken.owner(sample_image.tile));
        let of_partner = |e: Error| if tile > 0 { e.at_sample(owner, key) } else { e };
        std::mem::replace(&mut sample_image.result, Ok(())).map_err(of_partner)?;
        if sample_image.on_device {
            return Ok(());
        }
        if separately && sample_image.is_shown() {
            meter.enter(Stage::Decode, id);
            let decoded = guarded(|| recipe.codecs.open(bytes)?.decode(sample_image.plan.region, pixels));
            decoded.map_err(of_partner)?;
            sample_image.damaged = recipe.note_damage(owner, key, pixels);
            meter.stage(Stage::Decode, &mut taken.timed, pixels.data().len());
        }
        meter.enter(Stage::Transform, id);
        let field = &recipe.fields_of(part.header()).images[sample_image.field];
        let pixels = cached.as_deref().unwrap_or(pixels);
        recipe.transform(field, pixels, sample_image, ((resizer, image), pasted), (part, taken.row))?;
        if !sample_image.is_last() {
            return Ok(());
        }
        meter.stage(Stage::Transform, &mut taken.timed, field.rgb_bytes());
        meter.enter(Stage::Write, id);
        guarded(|| field.write(image, &sample_image.plan, &mut Row::new(part, taken.row)))
    }

    fn entry(&self, row: usize) -> (u64, Entry) {
        let header = self.part.header();
        (header.epoch, header.entries[row])
    }
}
