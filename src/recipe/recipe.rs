//! [`Recipe`]: the steps that read, plan, decode, transform and write a sample, and that finish a
//! batch.
//!
//! All workers share one recipe, in which only the list of damaged samples is mutable. The random
//! numbers of a sample depend only on (seed, epoch, sample).

use std::sync::Arc;

use arrayvec::ArrayVec;

use super::augments::Augments;
use super::damage::Damaged;
use super::partners::{Partners, partners};
use super::sample_image::SampleImage;
use crate::batch::{Full, Header, Part, Role, Row};
use crate::decode::{self, AnnotationFrame, Codecs, DecodedCache, EncodedImage, Job, Lookup, Pixels, Rect};
use crate::error::{Error, Result, guarded};
use crate::field::{Fields, Image, ImageField, Member, MixScratch, Pasted, Shown, Tile};
use crate::sampler::{Entry, Rng, Sampler};
use crate::source::{self, Frames, Sample, Source};
use crate::transform::{Augment, Join, OutputSizes, Pasting, Plan, Resizer, TILES, Transform};

pub(crate) struct Recipe {
    pub(crate) source: Arc<dyn Source>,
    /// The source from which samples are read. The samples may lack fields that no field type
    /// reads.
    pub(crate) reads: Arc<dyn Source>,
    pub(crate) codecs: Codecs,
    pub(crate) cache: Option<DecodedCache>,
    pub(crate) augments: Augments,
    /// The order from which partners are drawn.
    pub(crate) order: Arc<dyn Sampler>,
    pub(crate) transforms: Vec<Arc<dyn Transform>>,
    pub(crate) moves_pixels: bool,
    /// The fields of each variant. All variants have the same field types.
    pub(crate) fields: Vec<Fields>,
    pub(crate) output_sizes: OutputSizes,
    /// Which version of an image annotations refer to, if the size that they declare does not
    /// determine it.
    pub(crate) annotated: Option<AnnotationFrame>,
    pub(crate) seed: u64,
    pub(crate) retries: usize,
    /// Maximum size of all fields of a sample.
    pub(crate) sample_bytes: u64,
    /// Whether damage that decoders tolerate makes a sample fail.
    pub(crate) strict: bool,
    pub(crate) damaged: Damaged,
    /// Whether a copy of a different sample of the batch replaces a failed sample.
    pub(crate) replaces_failed: bool,
    /// Whether a failed sample becomes a black image, with an error.
    pub(crate) blanks_failed: bool,
    /// Whether the samples are arrays in memory that workers [copy](Recipe::copy).
    pub(crate) copies: bool,
}

impl Recipe {
    /// Reads sample `id`, which may be a partner of `entry`. After a transient error, retries while
    /// `go_on` returns true. Each attempt needs one of the `buffers`, because a failed attempt may
    /// still borrow its buffer.
    pub(crate) fn read<'a>(
        &'a self,
        (id, entry): (u64, &Entry),
        buffers: &'a mut [Vec<u8>],
        go_on: impl FnMut() -> bool,
    ) -> Result<Sample<'a>> {
        let (times, mut buffers, draw) = (buffers.len() - 1, buffers.iter_mut(), self.clip_draw(entry));
        source::retried(times, id, go_on, || {
            let buffer = buffers.next().expect("each attempt has a buffer");
            source::within(self.sample_bytes, || self.reads.read_drawn(id as usize, draw, buffer))
        })
    }

    /// Copies sample `id` to row `place` of `part`, if its only field is an array in memory.
    /// Returns the number of bytes, or `None` if the sample must be read and written like other
    /// samples.
    pub(crate) fn copy(&self, id: u64, part: &mut Part, place: usize) -> Option<usize> {
        let numbers = self.reads.stored(id as usize, &mut part.meta(place).key)?;
        let (bytes, field) = (numbers.parts().2.len(), &self.fields_of(part.header()).copied[0]);
        (bytes as u64 <= self.sample_bytes && field.write_stored(numbers, part, place)).then_some(bytes)
    }

    pub(crate) fn at_sample(&self, id: u64, key: &str, error: Error) -> Error {
        source::sample_error(&*self.source, id as usize, key, error)
    }

    /// Adds the index, key and file of a sample to an error. The cause names the partner and its
    /// file if the error belongs to a partner.
    pub(crate) fn at_global_sample(&self, epoch: u64, entry: &Entry, key: &str, error: Error) -> Error {
        let id = entry.sample;
        let partners = self.partners(epoch, entry).ok().flatten();
        let is_of_partner =
            |of: u64| of != id && partners.as_ref().is_some_and(|partners| partners.samples.contains(&of));
        match error.sample().filter(|&of| is_of_partner(of)) {
            Some(partner) => self.at_sample(id, key, self.at_sample(partner, "", error).of_partner()),
            None => self.at_sample(id, key, error),
        }
    }

    pub(crate) fn partners(&self, epoch: u64, entry: &Entry) -> Result<Option<Partners>> {
        let augment = self.augments.of(0, entry.sample);
        partners(augment, &*self.order, (self.seed, self.source.len() as u64), (epoch, entry))
    }

    pub(crate) fn fields_of(&self, header: &Header) -> &Fields {
        &self.fields[header.variant]
    }

    pub(crate) fn all_augments(&self) -> impl Iterator<Item = &Augment> {
        self.any_fields().augments(self.augments.common()).chain(self.augments.variants())
    }

    /// Returns the fields of the first variant, for callers that do not depend on image sizes.
    pub(crate) fn any_fields(&self) -> &Fields {
        &self.fields[0]
    }

    /// Returns the size of the buffer in which a worker finishes an image, in bytes. The buffer
    /// holds the largest image of any epoch as `u8` RGB, and the part of this image that custom
    /// transforms receive.
    pub(crate) fn image_buffer_bytes(&self) -> usize {
        image_buffer_bytes(&self.fields, !self.transforms.is_empty())
    }

    /// Returns the area of an output image that shows the source image. If custom transforms may
    /// move pixels, returns the area that they receive.
    pub(crate) fn part_with_image(&self, plan: &Plan, (tiled, pastes): (bool, bool)) -> Rect {
        let moved = self.moves_pixels && !self.transforms.is_empty();
        match (tiled, moved) {
            (true, _) => Rect::full(plan.output),
            (false, true) => plan.changeable(pastes),
            (false, false) => plan.shown(),
        }
    }

    /// Returns the maximum number of samples that are combined into an image in `epoch`.
    pub(crate) fn max_tiles(&self, epoch: u64) -> usize {
        self.augments.max_images(epoch)
    }

    /// Returns the maximum number of samples that are combined into an image in any epoch.
    pub(crate) fn max_tiles_ever(&self) -> usize {
        self.augments.max_images_of_all_epochs()
    }

    /// Finds the image `name` of a sample in a batch of `epoch` and `variant`, reads its header and
    /// creates its plan. If `tile` is set, the image is tile `tile.1` of a combined image. `before`
    /// contains the sample's earlier images, the last of which is the previous tile.
    pub(crate) fn plan<'a>(
        &'a self,
        (image, name): (&Image, &str),
        sample: &Sample<'a>,
        (variant, epoch, entry): (usize, u64, &Entry),
        tile: Option<(&Join, usize)>,
        (before, boxes): (&[SampleImage<'a>], &mut Vec<[f32; 4]>),
    ) -> Result<SampleImage<'a>> {
        guarded(|| {
            let (bytes, frames) = image.encoded(name, sample, &self.codecs, &self.rng(entry))?;
            let opened = before.iter().find(|image| std::ptr::eq(image.bytes, bytes));
            let opened = opened.and_then(|image| image.opened.as_ref()?.try_clone());
            let encoded = opened.map_or_else(|| self.codecs.open(bytes), Ok);
            let encoded = encoded.map_err(|e| if frames.is_some() { at_frame(name, frames, 0, e) } else { e })?;
            let oriented = encoded.oriented().annotated(self.annotated);
            let rng = self.rng(entry);
            let (augment, mut rng) = match image.own_augment() {
                Some(own) => (own, rng.named(name)),
                None => (self.augments.of(variant, entry.sample), rng),
            };
            let augment = augment.at_epoch(epoch);
            if let Some((Join::Tiles(tiling), tile)) = tile {
                let plan = Plan { oriented, ..augment.plan_tile((tiling, tile), encoded.size(), &mut rng)? };
                let mut sample_image = SampleImage { tile, tiles: TILES, ..SampleImage::new(encoded, plan, rng) };
                // In an invisible tile, damage is an error only for a strict loader.
                if !sample_image.is_shown() && !self.strict {
                    sample_image.skip();
                }
                return Ok(sample_image);
            }
            if augment.needs_boxes() {
                self.any_fields().boxes(sample, oriented, boxes)?;
            }
            // A partner has its own crop and flips, but effects and custom transforms apply to the
            // whole combined image.
            let own = before.last().filter(|_| tile.is_some_and(|(_, tile)| tile > 0));
            if own.is_some() {
                rng = Pasting::rng(&rng);
            }
            let mut plan = Plan { oriented, ..augment.plan_with(encoded.size(), boxes, &mut rng)? };
            if let Some(own) = own {
                plan.drawn = own.plan.drawn.clone();
                rng = own.rng.clone();
            }
            let (tiles, tile) = tile.map_or((1, 0), |(join, tile)| (join.images(), tile));
            Ok(SampleImage { frames, tile, tiles, pastes: tiles > 1, ..SampleImage::new(encoded, plan, rng) })
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
        let bytes = sample_image.frames.and_then(|frames| frames.get(frame)).expect("a frame of the clip");
        let opened = guarded(|| self.codecs.open(bytes)).map_err(|e| at_frame(name, sample_image.frames, frame, e))?;
        let (found, expected) = (opened.size(), sample_image.plan.oriented.size());
        if found == expected {
            return Ok(opened);
        }
        Err(Error::decode(format!(
            "frame {frame} of field {name:?} has {}x{} pixels, and frame 0 has {}x{}: all frames of a clip must have \
             the same size",
            found.width, found.height, expected.width, expected.height
        )))
    }

    /// Looks the image up in the cache. If it is not there, reserves space for it.
    pub(crate) fn find_decoded(&self, encoded: &mut EncodedImage<'_>) -> Lookup<'_> {
        self.cache.as_ref().map_or(Lookup::Declined, |cache| cache.find(encoded))
    }

    pub(crate) fn check_length(&self, sample: &Sample<'_>, id: u64) -> Result<()> {
        let total = sample.memory() as u64;
        if total > self.sample_bytes {
            let cause = format!("the sample has {total} bytes, but the limit is {}", self.sample_bytes);
            return Err(self.at_sample(id, sample.key(), Error::in_source(cause)));
        }
        Ok(())
    }

    /// Checks a whole encoded image for damage anywhere, as a strict loader requires.
    pub(crate) fn refuse_damage(encoded: &mut EncodedImage<'_>) -> Result<()> {
        guarded(|| encoded.refuse_damage())
    }

    /// Returns whether the decoder found damage in an image of sample `id`, which is then logged.
    pub(crate) fn note_damage(&self, id: u64, key: &str, pixels: &Pixels) -> bool {
        self.note_damage_at(id, key, pixels, |e| e)
    }

    /// Like [`note_damage`](Recipe::note_damage). `at` adds the position of the image in the sample
    /// to the error that is logged.
    pub(crate) fn note_damage_at(&self, id: u64, key: &str, pixels: &Pixels, at: impl FnOnce(Error) -> Error) -> bool {
        let Some(what) = pixels.damage() else { return false };
        self.damaged.note(id, || self.at_sample(id, key, at(Error::decode(what))));
        true
    }

    /// Decodes all jobs together. If decoding panics, decodes each job separately, so that only the
    /// job that panics fails.
    pub(crate) fn decode(jobs: &mut [Job<'_>]) {
        let group = guarded(|| {
            decode::decode_group(jobs);
            Ok(())
        });
        if group.is_err() {
            for job in jobs {
                job.result = guarded(|| job.image.decode(job.region, job.out));
            }
        }
    }

    /// Transforms the decoded pixels of `sample_image`. Tiles are added to a combined image, which
    /// is finished after its last tile.
    pub(crate) fn transform(
        &self,
        field: &ImageField,
        pixels: &Pixels,
        sample_image: &mut SampleImage<'_>,
        (scratch, pasted): ((&mut Resizer, &mut [u8]), &mut Pasted),
        (part, place): (&mut Part, usize),
    ) -> Result<()> {
        let (first, shown, last) = (sample_image.tile == 0, sample_image.is_shown(), sample_image.is_last());
        let pastes = sample_image.pastes;
        let SampleImage { tiles, plan, rng, .. } = sample_image;
        let (transforms, mut row) = (&self.transforms, Row::new(part, place));
        if *tiles == 1 {
            return guarded(|| field.transform(pixels, plan, rng, transforms, scratch, &mut row));
        }
        guarded(|| {
            let (resizer, image) = scratch;
            let canvas = field.unwritten(image, &mut row);
            if pastes && first {
                resizer.run(pixels, plan, canvas)?;
            } else if pastes {
                if let Some(other) = pasted.image(canvas.len()) {
                    resizer.run(pixels, plan, other)?;
                    pasted.cover(canvas);
                }
                return field.finish((plan, true), rng, transforms, image, &mut row);
            } else if first {
                canvas.as_chunks_mut().0.fill(plan.fill);
            }
            if shown && !pastes {
                resizer.paste(pixels, plan, canvas)?;
            }
            if last { field.finish((plan, true), rng, transforms, image, &mut row) } else { Ok(()) }
        })
    }

    /// Returns the plan of the image with which other fields are transformed, and the additional
    /// tiles of this image, which show the samples `others`. `images` contains all images of a
    /// sample.
    pub(crate) fn plan_and_tiles<'a>(
        &self,
        images: &'a [SampleImage<'_>],
        others: &'a [(u64, Sample<'_>)],
    ) -> (Option<&'a Plan>, ArrayVec<Tile<'a>, { TILES - 1 }>) {
        let mut own = images
            .iter()
            .filter(|sample_image| Some(sample_image.field) == self.any_fields().followed)
            .map(|sample_image| &sample_image.plan);
        let plan = own.next();
        (plan, own.zip(others).map(|(plan, (index, sample))| Tile { index: *index, sample, plan }).collect())
    }

    /// Selects the objects of the partner that are pasted into the image of `entry`. `images`
    /// contains all images of the sample.
    pub(crate) fn paste(
        &self,
        images: &[SampleImage<'_>],
        others: &[(u64, Sample<'_>)],
        (epoch, entry): (u64, &Entry),
        pasted: &mut Pasted,
    ) -> Result<()> {
        guarded(|| {
            let of_partner = |sample_image: &&SampleImage<'_>| {
                sample_image.tile > 0 && Some(sample_image.field) == self.any_fields().followed
            };
            let (Some(sample_image), Some((id, sample))) = (images.iter().find(of_partner), others.first()) else {
                return Ok(());
            };
            let margin = match self.partners(epoch, entry)?.map(|partners| partners.join) {
                Some(Join::Paste(pasting)) => pasting.margin,
                _ => return Ok(()),
            };
            let chosen = self.any_fields().paste(sample, &sample_image.plan, (&self.rng(entry), margin), pasted);
            chosen.map_err(|e| e.at_sample(*id, sample.key()))
        })
    }

    /// Returns the memory needed to compute the fields of a sample, in bytes. `shown` is the plan
    /// of the first image and its additional tiles.
    pub(crate) fn memory(&self, sample: &Sample<'_>, shown: Shown<'_>, entry: &Entry) -> Result<u64> {
        guarded(|| {
            // Fields are computed one after the other, so the maximum is enough.
            let memory = |field: &Member| field.memory(sample, shown, self.rng(entry), (&self.codecs, self.strict));
            Ok(self.any_fields().computed.iter().map(memory).max().unwrap_or(0))
        })
    }

    /// Writes a field of a sample. `shown` is the plan of the first image and its additional tiles.
    pub(crate) fn write(
        &self,
        field: &Member,
        sample: &Sample<'_>,
        shown: Shown<'_>,
        part: &mut Part,
        place: usize,
    ) -> Result<()> {
        let (entry, before) = (part.header().entries[place], part.meta(place).damaged);
        let scope = (self.rng(&entry), (&self.codecs, self.strict));
        guarded(|| field.write(sample, shown, scope, part, place))?;
        if part.meta(place).damaged > before {
            let found = || Error::decode(format!("an image of field {:?} is damaged", field.name));
            self.damaged.note(entry.sample, || self.at_sample(entry.sample, sample.key(), found()));
        }
        Ok(())
    }

    /// Returns the random number that determines the start of a sample's clips.
    pub(crate) fn clip_draw(&self, entry: &Entry) -> u64 {
        Image::clip_draw(&self.rng(entry))
    }

    fn rng(&self, entry: &Entry) -> Rng {
        Rng::new(self.seed, entry.variant, entry.sample)
    }

    /// Finishes a batch, after all of its samples have been written.
    pub(crate) fn finish(&self, full: &mut Full, scratch: &mut MixScratch) {
        let fields = self.fields_of(full.header());
        fields.judge(&*self.source, full);
        if self.replaces_failed {
            replace_failed_samples(full);
        }
        if self.blanks_failed {
            blank_failed(fields, full);
        }
        if let Err(e) = guarded(|| fields.mix(full, scratch)) {
            // Some samples may have been mixed already, so make all samples of the batch fail.
            (0..full.len()).for_each(|place| full.meta_mut(place).fault = Some(e.clone()));
        }
        fields.finish(full);
    }
}

pub(crate) fn at_frame(name: &str, frames: Option<Frames<'_>>, frame: usize, error: Error) -> Error {
    let of_video = frames.and_then(|frames| frames.index(frame));
    let of_video = of_video.map_or(String::new(), |index| format!(", frame {index} of the video"));
    error.settled(&format!("frame {frame} of field {name:?}{of_video}"))
}

/// See [`Recipe::image_buffer_bytes`].
pub(crate) fn image_buffer_bytes(fields: &[Fields], transforms: bool) -> usize {
    let largest = fields.iter().map(Fields::largest_image).max().unwrap_or(0);
    largest * if transforms { 2 } else { 1 }
}

impl Recipe {
    /// Returns the row of the sample that the images in row `place` show. It differs from `place`
    /// if that row contains a replacement for a failed sample.
    #[cfg(feature = "_device")]
    pub(crate) fn shown_at(&self, full: &mut Full, place: usize) -> usize {
        self.any_fields().images.iter().find_map(|field| field.encoded_row(full, place)).unwrap_or(place)
    }

    pub(crate) fn finish_again(&self, full: &mut Full, places: &[usize]) {
        full.unpack();
        if self.replaces_failed {
            replace_failed_samples(full);
        }
        if self.blanks_failed {
            let fields = self.fields_of(full.header());
            places.iter().for_each(|&place| blank(fields, full, place));
        }
        full.pack();
    }
}

/// Replaces each failed sample with zeros. Its error names the sample's row in the batch.
fn blank_failed(fields: &Fields, full: &mut Full) {
    (0..full.len()).for_each(|place| blank(fields, full, place));
}

fn blank(fields: &Fields, full: &mut Full, place: usize) {
    let Some(fault) = full.meta_mut(place).fault.take() else { return };
    full.meta_mut(place).fault = Some(fault.of_sample(place as u64));
    full.header_mut().entries[place].valid = false;
    fields.blank(full, place);
}

/// Replaces each failed sample, including index and key, with a copy of the next valid sample in
/// the batch, so that the batch keeps its shape. A batch without a valid sample is left unchanged.
fn replace_failed_samples(full: &mut Full) {
    let len = full.len();
    let sound = |full: &Full, place: usize| full.meta(place).fault.is_none();
    for place in 0..len {
        if sound(full, place) {
            continue;
        }
        let Some(donor) = (1..len).map(|d| (place + d) % len).find(|&p| sound(full, p)) else { return };
        for span in 0..full.schema().spans.len() {
            let bytes = full.schema().spans[span].sample_bytes;
            // The copied record tells the device where the encoded data is, so the data itself is
            // not copied.
            if let Role::Encoded { .. } = full.schema().spans[span].role {
                continue;
            }
            full.bytes_mut(span).copy_within(donor * bytes..(donor + 1) * bytes, place * bytes);
        }
        let (entry, of) = (full.header().entries[donor], full.meta(donor));
        let (key, shown, texts) = (of.key.clone(), of.shown, of.texts().to_vec());
        let lost = std::mem::replace(&mut full.header_mut().entries[place], Entry { valid: false, ..entry });
        let meta = full.meta_mut(place);
        (meta.key, meta.shown) = (key, shown);
        meta.replace_texts(&texts);
        // If the device cannot decode the donor, a second donor may replace it. Keep the index of
        // the sample that failed first.
        meta.replaced.get_or_insert(lost.sample);
    }
}
