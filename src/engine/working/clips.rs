//! Decodes, transforms and writes the frames of clips, with one augmentation per clip.
//!
//! A worker decodes up to eight frames at a time, so that decoders can interleave them, and reuses
//! the buffers for the next frames. So a clip never needs memory for more than eight decoded
//! frames. If a device decodes JPEG frames, the worker copies their encoded data instead. If a
//! device converts video frames to RGB, the worker decodes them and copies their luma and chroma
//! samples.

use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::filler::{Buffers, DeviceImages, PartFiller, ReadSample};
use crate::batch::Row;
use crate::decode::{CacheLookup, EncodedImage, Job, MAX_GROUP, Pixels, Rect};
use crate::error::{Result, guarded};
use crate::field::ImageField;
use crate::recipe::{Recipe, SampleImage, frame_error};
use crate::trace::Stage;

/// For each frame of a group, its pixels if they are in the cache of decoded images.
type CachedFrames = ArrayVec<Option<Arc<Pixels>>, MAX_GROUP>;

/// Divides the frames of a clip into groups of similar size, which are decoded together.
fn groups(frame_count: usize) -> impl Iterator<Item = Range<usize>> {
    let group_len = frame_count.div_ceil(frame_count.div_ceil(MAX_GROUP).max(1)).max(1);
    (0..frame_count).step_by(group_len).map(move |start| start..frame_count.min(start + group_len))
}

impl<'a> PartFiller<'a> {
    /// Marks the clips in `sample_images` so that single-image decoding skips them. Returns the
    /// number of bytes needed to decode the clip that needs the most memory, and the number needed
    /// to copy the largest frame for the device. `is_single_sample` is true if no image is combined
    /// with images of other samples.
    pub(super) fn plan_clips(
        &self,
        sample_images: &mut [SampleImage<'a>],
        is_single_sample: bool,
    ) -> Result<(usize, usize)> {
        let (mut max_memory, mut copy_bytes) = (0, 0);
        for sample_image in sample_images {
            let Some(frames) = sample_image.frames else { continue };
            let first_frame = sample_image.encoded_image.take().expect("the caller has opened the first frame");
            // Clips are decoded one at a time, so their memory does not add up.
            max_memory = max_memory.max(self.clip_memory(&first_frame, frames.len(), sample_image)?);
            let field = &self.recipe.any_fields().images[sample_image.field];
            sample_image.prefers_device = is_single_sample
                && self.device_images == DeviceImages::All
                && first_frame.suits_device()
                && field.device_supports(&sample_image.plan);
            if sample_image.prefers_device {
                let (name, free_bytes) = (self.field_name(sample_image), self.part.free_encoded_bytes());
                for frame in 0..frames.len() {
                    let encoded = self.recipe.open_frame(name, sample_image, frame)?;
                    copy_bytes = copy_bytes.max(encoded.bitstream_memory(sample_image.plan.region, free_bytes));
                }
            }
            sample_image.skip_decoding();
            sample_image.decode_ns = Some(0);
        }
        Ok((max_memory, copy_bytes))
    }

    fn field_name(&self, sample_image: &SampleImage<'a>) -> &'a str {
        &self.recipe.any_fields().images[sample_image.field].name
    }

    /// Returns the number of bytes needed to decode the frames of a clip, as the maximum over its
    /// groups.
    fn clip_memory(
        &self,
        first_frame: &EncodedImage<'_>,
        frame_count: usize,
        sample_image: &SampleImage<'a>,
    ) -> Result<usize> {
        let pixel_bytes = first_frame.size().area().saturating_mul(3);
        let name = self.field_name(sample_image);
        let (region, mut max_memory) = (self.largest_region(sample_image), 0);
        let cached_bytes = self.recipe.cache.as_ref().map_or(0, |cache| cache.max_coefficient_bytes(first_frame));
        for group in groups(frame_count) {
            // If only pixels count, the estimate for the first frame applies to all frames, because
            // they have the same size.
            let memory = if self.counts_only_pixels(pixel_bytes) {
                self.decoding_memory(first_frame, region).saturating_add(cached_bytes).saturating_mul(group.len())
            } else {
                group.into_iter().try_fold(0_usize, |sum, frame| -> Result<usize> {
                    let encoded = self.recipe.open_frame(name, sample_image, frame)?;
                    Ok(sum.saturating_add(self.decoding_memory(&encoded, region)).saturating_add(cached_bytes))
                })?
            };
            max_memory = max_memory.max(memory);
        }
        Ok(max_memory)
    }

    /// Returns the largest region of a frame that may have to be decoded: the whole frame if it may
    /// be added to the cache of decoded images.
    pub(super) fn largest_region(&self, sample_image: &SampleImage<'a>) -> Rect {
        if self.recipe.cache.is_some() { Rect::full(sample_image.plan.oriented.size()) } else { sample_image.region }
    }

    /// Writes the frames of a clip. The first `used_buffers` buffers contain other images.
    pub(super) fn write_clip(
        &mut self,
        sample: &mut ReadSample<'a>,
        sample_image: &mut SampleImage<'a>,
        used_buffers: usize,
    ) -> Result<()> {
        let recipe = self.recipe;
        let field = &recipe.fields_of(self.part.header()).images[sample_image.field];
        let frame_count = sample_image.frames.map_or(0, |frames| frames.len());
        for group in groups(frame_count) {
            self.meter.enter(Stage::Decode, sample.timing.id);
            let group = self.store_frames(sample, field, sample_image, group)?;
            if !group.is_empty() {
                let cached = self.decode_frames(sample, field, sample_image, used_buffers, &group)?;
                self.write_frames(sample, field, sample_image, used_buffers, group.into_iter().zip(cached))?;
            }
        }
        Ok(())
    }

    /// Copies the data of the frames in `group` that the device processes. Returns the indices of
    /// the frames that the worker must decode.
    fn store_frames(
        &mut self,
        sample: &mut ReadSample<'a>,
        field: &ImageField,
        sample_image: &SampleImage<'a>,
        group: Range<usize>,
    ) -> Result<ArrayVec<usize, MAX_GROUP>> {
        if !sample_image.prefers_device {
            return Ok(group.collect());
        }
        let (mut frames, recipe) = (ArrayVec::<_, MAX_GROUP>::new(), self.recipe);
        for frame in group.clone() {
            let mut encoded = recipe.open_frame(&field.name, sample_image, frame)?;
            // Damage in a video frame is found only by decoding the frame.
            if recipe.is_strict && !encoded.is_video() {
                Recipe::refuse_damage(&mut encoded)
                    .map_err(|e| frame_error(&field.name, sample_image.frames, frame, e))?;
            }
            frames.push(encoded);
        }
        let is_stored = self.store_images(&frames, sample_image, (sample.row, group.start));
        self.buffers.bitstream.trim_to(self.runtime.scratch.share().retained_bytes / 2);
        let (count, ns) = (is_stored.iter().filter(|&&is_stored| is_stored).count() as u64, self.meter.lap());
        for _ in 0..count {
            self.meter.add_time(Stage::Decode, &mut sample.timing, ns / count, 0);
        }
        Ok(group.zip(is_stored).filter(|(_, is_stored)| !is_stored).map(|(frame, _)| frame).collect())
    }

    /// Decodes the frames in `group` into `self.buffers.pixels[used_buffers..]`. Does not decode
    /// frames that are in the cache of decoded images, but returns their pixels.
    fn decode_frames(
        &mut self,
        sample: &mut ReadSample<'a>,
        field: &ImageField,
        sample_image: &mut SampleImage<'a>,
        used_buffers: usize,
        group: &[usize],
    ) -> Result<CachedFrames> {
        let (recipe, name) = (self.recipe, &*field.name);
        let mut encoded_frames = ArrayVec::<EncodedImage<'a>, MAX_GROUP>::new();
        let mut lookups = ArrayVec::<CacheLookup<'a>, MAX_GROUP>::new();
        for &frame in group {
            let mut encoded = recipe.open_frame(name, sample_image, frame)?;
            let lookup = recipe.find_decoded(&mut encoded);
            if recipe.is_strict && !matches!(lookup, CacheLookup::Hit(_)) {
                Recipe::refuse_damage(&mut encoded).map_err(|e| frame_error(name, sample_image.frames, frame, e))?;
            }
            encoded_frames.push(encoded);
            lookups.push(lookup);
        }
        self.free_frame_buffers(&encoded_frames, sample.memory, sample_image, used_buffers);
        let (buffers, size) = (&mut self.buffers.pixels[used_buffers..], sample_image.plan.oriented.size());
        let jobs = encoded_frames.into_iter().zip(buffers.iter_mut()).zip(&lookups);
        let jobs = jobs.filter_map(|((encoded, pixels), lookup)| match lookup {
            CacheLookup::Hit(_) => None,
            CacheLookup::Admitted(admission) => Some(Job {
                max_coefficient_bytes: admission.max_coefficient_bytes,
                ..Job::new(encoded, Rect::full(size), pixels)
            }),
            CacheLookup::Coefficients | CacheLookup::Declined => Some(Job::new(encoded, sample_image.region, pixels)),
        });
        let mut jobs: ArrayVec<Job<'_>, MAX_GROUP> = jobs.collect();
        Recipe::decode(&mut jobs);
        let results: ArrayVec<_, MAX_GROUP> = jobs.into_iter().map(|job| (job.result, job.coefficients)).collect();
        let ns = self.meter.lap() / group.len() as u64;
        let (mut results, mut cached) = (results.into_iter(), CachedFrames::new());
        for ((&frame, lookup), pixels) in group.iter().zip(lookups).zip(buffers.iter_mut()) {
            let mut next_result = || results.next().expect("each frame that is not in the cache has a job");
            let (cached_pixels, result) = match lookup {
                CacheLookup::Hit(cached_pixels) => (Some(cached_pixels), Ok(())),
                CacheLookup::Coefficients | CacheLookup::Declined => (None, next_result().0),
                CacheLookup::Admitted(admission) => match next_result() {
                    (Ok(()), coefficients) if pixels.damage().is_none() => {
                        admission.fill(size, pixels, coefficients);
                        (None, Ok(()))
                    }
                    _ => (
                        None,
                        guarded(|| recipe.open_frame(name, sample_image, frame)?.decode(sample_image.region, pixels)),
                    ),
                },
            };
            result.map_err(|e| frame_error(name, sample_image.frames, frame, e))?;
            let (id, key, pixels) = (sample.timing.id, sample.timing.key, cached_pixels.as_deref().unwrap_or(pixels));
            let is_damaged =
                recipe.record_damage_at(id, key, pixels, |e| frame_error(name, sample_image.frames, frame, e));
            sample_image.damaged_frames += u32::from(is_damaged);
            self.meter.add_time(Stage::Decode, &mut sample.timing, ns, pixels.data().len());
            cached.push(cached_pixels);
        }
        Ok(cached)
    }

    /// Transforms the frames in `group` and writes them to the batch. Frames that are not in the
    /// cache are in `self.buffers.pixels[used_buffers..]`.
    fn write_frames(
        &mut self,
        sample: &mut ReadSample<'a>,
        field: &ImageField,
        sample_image: &mut SampleImage<'a>,
        used_buffers: usize,
        group: impl Iterator<Item = (usize, Option<Arc<Pixels>>)>,
    ) -> Result<()> {
        let PartFiller { recipe, buffers, part, meter, .. } = self;
        let Buffers { pixels, image_buffer, resizer, .. } = &mut **buffers;
        for ((frame, cached_pixels), pixels) in group.zip(&pixels[used_buffers..]) {
            let pixels = cached_pixels.as_deref().unwrap_or(pixels);
            meter.enter(Stage::Transform, sample.timing.id);
            let (mut rng, mut row) = (sample_image.rng.clone(), Row::new(part, sample.row).at_frame(frame));
            let result = guarded(|| {
                let scratch = (&mut *resizer, &mut image_buffer[..]);
                field.transform(pixels, &sample_image.plan, &mut rng, &recipe.transforms, scratch, &mut row)
            });
            result.map_err(|e| frame_error(&field.name, sample_image.frames, frame, e))?;
            let ns = meter.lap();
            meter.add_time(Stage::Transform, &mut sample.timing, ns, field.rgb_bytes());
            meter.enter(Stage::Write, sample.timing.id);
            guarded(|| field.write(image_buffer, &sample_image.plan, &mut row))?;
            let ns = meter.lap();
            meter.add_uncounted_time(Stage::Write, &mut sample.timing, ns);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_are_divided_into_groups_of_similar_size() {
        let lengths = |frames| groups(frames).map(|group| group.len()).collect::<Vec<_>>();
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(8), [8]);
        assert_eq!(lengths(9), [5, 4]);
        assert_eq!(lengths(17), [6, 6, 5]);
        for frames in 1..100 {
            assert!(groups(frames).flatten().eq(0..frames), "{frames}");
        }
    }
}
