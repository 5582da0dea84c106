//! [`Image`], the field type of images, and [`ImageField`], which writes images to a batch.

use warpfeed_sources::format::is_image_field;

use super::split::DeviceSplit;
use super::{FieldType, FieldWriter, Input, RowMut};
#[cfg(feature = "video")]
use crate::batch::YuvRegion;
use crate::batch::{
    self, BatchWriter, DecodeOps, Dtype, EncodedLocation, Field, FilledSlot, Layout, Normalize, Role, Row, SampleOps,
    SlotPart, UncastImage,
};
use crate::decode::{Bitstream, Codecs, Grid, Pixels, Size};
use crate::error::{Error, Result, resize};
use crate::sampler::Rng;
use crate::source::{Frames, Sample};
use crate::transform::{Augment, ImageMut, Mixing, Plan, Resizer, Transform};

/// An image that is decoded, cropped, resized, flipped, color-adjusted, normalized, erased and
/// mixed as [`Loader::augment`](crate::Loader::augment) and related options specify.
///
/// All image fields of a sample, except views ([`augment`](Image::augment)), use the same random
/// numbers, so images of the same size get the same crop and flip. For batches on a device, images
/// are copied to the device as `u8` (N, H, W, C) unless the device decodes them. The device casts,
/// normalizes, transposes, erases and mixes the images.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::field::Image;
///
/// // Samples with the `left.jpg` and `right.jpg` fields.
/// let batches = Loader::new("stereo.tar")
///     .field("image", Image::from_field("left.jpg"))
///     .field("right", Image::from_field("right.jpg"))
///     .host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub struct Image {
    source_field: Option<String>,
    augment: Option<Augment>,
    frames: Option<usize>,
}

impl Image {
    /// Reads the first field of the sample that is named after an image format: `jpg`, `png`,
    /// `img`, ...
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the sample's field `name`, which need not be named after an image format.
    pub fn from_field(name: impl Into<String>) -> Self {
        Image { source_field: Some(name.into()), ..Self::default() }
    }

    /// Sets an augmentation for this field only, which makes the field a view of the image, with
    /// its own size. The view's random numbers depend only on the seed, the sample, its
    /// [`variant`](crate::sampler::Occurrence::variant) (by default, the epoch), and the name of
    /// the field. To create several views, call [`Loader::views`](crate::Loader::views).
    ///
    /// Annotations such as boxes and masks are not transformed with a view. The loader cannot be
    /// opened if images are mixed, or if the augmentation of a view combines several samples or
    /// requires boxes.
    #[must_use]
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }

    /// Makes the field a clip of exactly `frames` frames, such as the frames of a video or of a
    /// robot's camera. The array has the shape (N, T, H, W, C), or (N, T, C, H, W) with
    /// [`Layout::Nchw`](crate::Layout::Nchw), where T is the number of frames and C the number of
    /// [channels](crate::Loader::channels).
    ///
    /// The sample's field is a list of encoded images or video frames ([`Frames`]). All frames
    /// share one plan, so they get the same crop, resize, flip and effects. Custom transforms get
    /// the same random numbers for each frame. Other fields of the sample, such as masks and boxes,
    /// are transformed with this plan.
    ///
    /// A sample fails if it has a different number of frames, if the frames have different sizes,
    /// or if a frame cannot be decoded. The error names the field. If the error is in a particular
    /// frame, it also names the frame.
    ///
    /// The loader cannot be opened if `frames` is 0 or if the augmentation mixes images or combines
    /// the images of several samples.
    ///
    /// ```
    /// use warpfeed::field::Image;
    /// use warpfeed::source::{Frames, Memory, OwnedSample};
    /// use warpfeed::{Augment, Loader};
    ///
    /// let frame = std::fs::read("datasets/mini/banded-ring/000003.jpg")?;
    /// let clip = OwnedSample::new("episode/0").field("top", Frames::encode(&[&frame, &frame]));
    /// let loader = Loader::source(Memory::new(vec![clip]))
    ///     .drop_field("label")
    ///     .field("image", Image::from_field("top").frames(2))
    ///     .augment(Augment::train(64));
    /// for batch in loader.host()?.epoch(0) {
    ///     assert_eq!(batch?.images().shape(), [1, 2, 64, 64, 3]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    pub(crate) fn with_options(source_field: Option<&str>, augment: Option<&Augment>, frames: Option<usize>) -> Self {
        Image { source_field: source_field.map(str::to_owned), augment: augment.cloned(), frames }
    }

    pub(crate) fn own_augment(&self) -> Option<&Augment> {
        self.augment.as_ref()
    }

    pub(crate) fn clip(&self) -> Option<usize> {
        self.frames
    }

    /// Returns the random number that chooses a clip. The number is the same for all clips of a
    /// sample, so that views of a clip show the same frames.
    pub(crate) fn clip_draw(rng: &Rng) -> u64 {
        rng.named("clip").next_u64()
    }

    /// Returns the encoded image of a sample, and the frames if the field `name` is a clip. The
    /// image of a clip is its first frame. If the source offers several clips, `rng` draws one.
    pub(crate) fn encoded<'a>(
        &self,
        name: &str,
        sample: &Sample<'a>,
        codecs: &Codecs,
        rng: &Rng,
    ) -> Result<(&'a [u8], Option<Frames<'a>>)> {
        let bytes = Self::bytes(self.source_field.as_deref(), sample, codecs)?;
        let Some(expected) = self.frames else {
            if let Some(frames) = Frames::matches(bytes).then(|| Frames::read(bytes)) {
                let frames = frames.map_err(|e| e.settled(&format!("field {name:?}")))?.len();
                return Err(Error::in_source(format!(
                    "field {name:?} is a clip, not a single image: use Image::frames({frames})"
                )));
            }
            return Ok((bytes, None));
        };
        let mut frames = Frames::read(bytes).map_err(|e| e.settled(&format!("field {name:?}")))?;
        if frames.choices() > 1 {
            frames = frames.draw(Self::clip_draw(rng));
        }
        match frames.get(0).filter(|_| frames.len() == expected) {
            Some(first) => Ok((first, Some(frames))),
            None => {
                let frame_count = frames.len();
                Err(Error::in_source(format!("field {name:?} has {frame_count} frames: expected {expected}")))
            }
        }
    }

    pub(super) fn bytes<'a>(name: Option<&str>, sample: &Sample<'a>, codecs: &Codecs) -> Result<&'a [u8]> {
        let bytes = match name {
            Some(name) => sample.bytes_named(|have| have == name).map(|field| field.1),
            None => codecs.image(sample).map(|(_, bytes)| bytes),
        };
        bytes.ok_or_else(|| {
            let names = sample.available_fields();
            Error::in_source(match name {
                Some(name) => format!("no image {name:?} among the fields {names:?}"),
                None => match sample.image_column() {
                    Some(column) => format!("column {column:?} is null or empty, so the sample has no image"),
                    None => format!("no image among the fields {names:?}{}", hint(&names)),
                },
            })
        })
    }
}

fn hint(names: &[&str]) -> String {
    let original = |name: &&str| {
        Some((name.to_string(), name.rsplit_once('.').filter(|(_, extension)| is_image_field(extension))?.0.to_owned()))
    };
    match names.iter().find_map(original) {
        Some((name, column)) => format!(
            "; if {name:?} is the image, use TableOptions::image({column:?}) for a table, or \
             Image::from_field({name:?})"
        ),
        None => String::new(),
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrayFormat {
    /// 3 for RGB, or 1 for grayscale.
    pub(crate) channels: usize,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    pub(crate) normalize: Normalize,
}

impl ArrayFormat {
    pub(super) fn array(&self, mut image: Field, frames: Option<usize>) -> (Field, Role) {
        image.shape[2] = self.channels;
        if self.layout == Layout::Nchw {
            image.shape.rotate_right(1);
        }
        image.shape.splice(0..0, frames);
        (Field { dtype: self.dtype, ..image }, Role::Image)
    }
}

impl FieldType for Image {
    /// Describes the `u8` array (H, W, 3) before its conversion to the loader's format.
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        let shape = vec![output_size.height as usize, output_size.width as usize, 3];
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::U8, shape }])
    }

    fn required_fields(&self, _name: &str) -> Vec<String> {
        self.source_field.iter().cloned().collect()
    }

    fn writer(&self) -> FieldWriter<'_> {
        FieldWriter::Image(self.source_field.as_deref())
    }

    fn augment(&self) -> Option<&Augment> {
        self.augment.as_ref()
    }

    fn frames(&self) -> Option<usize> {
        self.frames
    }

    fn write(&self, _input: &Input<'_>, _row: &mut RowMut<'_>) -> Result<()> {
        unreachable!("workers decode images in groups and call `ImageField::write`")
    }
}

pub(crate) struct ImageField {
    pub(crate) image: Image,
    pub(crate) name: String,
    pub(super) span: usize,
    /// Span with a record of the operations on each image. If the host mixes the images, it reads
    /// the effects on values from these records. Otherwise, the device reads them.
    pub(super) records_span: Option<usize>,
    /// Span with the records for decoding on a device, one per frame of a clip.
    pub(super) decoding_span: Option<usize>,
    pub(super) split: DeviceSplit,
    pub(super) is_gray: bool,
    pub(super) writer: BatchWriter,
}

impl ImageField {
    /// Returns whether the image is converted to the loader's format only when the batch is full.
    /// This is the case if the host mixes the images of the batch, because values are rounded after
    /// mixing. Until then, the row contains `u8` HWC, which fits because no dtype is smaller.
    fn is_converted_later(&self, row: &Row<'_>) -> bool {
        !self.split.on_device && row.header().mixing.is_some()
    }

    /// Resizes the image, and runs the effects on pixels and the custom transforms. Effects that
    /// the device runs are skipped. The result is in the batch if
    /// [`is_u8_in_batch`](ImageField::is_u8_in_batch) returns true, and in `image` otherwise.
    pub(crate) fn transform(
        &self,
        pixels: &Pixels,
        plan: &Plan,
        rng: &mut Rng,
        transforms: &[std::sync::Arc<dyn Transform>],
        (resizer, image): (&mut Resizer, &mut [u8]),
        row: &mut Row<'_>,
    ) -> Result<()> {
        resizer.run(pixels, plan, self.pixel_buffer(image, row))?;
        self.finish((plan, false), rng, transforms, image, row)
    }

    fn is_u8_in_batch(&self, row: &Row<'_>) -> bool {
        self.writer.is_copy() || self.is_converted_later(row)
    }

    /// Returns the slice to which the RGB image is written. If the row of the batch contains `u8`
    /// RGB, this is the row itself, which avoids a copy. Otherwise, it is part of `image`.
    pub(crate) fn pixel_buffer<'i>(&self, image: &'i mut [u8], row: &'i mut Row<'_>) -> &'i mut [u8] {
        if self.is_u8_in_batch(row) && !self.is_gray {
            &mut self.row_image(row)[..self.rgb_bytes()]
        } else {
            &mut image[..self.rgb_bytes()]
        }
    }

    /// Runs the effects on pixels and the custom transforms on the resized image, and converts the
    /// result to grayscale if the field is gray. `is_joined` is true if the image combines several
    /// samples. With custom transforms, `image` has twice the size of the RGB image.
    pub(crate) fn finish(
        &self,
        (plan, is_joined): (&Plan, bool),
        rng: &mut Rng,
        transforms: &[std::sync::Arc<dyn Transform>],
        image: &mut [u8],
        row: &mut Row<'_>,
    ) -> Result<()> {
        let (image, spare) = image.split_at_mut(self.rgb_bytes());
        let mut finished = ImageMut::new(self.pixel_buffer(image, row), plan.output.width, plan.output.height);
        if !self.device_retouches(plan) {
            plan.retouch(&mut finished);
        }
        if !transforms.is_empty() {
            finished.edit_area(plan.changeable_area(is_joined), spare, |original| {
                transforms.iter().try_for_each(|transform| transform.apply(original, rng))
            })?;
        }
        if self.is_gray {
            // Every pixel is read before it is overwritten, so the conversion works in place.
            for pixel in 0..self.writer.image_bytes() {
                image[pixel] = luma([image[pixel * 3], image[pixel * 3 + 1], image[pixel * 3 + 2]]);
            }
            if self.is_u8_in_batch(row) {
                let bytes = self.writer.image_bytes();
                self.row_image(row)[..bytes].copy_from_slice(&image[..bytes]);
            }
        }
        Ok(())
    }

    fn row_image<'r>(&self, row: &'r mut Row<'_>) -> &'r mut [u8] {
        let (row_bytes, frame) = (self.writer.sample_bytes(), row.frame());
        &mut row.bytes(self.span)[frame * row_bytes..][..row_bytes]
    }

    pub(super) fn image_count(&self) -> usize {
        self.image.frames.unwrap_or(1)
    }

    /// Returns the number of bytes of the image, or of one frame, as `u8` RGB.
    pub(crate) fn rgb_bytes(&self) -> usize {
        self.writer.image_bytes() * if self.is_gray { 3 } else { 1 }
    }

    fn device_retouches(&self, plan: &Plan) -> bool {
        self.split.retouches && plan.effects.runs_on_device()
    }

    pub(crate) fn image_and_name(&self) -> (&Image, &str) {
        (&self.image, &self.name)
    }

    pub(crate) fn may_decode_on_device(&self) -> bool {
        self.decoding_span.is_some()
    }

    pub(crate) fn device_supports(&self, plan: &Plan) -> bool {
        let is_supported = DecodeOps::supports(plan) && (plan.effects.pixels.is_empty() || self.device_retouches(plan));
        is_supported && self.may_decode_on_device()
    }

    /// Stores an image or a frame for the device to decode. `grid` describes the image, and
    /// `stream` is its entropy-coded data. `index` is the row in `part`, and `frame` is the index
    /// of the frame, which is 0 for an image. Returns `false` if the batch has too little space, or
    /// if the record cannot describe the image. The device must
    /// [support](ImageField::device_supports) `plan`.
    pub(crate) fn store_encoded(
        &self,
        grid: &Grid,
        stream: &Bitstream,
        plan: &Plan,
        part: &mut SlotPart,
        (index, frame): (usize, usize),
    ) -> bool {
        let reserved = (stream.len() + DecodeOps::SLACK, grid.needed_blocks());
        let write = |target: &mut [u8], encoded: EncodedLocation| {
            stream.write(&mut target[..stream.len()]);
            DecodeOps::new(grid, plan, EncodedLocation { bytes: stream.len(), ..encoded })
        };
        self.store_record(reserved, write, plan, part, (index, frame))
    }

    /// Stores a decoded video frame for the device to convert to RGB. Otherwise like
    /// [`store_encoded`](ImageField::store_encoded).
    #[cfg(feature = "video")]
    pub(crate) fn store_yuv(
        &self,
        yuv: &YuvRegion<'_>,
        plan: &Plan,
        part: &mut SlotPart,
        (index, frame): (usize, usize),
    ) -> bool {
        let reserved = (yuv.len(), DecodeOps::rgb_blocks(plan.region.size()));
        let write = |target: &mut [u8], encoded: EncodedLocation| {
            yuv.write(target);
            DecodeOps::for_yuv(yuv, plan, encoded)
        };
        self.store_record(reserved, write, plan, part, (index, frame))
    }

    fn store_record(
        &self,
        (bytes, blocks): (usize, usize),
        write: impl FnOnce(&mut [u8], EncodedLocation) -> Option<DecodeOps>,
        plan: &Plan,
        part: &mut SlotPart,
        (index, frame): (usize, usize),
    ) -> bool {
        let Some(decoding) = self.decoding_span else { return false };
        let Some((offset, block, target)) = part.reserve_encoded(bytes, blocks) else { return false };
        let place = index * self.image_count() + frame;
        let Some(ops) = write(target, EncodedLocation { image_index: place, offset, bytes, block }) else {
            return false;
        };
        ops.write(decode_record(part.bytes(decoding, index), frame));
        self.write_ops(plan, &mut Row::new(part, index).at_frame(frame));
        true
    }

    /// Returns the row for which the decoding record in row `index` was written, or `None` if the
    /// device does not decode row `index`. The two rows differ if a failed sample was replaced by
    /// the sample of a different row.
    #[cfg(feature = "_device")]
    pub(crate) fn encoded_row(&self, full: &mut FilledSlot, index: usize) -> Option<usize> {
        let (records, images) = (full.bytes_mut(self.decoding_span?), self.image_count());
        let mut ops = (0..images).map(|frame| DecodeOps::read(decode_record(records, index * images + frame)));
        ops.find(DecodeOps::decodes).map(|ops| ops.image_index() / images)
    }

    pub(crate) fn decodes_on_device(&self, part: &mut SlotPart, (index, frame): (usize, usize)) -> bool {
        let records = self.decoding_span.map(|decoding| part.bytes(decoding, index));
        records.is_some_and(|records| DecodeOps::read(decode_record(records, frame)).decodes())
    }

    /// Writes pixels that the host has decoded, and clears the decoding record, so that the device
    /// does not decode the image again.
    pub(crate) fn write_redecoded(
        &self,
        pixels: &Pixels,
        plan: &Plan,
        resizer: &mut Resizer,
        part: &mut SlotPart,
        (index, frame): (usize, usize),
    ) -> Result<()> {
        let mut row = Row::new(part, index).at_frame(frame);
        resizer.run(pixels, plan, &mut self.row_image(&mut row)[..self.writer.image_bytes()])?;
        self.clear_decoding(&mut row);
        Ok(())
    }

    fn clear_decoding(&self, row: &mut Row<'_>) {
        if let Some(decoding) = self.decoding_span {
            let frame = row.frame();
            DecodeOps::empty().write(decode_record(row.bytes(decoding), frame));
        }
    }

    fn write_ops(&self, plan: &Plan, row: &mut Row<'_>) {
        if let Some(records) = self.records_span {
            let ops = SampleOps::new(&plan.effects, self.device_retouches(plan));
            let frame = row.frame();
            ops.write(record(&mut row.bytes(records)[frame * SampleOps::BYTES..]));
        }
    }

    /// Converts the finished image, runs the effects on values, and writes the result to the batch.
    /// Skips steps that run later, on the device or when the batch is full.
    pub(crate) fn write(&self, image: &[u8], plan: &Plan, row: &mut Row<'_>) -> Result<()> {
        self.write_ops(plan, row);
        self.clear_decoding(row);
        if self.is_converted_later(row) {
            return Ok(());
        }
        let effects = if self.split.changes_values() { &[][..] } else { &plan.effects.values[..] };
        if self.writer.is_copy() {
            self.writer.apply_effects(effects, self.row_image(row))?;
        } else {
            let pixels = &image[..self.writer.image_bytes()];
            self.writer.write_with_effects(UncastImage { pixels, effects }, self.row_image(row))?;
        }
        Ok(())
    }

    pub(crate) fn blank(&self, full: &mut FilledSlot, index: usize) {
        // A zero record makes a device leave the pixels unchanged.
        for span in self.records_span.into_iter().chain(self.decoding_span) {
            let row_bytes = full.schema().spans[span].sample_bytes;
            full.bytes_mut(span)[index * row_bytes..][..row_bytes].fill(0);
        }
        let (black, row_bytes) = (vec![0; self.writer.image_bytes()], self.writer.sample_bytes());
        for frame in index * self.image_count()..(index + 1) * self.image_count() {
            let result = self.writer.write(&black, &mut full.bytes_mut(self.span)[frame * row_bytes..][..row_bytes]);
            result.expect("the image and its row have the sizes that the writer expects");
        }
    }

    pub(crate) fn mix(&self, mixing: &Mixing, full: &mut FilledSlot, scratch: &mut MixScratch) -> Result<()> {
        let (MixScratch { row_copy, last_image }, count) = (scratch, full.len());
        resize(row_copy, self.writer.image_bytes(), 0);
        let Some(records) = self.records_span else {
            return batch::mix(&self.writer, mixing, full.bytes_mut(self.span), (count, |_| []), row_copy, last_image);
        };
        let (images, records) = full.bytes_mut_with(self.span, records);
        let records = records.as_chunks().0;
        let effects = |index: usize| SampleOps::read_values(&records[index]);
        batch::mix(&self.writer, mixing, images, (count, effects), row_copy, last_image)
    }
}

/// Returns the luminance (ITU-R BT.601), rounded like Pillow's `convert("L")`. Gray pixels keep
/// their value.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000) >> 16) as u8
}

fn record<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("a row of the span contains a whole record")
}

fn decode_record(records: &mut [u8], index: usize) -> &mut [u8; DecodeOps::BYTES] {
    record(&mut records[index * DecodeOps::BYTES..])
}

#[derive(Default)]
pub(crate) struct MixScratch {
    row_copy: Vec<u8>,
    last_image: Vec<u8>,
}
