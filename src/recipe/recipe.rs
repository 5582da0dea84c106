//! [`Recipe`] contains the steps that read, plan, decode, transform and write a sample, and that
//! finish a batch.
//!
//! All workers share one recipe. The random numbers of a sample depend only on the seed, the source
//! index of the sample, and [`Occurrence::variant`](crate::sampler::Occurrence::variant), which is
//! usually the epoch.

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::augments::Augments;
use super::damage::DamageLog;
use super::partners::{Partners, draw_partners};
use super::sample_image::SampleImage;
use crate::batch::{BatchHeader, FilledSlot, Role, Row, SlotPart};
use crate::decode::{self, AnnotationFrame, CacheLookup, Codecs, DecodedCache, EncodedImage, Job, Pixels, Rect};
use crate::error::{Error, Result, guarded};
use crate::field::{ArrayField, DecodeSettings, Fields, Image, ImageContext, ImageField, MixScratch, Pasted, Tile};
use crate::sampler::{Entry, Rng, Sampler};
use crate::source::{self, Frames, Sample, Source};
use crate::transform::{Augment, Join, OutputSizes, Pasting, Plan, Resizer, TILES, Transform};

pub(crate) struct Recipe {
    pub(crate) source: Arc<dyn Source>,
    /// The source from which samples are read. It may omit fields that the loader does not use.
    pub(crate) read_source: Arc<dyn Source>,
    pub(crate) codecs: Codecs,
    pub(crate) cache: Option<DecodedCache>,
    pub(crate) augments: Augments,
    /// The loader's sample order. The additional samples that are combined with a sample, in a
    /// mosaic or by pasting objects, are drawn from this order.
    pub(crate) order: Arc<dyn Sampler>,
    pub(crate) transforms: Vec<Arc<dyn Transform>>,
    pub(crate) may_move_pixels: bool,
    /// One entry for each size bucket or, without size buckets, for each combination of output
    /// sizes in `output_sizes`. The field types are the same in all entries.
    pub(crate) fields: Vec<Fields>,
    pub(crate) output_sizes: OutputSizes,
    /// The version of an image to which annotations refer. Used only if the image size in the
    /// annotations does not determine the version.
    pub(crate) annotation_frame: Option<AnnotationFrame>,
    pub(crate) seed: u64,
    pub(crate) retries: usize,
    /// Maximum total size of a sample's fields, in bytes.
    pub(crate) max_sample_bytes: u64,
    /// Whether damage that decoders tolerate makes a sample fail.
    pub(crate) is_strict: bool,
    pub(crate) damage_log: DamageLog,
    /// Whether a copy of another sample of the batch replaces a failed sample.
    pub(crate) replaces_failed: bool,
    /// Whether the fields of a failed sample are overwritten: images with black, and other fields
    /// with zeros. The sample still has its error.
    pub(crate) blanks_failed: bool,
    /// Whether the samples are arrays in memory that workers may [copy](Recipe::copy) instead of
    /// reading them.
    pub(crate) can_copy: bool,
}

impl Recipe {
    /// Reads sample `id`: the sample of `entry`, or a sample that is combined with it. After a
    /// transient error, retries while `may_retry` returns true and an unused buffer remains. Each
    /// attempt uses one of the `buffers`, because a failed attempt may still borrow its buffer.
    pub(crate) fn read<'a>(
        &'a self,
        (id, entry): (u64, &Entry),
        buffers: &'a mut [Vec<u8>],
        may_retry: impl FnMut() -> bool,
    ) -> Result<Sample<'a>> {
        let (max_retries, mut buffers, draw) = (buffers.len() - 1, buffers.iter_mut(), self.clip_draw(entry));
        source::retried(max_retries, id, may_retry, || {
            let buffer = buffers.next().expect("each attempt has a buffer");
            source::within(self.max_sample_bytes, || self.read_source.read_drawn(id as usize, draw, buffer))
        })
    }

    /// Copies sample `id` to row `row` of `part` if the sample's only field is an array in memory.
    /// Returns the number of bytes of the array, or `None` if the sample was not copied and must be
    /// read instead.
    pub(crate) fn copy(&self, id: u64, part: &mut SlotPart, row: usize) -> Option<usize> {
        let numbers = self.read_source.stored(id as usize, &mut part.meta(row).key)?;
        let (bytes, field) = (numbers.parts().2.len(), &self.fields_of(part.header()).copied_fields[0]);
        (bytes as u64 <= self.max_sample_bytes && field.write_stored(numbers, part, row)).then_some(bytes)
    }

    pub(crate) fn sample_error(&self, id: u64, key: &str, error: Error) -> Error {
        source::sample_error(&*self.source, id as usize, key, error)
    }

    /// Adds the index, key and file of the sample of `entry` to an error. If the error occurred in
    /// a different sample that is combined with this sample, the result names both samples.
    pub(crate) fn entry_error(&self, epoch: u64, entry: &Entry, key: &str, error: Error) -> Error {
        let id = entry.sample;
        let partners = self.partners(epoch, entry).ok().flatten();
        let is_partner = |failed_id: u64| {
            failed_id != id && partners.as_ref().is_some_and(|partners| partners.samples.contains(&failed_id))
        };
        match error.sample().filter(|&failed_id| is_partner(failed_id)) {
            Some(partner) => self.sample_error(id, key, self.sample_error(partner, "", error).of_partner()),
            None => self.sample_error(id, key, error),
        }
    }

    pub(crate) fn partners(&self, epoch: u64, entry: &Entry) -> Result<Option<Partners>> {
        let augment = self.augments.for_sample(0, entry.sample);
        draw_partners(augment, &*self.order, (self.seed, self.source.len() as u64), (epoch, entry))
    }

    pub(crate) fn fields_of(&self, header: &BatchHeader) -> &Fields {
        &self.fields[header.variant]
    }

    pub(crate) fn all_augments(&self) -> impl Iterator<Item = &Augment> {
        self.any_fields().augments(self.augments.common()).chain(self.augments.variants())
    }

    /// Returns the first entry of `fields`, for callers that need no image size.
    pub(crate) fn any_fields(&self) -> &Fields {
        &self.fields[0]
    }

    /// Returns the size of the buffer in which a worker finishes an image, in bytes. The buffer has
    /// enough space for the largest image of any epoch as `u8` RGB. With custom transforms, the
    /// buffer is twice as large, because it also contains the part of the image that the transforms
    /// receive.
    pub(crate) fn image_buffer_bytes(&self) -> usize {
        image_buffer_bytes(&self.fields, !self.transforms.is_empty())
    }

    /// Returns the area of an output image in which the source image may be visible. Usually, this
    /// is the area without the fill color around the source image. If custom transforms may move
    /// pixels, it is the area that the transforms receive. In a mosaic (`is_tiled`), it is the
    /// whole output image.
    pub(crate) fn area_with_image(&self, plan: &Plan, (is_tiled, has_pasted_objects): (bool, bool)) -> Rect {
        let may_move = self.may_move_pixels && !self.transforms.is_empty();
        match (is_tiled, may_move) {
            (true, _) => Rect::full(plan.output),
            (false, true) => plan.changeable_area(has_pasted_objects),
            (false, false) => plan.image_area(),
        }
    }

    pub(crate) fn max_tiles(&self, epoch: u64) -> usize {
        self.augments.max_images(epoch)
    }

    pub(crate) fn max_tiles_of_all_epochs(&self) -> usize {
        self.augments.max_images_of_all_epochs()
    }

    /// Finds the image `name` of a sample, reads its header and creates its plan. `epoch` is the
    /// epoch of the batch, and `variant` is the index of the batch's fields in
    /// [`fields`](Recipe::fields).
    ///
    /// If the image is combined with others in a mosaic or by pasting objects, `tile` is the way in
    /// which they are combined, and the number of this image among them. `earlier_images` contains
    /// the images of the sample that were planned before. For every tile but the first, the last of
    /// these images is the previous tile. `boxes` is a buffer for the sample's boxes.
    pub(crate) fn plan_image<'a>(
        &'a self,
        (image, name): (&Image, &str),
        sample: &Sample<'a>,
        (variant, epoch, entry): (usize, u64, &Entry),
        tile: Option<(&Join, usize)>,
        (earlier_images, boxes): (&[SampleImage<'a>], &mut Vec<[f32; 4]>),
    ) -> Result<SampleImage<'a>> {
        guarded(|| {
            let (bytes, frames) = image.encoded(name, sample, &self.codecs, &self.rng(entry))?;
            let cloned_image = earlier_images.iter().find(|image| std::ptr::eq(image.bytes, bytes));
            let cloned_image = cloned_image.and_then(|image| image.encoded_image.as_ref()?.try_clone());
            let encoded = cloned_image.map_or_else(|| self.codecs.open(bytes), Ok);
            let encoded = encoded.map_err(|e| if frames.is_some() { frame_error(name, frames, 0, e) } else { e })?;
            let oriented = encoded.oriented().annotated(self.annotation_frame);
            let rng = self.rng(entry);
            let (augment, mut rng) = match image.own_augment() {
                Some(own) => (own, rng.named(name)),
                None => (self.augments.for_sample(variant, entry.sample), rng),
            };
            let augment = augment.at_epoch(epoch);
            if let Some((Join::Tiles(tiling), tile)) = tile {
                let plan = Plan { oriented, ..augment.plan_tile((tiling, tile), encoded.size(), &mut rng)? };
                let mut sample_image = SampleImage { tile, tile_count: TILES, ..SampleImage::new(encoded, plan, rng) };
                // Only a strict loader must check an invisible tile for damage.
                if !sample_image.is_visible() && !self.is_strict {
                    sample_image.skip_decoding();
                }
                return Ok(sample_image);
            }
            if augment.needs_boxes() {
                self.any_fields().read_boxes(sample, oriented, boxes)?;
            }
            // The image from which objects are pasted has its own random crop and flips. Effects
            // and custom transforms apply to the combined image, so they use the plan and the
            // random numbers of the first image.
            let previous_tile = earlier_images.last().filter(|_| tile.is_some_and(|(_, tile)| tile > 0));
            if previous_tile.is_some() {
                rng = Pasting::partner_rng(&rng);
            }
            let mut plan = Plan { oriented, ..augment.plan_with(encoded.size(), boxes, &mut rng)? };
            if let Some(tile) = previous_tile {
                plan.effects = tile.plan.effects.clone();
                rng = tile.rng.clone();
            }
            let (tile_count, tile) = tile.map_or((1, 0), |(join, tile)| (join.image_count(), tile));
            Ok(SampleImage {
                frames,
                tile,
                tile_count,
                has_pasted_objects: tile_count > 1,
                ..SampleImage::new(encoded, plan, rng)
            })
        })
    }

    /// Reads the header of frame `frame` of a clip in the field `name`. All frames share one plan,
    /// so it is an error if their sizes differ.
    pub(crate) fn open_frame<'a>(
        &'a self,
        name: &str,
        sample_image: &SampleImage<'a>,
        frame: usize,
    ) -> Result<EncodedImage<'a>> {
        let bytes = sample_image.frames.and_then(|frames| frames.get(frame)).expect("`frame` is a frame of the clip");
        let encoded =
            guarded(|| self.codecs.open(bytes)).map_err(|e| frame_error(name, sample_image.frames, frame, e))?;
        let (size, expected_size) = (encoded.size(), sample_image.plan.oriented.size());
        if size == expected_size {
            return Ok(encoded);
        }
        Err(Error::decode(format!(
            "frame {frame} of field {name:?} has {}x{} pixels, and frame 0 has {}x{}: all frames of a clip must have \
             the same size",
            size.width, size.height, expected_size.width, expected_size.height
        )))
    }

    /// Searches for an image in the cache. If the image is missing, reserves space for it if
    /// possible.
    pub(crate) fn find_decoded(&self, encoded: &mut EncodedImage<'_>) -> CacheLookup<'_> {
        self.cache.as_ref().map_or(CacheLookup::Declined, |cache| cache.find(encoded))
    }

    pub(crate) fn check_size(&self, sample: &Sample<'_>, id: u64) -> Result<()> {
        check_sample_size(sample, self.max_sample_bytes).map_err(|e| self.sample_error(id, sample.key(), e))
    }

    pub(crate) fn refuse_damage(encoded: &mut EncodedImage<'_>) -> Result<()> {
        guarded(|| encoded.refuse_damage())
    }

    /// Returns whether the decoder found damage in an image of sample `id`, and logs the damage.
    pub(crate) fn record_damage(&self, id: u64, key: &str, pixels: &Pixels) -> bool {
        self.record_damage_at(id, key, pixels, |e| e)
    }

    /// Like [`record_damage`](Recipe::record_damage). `add_position` adds the position of the image
    /// within the sample to the logged error.
    pub(crate) fn record_damage_at(
        &self,
        id: u64,
        key: &str,
        pixels: &Pixels,
        add_position: impl FnOnce(Error) -> Error,
    ) -> bool {
        let Some(damage) = pixels.damage() else { return false };
        self.damage_log.log_once(id, || self.sample_error(id, key, add_position(Error::decode(damage))));
        true
    }

    /// Decodes all jobs together. If decoding panics, decodes each job again separately, so that
    /// only a job that panics fails.
    pub(crate) fn decode(jobs: &mut [Job<'_>]) {
        let result = guarded(|| {
            decode::decode_group(jobs);
            Ok(())
        });
        if result.is_err() {
            for job in jobs {
                job.result = guarded(|| job.image.decode(job.region, job.out));
            }
        }
    }

    /// Transforms the decoded pixels of `sample_image`. A tile is added to its combined image,
    /// which is complete after the last tile.
    pub(crate) fn transform(
        &self,
        field: &ImageField,
        pixels: &Pixels,
        sample_image: &mut SampleImage<'_>,
        (scratch, pasted): ((&mut Resizer, &mut [u8]), &mut Pasted),
        (part, row): (&mut SlotPart, usize),
    ) -> Result<()> {
        let (is_first, is_visible, is_last) =
            (sample_image.tile == 0, sample_image.is_visible(), sample_image.is_last_tile());
        let has_pasted_objects = sample_image.has_pasted_objects;
        let SampleImage { tile_count, plan, rng, .. } = sample_image;
        let (transforms, mut output_row) = (&self.transforms, Row::new(part, row));
        if *tile_count == 1 {
            return guarded(|| field.transform(pixels, plan, rng, transforms, scratch, &mut output_row));
        }
        guarded(|| {
            let (resizer, image) = scratch;
            let canvas = field.pixel_buffer(image, &mut output_row);
            if has_pasted_objects && is_first {
                resizer.run(pixels, plan, canvas)?;
            } else if has_pasted_objects {
                if let Some(partner_image) = pasted.source_image(canvas.len()) {
                    resizer.run(pixels, plan, partner_image)?;
                    pasted.paste_image(canvas);
                }
                return field.finish((plan, true), rng, transforms, image, &mut output_row);
            } else if is_first {
                canvas.as_chunks_mut().0.fill(plan.fill);
            }
            if is_visible && !has_pasted_objects {
                resizer.paste(pixels, plan, canvas)?;
            }
            if is_last { field.finish((plan, true), rng, transforms, image, &mut output_row) } else { Ok(()) }
        })
    }

    /// Returns the plan with which annotations, such as boxes and masks, are transformed. This is
    /// the plan of the first image that uses the loader's augmentation. If this image is combined
    /// with images of `partner_samples`, also returns the tiles that show these samples. `images`
    /// contains all images of the sample.
    pub(crate) fn plan_and_tiles<'a>(
        &self,
        images: &'a [SampleImage<'_>],
        partner_samples: &'a [(u64, Sample<'_>)],
    ) -> (Option<&'a Plan>, ArrayVec<Tile<'a>, { TILES - 1 }>) {
        let mut plans = images
            .iter()
            .filter(|sample_image| Some(sample_image.field) == self.any_fields().followed_image)
            .map(|sample_image| &sample_image.plan);
        let plan = plans.next();
        (plan, plans.zip(partner_samples).map(|(plan, (index, sample))| Tile { index: *index, sample, plan }).collect())
    }

    /// Selects the objects that are pasted into the image of `entry`. The objects come from the
    /// first of `partner_samples`. `images` contains all images of the sample. Does nothing if the
    /// image of `entry` has no pasted objects.
    pub(crate) fn paste(
        &self,
        images: &[SampleImage<'_>],
        partner_samples: &[(u64, Sample<'_>)],
        (epoch, entry): (u64, &Entry),
        pasted: &mut Pasted,
    ) -> Result<()> {
        guarded(|| {
            let is_partner = |sample_image: &&SampleImage<'_>| {
                sample_image.tile > 0 && Some(sample_image.field) == self.any_fields().followed_image
            };
            let (Some(sample_image), Some((id, sample))) = (images.iter().find(is_partner), partner_samples.first())
            else {
                return Ok(());
            };
            let margin = match self.partners(epoch, entry)?.map(|partners| partners.join) {
                Some(Join::Paste(pasting)) => pasting.margin,
                _ => return Ok(()),
            };
            let result =
                self.any_fields().select_pasted(sample, &sample_image.plan, (&self.rng(entry), margin), pasted);
            result.map_err(|e| e.at_sample(*id, sample.key()))
        })
    }

    /// Returns the number of bytes of scratch memory needed to compute the fields of a sample.
    /// `context` describes the image to which the annotations of the sample refer.
    pub(crate) fn memory(&self, sample: &Sample<'_>, context: ImageContext<'_>, entry: &Entry) -> Result<u64> {
        guarded(|| {
            // Fields are computed one after the other, so the maximum is enough.
            let memory =
                |field: &ArrayField| field.scratch_bytes(sample, context, self.rng(entry), self.decode_settings());
            Ok(self.any_fields().computed_fields.iter().map(memory).max().unwrap_or(0))
        })
    }

    pub(crate) fn write(
        &self,
        field: &ArrayField,
        sample: &Sample<'_>,
        context: ImageContext<'_>,
        part: &mut SlotPart,
        row: usize,
    ) -> Result<()> {
        let (entry, previous_damage) = (part.header().entries[row], part.meta(row).damaged_images);
        let scope = (self.rng(&entry), self.decode_settings());
        guarded(|| field.write(sample, context, scope, part, row))?;
        if part.meta(row).damaged_images > previous_damage {
            let error = || Error::decode(format!("an image of field {:?} is damaged", field.name));
            self.damage_log.log_once(entry.sample, || self.sample_error(entry.sample, sample.key(), error()));
        }
        Ok(())
    }

    pub(crate) fn clip_draw(&self, entry: &Entry) -> u64 {
        Image::clip_draw(&self.rng(entry))
    }

    fn decode_settings(&self) -> DecodeSettings<'_> {
        DecodeSettings { codecs: &self.codecs, is_strict: self.is_strict }
    }

    fn rng(&self, entry: &Entry) -> Rng {
        Rng::new(self.seed, entry.variant, entry.sample)
    }

    pub(crate) fn finish(&self, full: &mut FilledSlot, scratch: &mut MixScratch) {
        let fields = self.fields_of(full.header());
        fields.mark_unlabeled(&*self.source, full);
        if self.replaces_failed {
            replace_failed_samples(full);
        }
        if self.blanks_failed {
            blank_failed_rows(fields, full);
        }
        if let Err(e) = guarded(|| fields.mix(full, scratch)) {
            // Some samples may have been mixed already, so make all samples of the batch fail.
            (0..full.len()).for_each(|row| full.meta_mut(row).fault = Some(e.clone()));
        }
        fields.finish(full);
    }
}

/// Fails if the fields of the sample have more than `max_bytes` bytes in total.
pub(crate) fn check_sample_size(sample: &Sample<'_>, max_bytes: u64) -> Result<()> {
    match sample.total_bytes() as u64 {
        bytes if bytes > max_bytes => {
            Err(Error::in_source(format!("the sample has {bytes} bytes, but max_sample_bytes is {max_bytes}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn frame_error(name: &str, frames: Option<Frames<'_>>, frame: usize, error: Error) -> Error {
    let video_position = frames.and_then(|frames| frames.index(frame));
    let video_position = video_position.map_or(String::new(), |index| format!(", frame {index} of the video"));
    error.settled(&format!("frame {frame} of field {name:?}{video_position}"))
}

pub(crate) fn image_buffer_bytes(fields: &[Fields], transforms: bool) -> usize {
    let largest_bytes = fields.iter().map(Fields::largest_image_bytes).max().unwrap_or(0);
    largest_bytes * if transforms { 2 } else { 1 }
}

impl Recipe {
    /// Returns the row that contains the encoded images which the device decodes for row `row`. The
    /// result differs from `row` if row `row` contains a copy of a different sample that replaces a
    /// failed sample. If the device decodes no image of the row, returns `row`.
    #[cfg(feature = "_device")]
    pub(crate) fn image_source_row(&self, full: &mut FilledSlot, row: usize) -> usize {
        self.any_fields().images.iter().find_map(|field| field.encoded_row(full, row)).unwrap_or(row)
    }

    pub(crate) fn finish_redecoded(&self, full: &mut FilledSlot, rows: &[usize]) {
        full.unpack();
        if self.replaces_failed {
            replace_failed_samples(full);
        }
        if self.blanks_failed {
            let fields = self.fields_of(full.header());
            rows.iter().for_each(|&row| blank_if_failed(fields, full, row));
        }
        full.pack();
    }
}

/// Replaces the images of each failed sample with black, and its other fields with zeros.
fn blank_failed_rows(fields: &Fields, full: &mut FilledSlot) {
    (0..full.len()).for_each(|row| blank_if_failed(fields, full, row));
}

fn blank_if_failed(fields: &Fields, full: &mut FilledSlot, row: usize) {
    let Some(fault) = full.meta_mut(row).fault.take() else { return };
    full.meta_mut(row).fault = Some(fault.of_sample(row as u64));
    full.header_mut().entries[row].valid = false;
    fields.blank(full, row);
}

/// Replaces each failed sample, including its index and key, with a copy of the next sample of the
/// batch that did not fail, so that the shape of the batch does not change. After the last sample,
/// the search continues with the first. If all samples failed, the batch does not change.
fn replace_failed_samples(full: &mut FilledSlot) {
    let len = full.len();
    let is_intact = |full: &FilledSlot, row: usize| full.meta(row).fault.is_none();
    for row in 0..len {
        if is_intact(full, row) {
            continue;
        }
        let Some(donor) = (1..len).map(|distance| (row + distance) % len).find(|&candidate| is_intact(full, candidate))
        else {
            return;
        };
        for span in 0..full.schema().spans.len() {
            let bytes = full.schema().spans[span].sample_bytes;
            // The encoded data is not copied, because the copied record tells the device where the
            // data is.
            if let Role::Encoded { .. } = full.schema().spans[span].role {
                continue;
            }
            full.bytes_mut(span).copy_within(donor * bytes..(donor + 1) * bytes, row * bytes);
        }
        let (entry, donor_meta) = (full.header().entries[donor], full.meta(donor));
        let (key, donor_area, texts) = (donor_meta.key.clone(), donor_meta.image_area, donor_meta.texts().to_vec());
        let failed_entry = std::mem::replace(&mut full.header_mut().entries[row], Entry { valid: false, ..entry });
        let meta = full.meta_mut(row);
        (meta.key, meta.image_area) = (key, donor_area);
        meta.replace_texts(&texts);
        // If the device cannot decode the donor (the sample that was copied), a second donor may
        // replace the copy. Record the index of the sample that failed first.
        meta.replaced_sample.get_or_insert(failed_entry.sample);
    }
}
