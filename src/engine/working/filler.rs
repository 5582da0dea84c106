//! Turns the samples of a part into rows of the batch: reads, plans, decodes, transforms and writes
//! them within the worker's memory limit.

use std::ops::Range;
use std::time::Instant;

use arrayvec::ArrayVec;

use super::meter::{Meter, SampleTiming};
#[cfg(feature = "video")]
use crate::batch::YuvRegion;
use crate::batch::{BatchHeader, DecodeOps, Row, SlotPart};
#[cfg(feature = "video")]
use crate::decode::decode_planes;
use crate::decode::{self, Bitstream, CacheLookup, EncodedImage, Job, MAX_GROUP, MAX_PLANNED_IMAGES, Pixels, Rect};
use crate::engine::reading::PrefetchedSamples;
use crate::engine::settings::Share;
use crate::engine::state::Runtime;
use crate::error::{Error, Result, guarded};
use crate::field::{Image, ImageContext, NO_OBJECTS, Pasted};
use crate::recipe::{self, Partners, Recipe, SampleImage};
use crate::sampler::Entry;
use crate::source::Sample;
use crate::trace::{Stage, StageMap, nanos};
use crate::transform::{Plan, Resizer, TILES};

/// An image is large if the pixels of its region take at least `LARGE_IMAGE_BYTES` bytes and at
/// least `LARGE_IMAGE_RATIO` times as much as the worker's average image. A large JPEG is divided
/// into bands, which idle workers help to decode, if restart markers permit this. If all images are
/// large, no worker is idle, and decoding the rows that two bands share would only take additional
/// time.
const LARGE_IMAGE_BYTES: u64 = 6 << 20;
const LARGE_IMAGE_RATIO: u64 = 12;

/// The images of a part that the device decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceImages {
    None,
    /// Only images that are so [large](LARGE_IMAGE_BYTES) that their batch would have to wait for
    /// the worker.
    Large,
    All,
}

pub(super) struct ReadSample<'a> {
    pub(super) row: usize,
    pub(super) sample: Sample<'a>,
    pub(super) partner_samples: PartnerSamples<'a>,
    pub(super) timing: SampleTiming<'a>,
    /// Number of images of this sample in the group, including tiles.
    pub(super) image_count: usize,
    /// Estimated memory for decoding the images, copying data for the device and computing the
    /// fields, in bytes. Includes the sample's read buffers if they exceed the worker's share.
    pub(super) memory: usize,
    /// Geometric plan for fields such as boxes if the loader does not deliver the image.
    field_plan: Option<Box<Plan>>,
}

/// The samples that are combined with a sample into one image, each with its source index.
type PartnerSamples<'a> = ArrayVec<(u64, Sample<'a>), { TILES - 1 }>;

impl ReadSample<'_> {
    /// Returns the source index and key of the sample that provides tile `tile` of an image.
    fn owner(&self, tile: usize) -> (u64, &str) {
        let partner = tile.checked_sub(1).map(|index| &self.partner_samples[index]);
        partner.map_or((self.timing.id, self.timing.key), |(id, sample)| (*id, sample.key()))
    }
}

#[derive(Default)]
struct ReadCost {
    bytes: usize,
    /// Bytes that this worker read and may have copied into its buffers.
    buffer_bytes: usize,
    /// Time that readers spent on prefetching the other bytes, in ns.
    prefetch_ns: u64,
}

/// Samples that are decoded together, and their images.
#[derive(Default)]
pub(super) struct Group<'a> {
    pub(super) samples: ArrayVec<ReadSample<'a>, MAX_GROUP>,
    pub(super) sample_images: ArrayVec<SampleImage<'a>, MAX_PLANNED_IMAGES>,
}

impl<'a> Group<'a> {
    pub(super) fn drain_front(&mut self, count: usize) -> Self {
        let samples: ArrayVec<_, MAX_GROUP> = self.samples.drain(..count).collect();
        let image_count: usize = samples.iter().map(|sample| sample.image_count).sum();
        Group { samples, sample_images: self.sample_images.drain(..image_count).collect() }
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (&mut ReadSample<'a>, &mut [SampleImage<'a>])> {
        let mut remaining_images = &mut self.sample_images[..];
        self.samples.iter_mut().map(move |sample| {
            let (sample_images, later_images) = std::mem::take(&mut remaining_images).split_at_mut(sample.image_count);
            remaining_images = later_images;
            (sample, sample_images)
        })
    }
}

/// Buffers that a worker reuses from sample to sample.
pub(super) struct Buffers {
    /// One buffer per decoded image. Output images that are crops of the same decoded image share
    /// its buffer.
    pub(super) pixels: [Pixels; MAX_PLANNED_IMAGES],
    pub(super) image_buffer: Vec<u8>,
    pub(super) resizer: Resizer,
    pub(super) pasted: Pasted,
    /// Boxes of the current sample, if its crop depends on them.
    pub(super) boxes: Vec<[f32; 4]>,
    /// Entropy-coded data of the current image, to be copied for the device.
    pub(super) bitstream: Bitstream,
}

impl Buffers {
    pub(super) fn new(image_buffer_bytes: usize) -> Self {
        Buffers {
            pixels: Default::default(),
            image_buffer: vec![0; image_buffer_bytes],
            resizer: Resizer::new(),
            pasted: Pasted::default(),
            boxes: Vec::new(),
            bitstream: Bitstream::default(),
        }
    }

    /// Frees each pixel buffer that takes the total above the worker's share. Earlier buffers have
    /// priority, because they are used most often. Limits the memory that the decoders and the
    /// bitstream retain between images. The bitstream gets at most half of this memory.
    pub(super) fn trim(&mut self, share: Share) {
        let mut free_bytes = share.decode_bytes;
        for pixels in &mut self.pixels {
            match free_bytes.checked_sub(pixels.capacity()) {
                Some(remaining_bytes) => free_bytes = remaining_bytes,
                None => pixels.release(),
            }
        }
        self.bitstream.trim_to(share.retained_bytes / 2);
        decode::trim_scratch(share.retained_bytes - self.bitstream.memory());
    }
}

pub(super) struct PartFiller<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) runtime: &'a Runtime,
    pub(super) buffers: &'a mut Buffers,
    pub(super) device_images: DeviceImages,
    pub(super) part: &'a mut SlotPart,
    pub(super) meter: Meter<'a>,
}

impl<'a> PartFiller<'a> {
    pub(super) fn read_group(
        &mut self,
        encoded_buffers: &'a mut [Box<[Vec<u8>]>],
        prefetched_samples: Option<&'a PrefetchedSamples>,
        rows: &mut Range<usize>,
    ) -> Group<'a> {
        let share = self.runtime.scratch.share();
        let epoch = self.part.header().epoch;
        let tiles = self.recipe.max_tiles(epoch);
        let mut group = Group::default();
        // Size of the buffers that the source may have filled, in bytes.
        let mut buffered_bytes = 0;
        for buffers in encoded_buffers.chunks_mut(tiles).take(self.max_samples(tiles)) {
            let Some(row) = rows.next() else { break };
            let (entry, first_image) = (self.part.header().entries[row], group.sample_images.len());
            let mut timing =
                SampleTiming { id: entry.sample, key: "", bytes: 0, ns: StageMap::default(), slowest_field: (0, 0) };
            self.meter.enter(Stage::Read, entry.sample);
            self.part.meta(row).fault = None;
            let mut cost = ReadCost::default();
            let result = self.read_and_plan(row, buffers, prefetched_samples, &mut cost, &mut timing.key, &mut group);
            self.meter.finish_stage(Stage::Read, &mut timing, cost.bytes);
            timing.ns[Stage::Read] += cost.prefetch_ns;
            timing.bytes = cost.bytes;
            match result {
                Ok((sample, partner_samples, memory, field_plan)) => {
                    let (buffer, image_count) =
                        (Share::max_buffer_bytes(cost.buffer_bytes), group.sample_images.len() - first_image);
                    let memory = memory.saturating_add(share.excess_buffer_bytes(cost.buffer_bytes));
                    group.samples.push(ReadSample {
                        row,
                        sample,
                        partner_samples,
                        timing,
                        image_count,
                        memory,
                        field_plan,
                    });
                    buffered_bytes += buffer;
                    // Stop here, because one more sample of this size might exceed the share.
                    if buffered_bytes + buffer > share.encoded_bytes {
                        break;
                    }
                }
                Err(e) => {
                    group.sample_images.truncate(first_image);
                    self.meter.finish_sample(&timing);
                    self.part.meta(row).fault = Some(self.recipe.entry_error(epoch, &entry, timing.key, e));
                }
            }
        }
        group
    }

    /// Reads and plans the sample in row `row` and its partners, and adds their images to `group`.
    /// Returns the sample, the partners, the memory in bytes for decoding them and computing the
    /// fields, and the [plan for the fields](ReadSample::field_plan).
    fn read_and_plan(
        &mut self,
        row: usize,
        buffers: &'a mut [Box<[Vec<u8>]>],
        prefetched_samples: Option<&'a PrefetchedSamples>,
        cost: &mut ReadCost,
        key: &mut &'a str,
        group: &mut Group<'a>,
    ) -> Result<(Sample<'a>, PartnerSamples<'a>, usize, Option<Box<Plan>>)> {
        let (recipe, runtime, header) = (self.recipe, self.runtime, self.part.header());
        let (epoch, run_number, entry_index) = (header.epoch, header.run, row - self.part.range().start);
        let entry = &header.entries[row].clone();
        let mut buffers = buffers.iter_mut();
        let mut read_sample = |tile: usize, id: u64| -> Result<Sample<'a>> {
            let buffers = buffers.next().expect("there is one buffer per sample of an image");
            let sample = match prefetched_samples
                .and_then(|prefetched_samples| prefetched_samples.sample((entry_index, tile)))
            {
                Some((sample, ns)) => {
                    cost.prefetch_ns += ns;
                    sample
                }
                // Prefetched samples count toward a separate budget.
                None => recipe
                    .read((id, entry), buffers, || runtime.may_retry(run_number))
                    .inspect(|sample| cost.buffer_bytes += sample.total_bytes()),
            };
            // Name partners by their source index, because a number that the user assigned applies
            // only to the first sample.
            let sample = sample.map_err(|e| recipe.sample_error(id, "", if tile > 0 { e.of_sample(id) } else { e }))?;
            cost.bytes += sample.total_bytes();
            Ok(sample)
        };
        let sample = read_sample(0, entry.sample)?;
        *key = sample.key();
        self.part.meta(row).key.push_str(sample.key());
        let partners = recipe.partners(epoch, entry)?;
        let mut partner_samples = PartnerSamples::new();
        for (id, tile) in partners.iter().flat_map(|partners| &partners.samples).copied().zip(1..) {
            partner_samples.push((id, read_sample(tile, id)?));
        }
        recipe.check_size(&sample, entry.sample)?;
        partner_samples.iter().try_for_each(|(id, other)| recipe.check_size(other, *id))?;
        let (memory, field_plan) = self.plan_images((&sample, &partner_samples), entry, partners.as_ref(), group)?;
        Ok((sample, partner_samples, memory, field_plan))
    }

    fn image_field_count(&self) -> usize {
        self.recipe.any_fields().images.len()
    }

    /// Returns how many samples can be decoded together if each image has up to `tiles` tiles.
    fn max_samples(&self, tiles: usize) -> usize {
        // The frames of a clip use the buffers of other samples, so decode one sample at a time.
        let max_samples = if self.recipe.any_fields().has_clips() { 1 } else { MAX_GROUP };
        (MAX_PLANNED_IMAGES / (tiles * self.image_field_count().max(1))).clamp(1, max_samples)
    }

    /// Plans the images of a sample and adds them to `group`. Returns the number of bytes needed to
    /// decode the images and to compute the fields, and the [plan for the
    /// fields](ReadSample::field_plan).
    fn plan_images(
        &mut self,
        (sample, partner_samples): (&Sample<'a>, &PartnerSamples<'a>),
        entry: &Entry,
        partners: Option<&Partners>,
        group: &mut Group<'a>,
    ) -> Result<(usize, Option<Box<Plan>>)> {
        let share = self.runtime.scratch.share();
        let &BatchHeader { epoch, variant, .. } = self.part.header();
        let (fields, first_image) = (&self.recipe.any_fields().images, group.sample_images.len());
        for (index, field) in fields.iter().enumerate() {
            let join = partners.filter(|_| field.image.own_augment().is_none()).map(|partners| &partners.join);
            let mut plan_tile = |tile_sample: &Sample<'a>, tile: usize| {
                let (tile, scratch) =
                    (join.map(|join| (join, tile)), (&group.sample_images[first_image..], &mut self.buffers.boxes));
                let sample_image = self.recipe.plan_image(
                    field.image_and_name(),
                    tile_sample,
                    (variant, epoch, entry),
                    tile,
                    scratch,
                )?;
                group.sample_images.push(SampleImage { field: index, ..sample_image });
                Ok(())
            };
            plan_tile(sample, 0)?;
            for ((id, partner), tile) in partner_samples.iter().zip(1..).filter(|_| join.is_some()) {
                plan_tile(partner, tile).map_err(|e: Error| e.at_sample(*id, partner.key()))?;
            }
        }
        let (clip_memory, mut copy_bytes) =
            self.plan_clips(&mut group.sample_images[first_image..], partner_samples.is_empty())?;
        self.find_cached_images(&mut group.sample_images[first_image..]);
        if self.device_images != DeviceImages::All {
            recipe::share_decoding(&mut group.sample_images[first_image..], share.decode_bytes as u64);
        }
        // `copy_bytes` is the maximum, not the sum, because images are copied one at a time.
        let mut memory = clip_memory;
        let is_only_image = fields.len() == 1 && partner_samples.is_empty();
        for sample_image in &mut group.sample_images[first_image..] {
            if sample_image.frames.is_none() {
                self.choose_decoder(sample_image, is_only_image);
            }
            let Some(encoded) = &sample_image.encoded_image else { continue };
            if encoded.is_plain_jpeg() {
                self.meter.counts().jpegs_without_restart_markers.bump();
            }
            let coefficient_bytes = sample_image.coefficient_bytes();
            memory = memory
                .saturating_add(self.decoding_memory(encoded, sample_image.region))
                .saturating_add(coefficient_bytes);
            if sample_image.prefers_device
                && partner_samples.is_empty()
                && fields[sample_image.field].may_decode_on_device()
            {
                copy_bytes =
                    copy_bytes.max(encoded.bitstream_memory(sample_image.plan.region, self.part.free_encoded_bytes()));
            }
        }
        let field_plan = match &self.recipe.any_fields().image_provider {
            Some(name) => {
                let field = (&Image::new(), &**name);
                Some(Box::new(
                    self.recipe
                        .plan_image(field, sample, (variant, epoch, entry), None, (&[], &mut self.buffers.boxes))?
                        .plan,
                ))
            }
            None => None,
        };
        let (plan, tiles) = self.recipe.plan_and_tiles(&group.sample_images[first_image..], partner_samples);
        let pasted_objects =
            group.sample_images[first_image..].iter().any(|image| image.has_pasted_objects).then_some(&NO_OBJECTS);
        let context = ImageContext { plan: plan.or(field_plan.as_deref()), tiles: &tiles, pasted: pasted_objects };
        let field_memory = self.recipe.memory(sample, context, entry)?;
        let memory = memory.saturating_add(usize::try_from(field_memory).unwrap_or(usize::MAX));
        Ok((if copy_bytes > share.retained_bytes / 2 { memory.saturating_add(copy_bytes) } else { memory }, field_plan))
    }

    /// Finds images in the cache of decoded images. If the cache admits a missing image, the whole
    /// image is decoded instead of only its region.
    fn find_cached_images(&self, sample_images: &mut [SampleImage<'a>]) {
        if self.recipe.cache.is_none() {
            return;
        }
        for index in 0..sample_images.len() {
            let (earlier_images, later_images) = sample_images.split_at_mut(index);
            let sample_image = &mut later_images[0];
            let earlier_image =
                earlier_images.iter().find(|image| image.has_same_source(sample_image) && image.is_visible());
            let is_visible = sample_image.is_visible();
            let Some(encoded) = sample_image.encoded_image.as_mut().filter(|_| is_visible) else { continue };
            if self.device_images == DeviceImages::All && encoded.suits_device() {
                continue;
            }
            if let Some(earlier_image) = earlier_image {
                if let Some(pixels) = earlier_image.cached_pixels.clone() {
                    sample_image.use_cached(pixels);
                } else if let Some(coefficients) =
                    earlier_image.encoded_image.as_ref().and_then(EncodedImage::coefficients)
                {
                    encoded.set_coefficients(coefficients.clone());
                }
                continue;
            }
            match self.recipe.find_decoded(encoded) {
                CacheLookup::Hit(pixels) => sample_image.use_cached(pixels),
                CacheLookup::Admitted(admission) => {
                    (sample_image.region, sample_image.admission) = (Rect::full(encoded.size()), Some(admission));
                }
                CacheLookup::Coefficients | CacheLookup::Declined => {}
            }
        }
    }

    /// Chooses where an image is decoded, and whether several threads decode it.
    fn choose_decoder(&self, sample_image: &mut SampleImage<'_>, is_only_image: bool) {
        let pixel_bytes = sample_image.region.size().area().saturating_mul(3);
        let is_large = pixel_bytes >= LARGE_IMAGE_BYTES
            && self.meter.mean_decoded_bytes().is_some_and(|mean_bytes| pixel_bytes / LARGE_IMAGE_RATIO >= mean_bytes);
        sample_image.prefers_device = self.device_images == DeviceImages::All
            || (is_large && is_only_image && self.device_images == DeviceImages::Large);
        let is_divisible = sample_image.encoded_image.as_ref().is_some_and(EncodedImage::is_divisible);
        sample_image.is_divided = is_large && is_divisible && sample_image.coefficient_bytes() == 0;
    }

    pub(super) fn process(&mut self, mut group: Group<'a>) {
        if let Some(first_sample) = group.samples.first().filter(|_| !group.sample_images.is_empty()) {
            self.meter.enter(Stage::Decode, first_sample.timing.id);
            self.meter.lap();
            self.decode(&mut group);
        }
        let mut first_image = 0;
        for (sample, sample_images) in group.iter_mut() {
            let result = self.write_sample(sample, sample_images, first_image);
            first_image += sample_images.len();
            self.meter.finish_sample(&sample.timing);
            if let Err(e) = result {
                let (epoch, entry) = self.epoch_and_entry(sample.row);
                self.part.meta(sample.row).fault = Some(self.recipe.entry_error(epoch, &entry, sample.timing.key, e));
            }
        }
    }

    /// Decodes the images of `group`. If the device decodes an image, copies its data instead.
    fn decode(&mut self, group: &mut Group<'a>) {
        if self.recipe.is_strict {
            // Damage is an error in strict mode, so fail damaged images before decoding them.
            for sample_image in &mut group.sample_images {
                sample_image.result = sample_image.encoded_image.as_mut().map_or(Ok(()), Recipe::refuse_damage);
            }
        }
        if self.device_images != DeviceImages::None {
            self.store_for_device(group);
        }
        let mut jobs = ArrayVec::<Job<'_>, MAX_PLANNED_IMAGES>::new();
        let mut indices = ArrayVec::<usize, MAX_PLANNED_IMAGES>::new();
        for (index, (sample_image, pixels)) in
            group.sample_images.iter_mut().zip(self.buffers.pixels.iter_mut()).enumerate()
        {
            let Some(encoded) = sample_image.encoded_image.take() else { continue };
            if !sample_image.is_on_device && sample_image.result.is_ok() && sample_image.is_visible() {
                let coefficient_bytes = sample_image.coefficient_bytes();
                jobs.push(Job {
                    is_divided: sample_image.is_divided,
                    max_coefficient_bytes: coefficient_bytes,
                    ..Job::new(encoded, sample_image.region, pixels)
                });
                indices.push(index);
            }
        }
        Recipe::decode(&mut jobs);
        let (mut jobs, mut first_image) = (indices.into_iter().zip(jobs).peekable(), 0);
        for (sample, sample_images) in group.iter_mut() {
            while let Some((index, job)) = jobs.next_if(|(index, _)| *index < first_image + sample_images.len()) {
                let is_shared =
                    sample_images.iter().any(|sample_image| sample_image.pixel_source == Some(index - first_image));
                let sample_image = &mut sample_images[index - first_image];
                let (id, key) = sample.owner(sample_image.tile);
                (sample_image.pixel_bytes, sample_image.decode_ns) =
                    (job.out.data().len(), job.time.map(|time| time.as_nanos() as u64));
                let (admission, is_faulty) =
                    (sample_image.admission.take(), job.result.is_err() || job.out.damage().is_some());
                // If several images share this decoded region, or if it was decoded for the cache,
                // the damage may lie outside the region that an image needs. So decode each of
                // these images separately.
                sample_image.must_decode_separately = is_faulty && (is_shared || admission.is_some());
                if let Some(admission) = admission.filter(|_| !is_faulty) {
                    admission.fill(job.image.size(), job.out, job.coefficients);
                }
                if !sample_image.must_decode_separately {
                    sample_image.is_damaged = job.result.is_ok() && self.recipe.record_damage(id, key, job.out);
                    sample_image.result = job.result;
                }
            }
            first_image += sample_images.len();
        }
        let Group { samples, sample_images } = group;
        self.meter
            .finish_decoding(sample_images, samples.iter_mut().map(|sample| (&mut sample.timing, sample.image_count)));
    }

    fn store_for_device(&mut self, group: &mut Group<'a>) {
        // Workers decode and combine the images of samples with partners.
        for (sample, sample_images) in group.iter_mut().filter(|(sample, _)| sample.partner_samples.is_empty()) {
            for sample_image in sample_images
                .iter_mut()
                .filter(|sample_image| sample_image.prefers_device && sample_image.result.is_ok())
            {
                let Some(encoded) = &sample_image.encoded_image else { continue };
                let start = Instant::now();
                let stored = self.store_images(std::slice::from_ref(encoded), sample_image, (sample.row, 0));
                sample_image.is_on_device = stored[0];
                if sample_image.is_on_device {
                    sample_image.decode_ns = Some(nanos(Instant::now(), start));
                }
            }
        }
        self.buffers.bitstream.trim_to(self.runtime.scratch.share().retained_bytes / 2);
    }

    /// Copies the data of `images` for the device. `images` contains the image of `sample_image`,
    /// or its consecutive frames from `first_frame` on. Returns `false` for each image that a
    /// worker must decode.
    pub(super) fn store_images(
        &mut self,
        images: &[EncodedImage<'a>],
        sample_image: &SampleImage<'a>,
        (row, first_frame): (usize, usize),
    ) -> ArrayVec<bool, MAX_GROUP> {
        #[cfg(feature = "video")]
        if images.iter().any(EncodedImage::is_video) {
            return self.store_video(images, sample_image, (row, first_frame));
        }
        let frames = images.iter().zip(first_frame..);
        frames.map(|(encoded, frame)| self.store_image(encoded, sample_image, (row, frame))).collect()
    }

    /// Like [`store_images`](Self::store_images), for the frames of a video. A worker decodes them,
    /// and the device converts them to RGB.
    #[cfg(feature = "video")]
    fn store_video(
        &mut self,
        images: &[EncodedImage<'a>],
        sample_image: &SampleImage<'a>,
        (row, first_frame): (usize, usize),
    ) -> ArrayVec<bool, MAX_GROUP> {
        let PartFiller { recipe, part, meter, .. } = self;
        let (field, plan) = (&recipe.fields_of(part.header()).images[sample_image.field], &sample_image.plan);
        let mut is_stored: ArrayVec<bool, MAX_GROUP> = images.iter().map(|_| false).collect();
        // Check the space first: if the frames do not fit, a worker decodes them later, and should
        // not decode them twice.
        let has_space =
            plan.region.size().area().saturating_mul(3) / 2 * images.len() as u64 <= part.free_encoded_bytes() as u64;
        if !field.device_supports(plan) || !has_space {
            meter.counts().device_full_images.add(if has_space { 0 } else { images.len() as u64 });
            return is_stored;
        }
        decode_planes(images, |index, planes, orientation| {
            let yuv = YuvRegion::new(planes, orientation, plan.region);
            is_stored[index] = yuv.is_some_and(|yuv| field.store_yuv(&yuv, plan, part, (row, first_frame + index)));
        });
        for _ in is_stored.iter().filter(|&&is_stored| is_stored) {
            meter.counts().images_sent_to_device.bump();
        }
        is_stored
    }

    fn store_image(
        &mut self,
        encoded: &EncodedImage<'a>,
        sample_image: &SampleImage<'a>,
        row_and_frame: (usize, usize),
    ) -> bool {
        let PartFiller { recipe, buffers: Buffers { bitstream, .. }, part, meter, .. } = self;
        let (field, plan) = (&recipe.fields_of(part.header()).images[sample_image.field], &sample_image.plan);
        if !field.device_supports(plan) {
            return false;
        }
        let free_bytes = part.free_encoded_bytes().saturating_sub(DecodeOps::SLACK);
        let result = guarded(|| {
            let grid = encoded.bitstream(plan.region, free_bytes, bitstream);
            Ok(grid.map(|grid| field.store_encoded(&grid, bitstream, plan, part, row_and_frame)))
        });
        // After a panic, a worker decodes the image instead.
        let result = result.unwrap_or_default();
        if result == Some(true) {
            meter.counts().images_sent_to_device.bump();
        } else if result == Some(false) || encoded.bytes().len() > free_bytes {
            meter.counts().device_full_images.bump();
        }
        result == Some(true)
    }

    /// `first_image` is the index of the sample's first image in the group.
    fn write_sample(
        &mut self,
        read_sample: &mut ReadSample<'a>,
        sample_images: &mut [SampleImage<'a>],
        first_image: usize,
    ) -> Result<()> {
        let has_pasted_objects = sample_images.iter().any(|sample_image| sample_image.has_pasted_objects);
        let mut result = if has_pasted_objects { self.paste(read_sample, sample_images) } else { Ok(()) };
        if result.is_ok() {
            result = (0..sample_images.len())
                .try_for_each(|index| self.write_image(read_sample, sample_images, index, first_image));
        }
        let PartFiller { recipe, buffers: Buffers { pasted, .. }, part, meter, .. } = self;
        let (row, fields) = (read_sample.row, recipe.fields_of(part.header()));
        part.meta(row).damaged_images =
            recipe::count_damaged_images(sample_images) + recipe::count_damaged_frames(sample_images);
        let (plan, tiles) = recipe.plan_and_tiles(sample_images, &read_sample.partner_samples);
        let plan = plan.or(read_sample.field_plan.as_deref());
        let context = ImageContext { plan, tiles: &tiles, pasted: has_pasted_objects.then_some(&*pasted) };
        let (sample, timing) = (&read_sample.sample, &mut read_sample.timing);
        if result.is_ok() {
            result = fields.copied_fields.iter().try_for_each(|field| recipe.write(field, sample, context, part, row));
        }
        meter.finish_stage(Stage::Write, timing, part.schema().sample_bytes() - fields.computed_bytes());
        result?;
        for (index, field) in fields.computed_fields.iter().enumerate() {
            meter.enter_field(index, timing.id);
            let result = recipe.write(field, sample, context, part, row);
            meter.finish_field(index, timing, field.bytes);
            result?;
        }
        let image_area =
            |plan: &Plan| recipe.area_with_image(plan, (!tiles.is_empty() && !has_pasted_objects, has_pasted_objects));
        part.meta(row).image_area = plan.map(image_area).unwrap_or_default();
        Ok(())
    }

    fn paste(&mut self, sample: &ReadSample<'a>, sample_images: &[SampleImage<'a>]) -> Result<()> {
        self.meter.enter(Stage::Transform, sample.timing.id);
        let (epoch, entry) = self.epoch_and_entry(sample.row);
        self.recipe.paste(sample_images, &sample.partner_samples, (epoch, &entry), &mut self.buffers.pasted)
    }

    /// Transforms image `index` of a sample, and writes the output image after its last tile. Does
    /// nothing if the device decodes the image. Writes all frames of a clip. `first_image` is the
    /// index of the sample's first image in the group.
    fn write_image(
        &mut self,
        sample: &mut ReadSample<'a>,
        sample_images: &mut [SampleImage<'a>],
        index: usize,
        first_image: usize,
    ) -> Result<()> {
        if sample_images[index].frames.is_some() {
            let used_buffers = first_image + sample_images.len();
            return self.write_clip(sample, &mut sample_images[index], used_buffers);
        }
        let PartFiller { recipe, buffers, part, meter, .. } = self;
        let Buffers { pixels, image_buffer, resizer, pasted, .. } = &mut **buffers;
        let source_index = sample_images[index].pixel_source.unwrap_or(index);
        let (must_decode_separately, bytes) =
            (sample_images[source_index].must_decode_separately, sample_images[source_index].bytes);
        let (sample_image, pixels, id) =
            (&mut sample_images[index], &mut pixels[first_image + source_index], sample.timing.id);
        let cached_pixels = sample_image.cached_pixels.take();
        let (tile, (owner, key)) = (sample_image.tile, sample.owner(sample_image.tile));
        let add_partner = |e: Error| if tile > 0 { e.at_sample(owner, key) } else { e };
        std::mem::replace(&mut sample_image.result, Ok(())).map_err(add_partner)?;
        if sample_image.is_on_device {
            return Ok(());
        }
        if must_decode_separately && sample_image.is_visible() {
            meter.enter(Stage::Decode, id);
            let decoded = guarded(|| recipe.codecs.open(bytes)?.decode(sample_image.plan.region, pixels));
            decoded.map_err(add_partner)?;
            sample_image.is_damaged = recipe.record_damage(owner, key, pixels);
            meter.finish_stage(Stage::Decode, &mut sample.timing, pixels.data().len());
        }
        meter.enter(Stage::Transform, id);
        let field = &recipe.fields_of(part.header()).images[sample_image.field];
        let pixels = cached_pixels.as_deref().unwrap_or(pixels);
        recipe.transform(field, pixels, sample_image, ((resizer, image_buffer), pasted), (part, sample.row))?;
        if !sample_image.is_last_tile() {
            return Ok(());
        }
        meter.finish_stage(Stage::Transform, &mut sample.timing, field.rgb_bytes());
        meter.enter(Stage::Write, id);
        guarded(|| field.write(image_buffer, &sample_image.plan, &mut Row::new(part, sample.row)))
    }

    fn epoch_and_entry(&self, row: usize) -> (u64, Entry) {
        let header = self.part.header();
        (header.epoch, header.entries[row])
    }
}
