use warpfeed_sources::format::is_image;

use super::split::Split;
use super::{FieldType, FieldWriter, Input, RowMut};
use crate::batch::{
    self, BatchWriter, DecodeOps, Dtype, Encoded, Field, Full, Layout, Normalize, Part, Role, Row, SampleOps, Unwritten,
};
use crate::decode::{Bitstream, Codecs, Grid, Pixels, Size};
use crate::error::{Error, Result, resize};
use crate::sampler::Rng;
use crate::source::Sample;
use crate::transform::{Augment, ImageMut, Mixing, Plan, Resizer, Transform};

/// An image: decoded, cropped, resized, flipped, colored, normalized, erased and mixed.
/// [`Loader::augment`](crate::Loader::augment) and related options set the steps.
///
/// All images of a sample draw the same random numbers. So images of one size are cropped and
/// flipped alike. On the way to a device images are `u8` (N, H, W, 3). The device casts,
/// normalizes, transposes, erases and mixes them.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::field::Image;
///
/// // Samples with the fields `left.jpg` and `right.jpg`.
/// let batches = Loader::new("stereo.tar")
///     .field("image", Image::of("left.jpg"))
///     .field("right", Image::of("right.jpg"))
///     .host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub struct Image {
    of: Option<String>,
    augment: Option<Augment>,
}

impl Image {
    /// The sample's first field that is named after an image format: `jpg`, `png`, `img`, ...
    pub fn new() -> Self {
        Self::default()
    }

    /// The sample's field `name`, which need not be named after a format.
    pub fn of(name: impl Into<String>) -> Self {
        Image { of: Some(name.into()), augment: None }
    }

    /// Sets an augmentation of its own, with its own size. The image then draws random numbers of
    /// its own, a function of (seed, epoch, sample, name of the field): a view of the image.
    /// [`Loader::views`](crate::Loader::views) makes several.
    ///
    /// Fields that follow the image do not follow it, and it is not mixed.
    #[must_use]
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }

    /// The image that a kind describes.
    pub(super) fn described(of: Option<&str>, augment: Option<&Augment>) -> Self {
        Image { of: of.map(str::to_owned), augment: augment.cloned() }
    }

    /// Its own augmentation.
    pub(crate) fn own(&self) -> Option<&Augment> {
        self.augment.as_ref()
    }

    /// The encoded bytes in `sample`.
    pub(crate) fn bytes<'a>(&self, sample: &Sample<'a>, codecs: &Codecs) -> Result<&'a [u8]> {
        let found = match &self.of {
            Some(name) => sample.bytes_named(|have| have == name).map(|field| field.1),
            None => codecs.image(sample).map(|(_, bytes)| bytes),
        };
        found.ok_or_else(|| {
            let names = sample.names();
            Error::in_source(match &self.of {
                Some(name) => format!("no image {name:?} among the fields {names:?}"),
                None => match sample.lacks_image() {
                    Some(column) => format!("column {column:?} is null or empty, so the sample has no image"),
                    None => format!("no image among the fields {names:?}{}", hint(&names)),
                },
            })
        })
    }
}

/// Suggests an option if one of the sample's files has the extension of an image.
fn hint(names: &[&str]) -> String {
    let original =
        |name: &&str| Some((name.to_string(), name.rsplit_once('.').filter(|(_, end)| is_image(end))?.0.to_owned()));
    match names.iter().find_map(original) {
        Some((name, column)) => format!(
            "; if {name:?} is the image, say so with TableOptions::image({column:?}) for a table, or with \
             Image::of({name:?})"
        ),
        None => String::new(),
    }
}

/// Format of all images of a loader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// 3, or 1.
    pub(crate) channels: usize,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    pub(crate) normalize: Normalize,
}

impl Written {
    /// The array of an image in this format.
    pub(super) fn array(&self, mut image: Field) -> (Field, Role) {
        image.shape[2] = self.channels;
        if self.layout == Layout::Nchw {
            image.shape.rotate_right(1);
        }
        (Field { dtype: self.dtype, ..image }, Role::Image)
    }
}

impl FieldType for Image {
    /// The image before its conversion: `u8` (H, W, 3).
    fn arrays(&self, name: &str, output: Size) -> Result<Vec<Field>> {
        let shape = vec![output.height as usize, output.width as usize, 3];
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::U8, shape }])
    }

    fn reads(&self, _name: &str) -> Vec<String> {
        self.of.iter().cloned().collect()
    }

    fn maker(&self) -> FieldWriter<'_> {
        FieldWriter::Image(self.of.as_deref())
    }

    fn augment(&self) -> Option<&Augment> {
        self.augment.as_ref()
    }

    fn write(&self, _input: &Input<'_>, _place: &mut RowMut<'_>) -> Result<()> {
        unreachable!("workers decode images in groups and call `ImageField::write`")
    }
}

/// An [`Image`] of a loader, with its place in the batch.
pub(crate) struct ImageField {
    pub(crate) image: Image,
    /// Name of the field.
    pub(crate) name: String,
    pub(super) span: usize,
    /// The span of its records. A device, or the host when it mixes, runs the effects on values.
    pub(super) records: Option<usize>,
    /// The span of its records for decoding on a device.
    pub(super) decoding: Option<usize>,
    pub(super) split: Split,
    /// Whether the image has one channel, made of the finished RGB.
    pub(super) gray: bool,
    pub(super) writer: BatchWriter,
}

impl ImageField {
    /// Whether the image is converted only when the batch is full, because mixing comes before
    /// rounding. Until then it is stored as `u8` HWC in its place, which has room for any dtype.
    fn waits(&self, row: &Row<'_>) -> bool {
        !self.split.there && row.header().mixing.is_some()
    }

    /// Turns decoded pixels into the finished `u8` image. Writes it to the batch if that stores
    /// `u8` at this point, and otherwise to `image`.
    pub(crate) fn transform(
        &self,
        pixels: &Pixels,
        plan: &Plan,
        rng: &mut Rng,
        transforms: &[std::sync::Arc<dyn Transform>],
        (resizer, image): (&mut Resizer, &mut [u8]),
        row: &mut Row<'_>,
    ) -> Result<()> {
        resizer.run(pixels, plan, self.unwritten(image, row))?;
        self.finish((plan, false), rng, transforms, image, row)
    }

    /// Whether the batch stores the image as `u8` at this point.
    fn stays(&self, row: &Row<'_>) -> bool {
        self.writer.is_copy() || self.waits(row)
    }

    /// The bytes of the RGB image before it is written: those of the batch if the image stays
    /// there, and otherwise those of `image`.
    pub(crate) fn unwritten<'i>(&self, image: &'i mut [u8], row: &'i mut Row<'_>) -> &'i mut [u8] {
        if self.stays(row) && !self.gray {
            &mut row.bytes(self.span)[..self.rgb_bytes()]
        } else {
            &mut image[..self.rgb_bytes()]
        }
    }

    /// Runs the effects on pixels and the user's transforms on the resized image, which may join
    /// several images. For transforms, `image` has room for two images.
    pub(crate) fn finish(
        &self,
        (plan, joins): (&Plan, bool),
        rng: &mut Rng,
        transforms: &[std::sync::Arc<dyn Transform>],
        image: &mut [u8],
        row: &mut Row<'_>,
    ) -> Result<()> {
        let (image, spare) = image.split_at_mut(self.rgb_bytes());
        let mut finished = ImageMut::new(self.unwritten(image, row), plan.output.width, plan.output.height);
        if !self.is_retouched_there(plan) {
            plan.retouch(&mut finished);
        }
        if !transforms.is_empty() {
            finished.within(plan.changeable(joins), spare, |original| {
                transforms.iter().try_for_each(|transform| transform.apply(original, rng))
            })?;
        }
        if self.gray {
            // Each pixel is read before its place is written.
            for at in 0..self.writer.image_bytes() {
                image[at] = luma([image[at * 3], image[at * 3 + 1], image[at * 3 + 2]]);
            }
            if self.stays(row) {
                let bytes = self.writer.image_bytes();
                row.bytes(self.span)[..bytes].copy_from_slice(&image[..bytes]);
            }
        }
        Ok(())
    }

    /// Bytes of the image as RGB of `u8`.
    pub(crate) fn rgb_bytes(&self) -> usize {
        self.writer.image_bytes() * if self.gray { 3 } else { 1 }
    }

    /// Whether the device runs the effects on pixels.
    fn is_retouched_there(&self, plan: &Plan) -> bool {
        self.split.retouch && plan.drawn.is_for_devices()
    }

    /// The image and its name.
    pub(crate) fn described(&self) -> (&Image, &str) {
        (&self.image, &self.name)
    }

    /// Whether a device may decode the image.
    pub(crate) fn may_be_left(&self) -> bool {
        self.decoding.is_some()
    }

    /// Leaves an image to the device: `stream` has its entropy-coded data, and `grid` describes
    /// it. Returns `false` if the device has no room, or cannot carry out `plan`.
    pub(crate) fn leave(&self, grid: &Grid, stream: &Bitstream, plan: &Plan, part: &mut Part, place: usize) -> bool {
        let able = DecodeOps::takes(plan) && (plan.drawn.pixels.is_empty() || self.is_retouched_there(plan));
        let Some(decoding) = self.decoding.filter(|_| able) else { return false };
        let (bytes, blocks) = (stream.len(), grid.kept_blocks());
        let Some((at, block, to)) = part.encoded(bytes + DecodeOps::SLACK, blocks) else { return false };
        stream.write(&mut to[..bytes]);
        let Some(ops) = DecodeOps::new(grid, plan, Encoded { place, at, bytes, block }) else { return false };
        ops.write(record(part.bytes(decoding, place)));
        self.write_ops(plan, &mut Row::new(part, place));
        true
    }

    /// The place in the decode record at `place`, if that image was left to the device.
    #[cfg(feature = "_device")]
    pub(crate) fn left_at(&self, full: &mut Full, place: usize) -> Option<usize> {
        let ops = DecodeOps::read(record_at(full.bytes_mut(self.decoding?), place));
        ops.decodes().then(|| ops.place())
    }

    /// Makes the image at `place` on the host instead of the device.
    pub(crate) fn take_back(
        &self,
        pixels: &Pixels,
        plan: &Plan,
        resizer: &mut Resizer,
        part: &mut Part,
        place: usize,
    ) -> Result<()> {
        resizer.run(pixels, plan, &mut part.bytes(self.span, place)[..self.writer.image_bytes()])?;
        if let Some(decoding) = self.decoding {
            DecodeOps::nothing().write(record(part.bytes(decoding, place)));
        }
        Ok(())
    }

    /// Writes the device's operations on the pixels.
    fn write_ops(&self, plan: &Plan, row: &mut Row<'_>) {
        if let Some(records) = self.records {
            let ops = SampleOps::new(&plan.drawn, self.is_retouched_there(plan));
            ops.write(record(row.bytes(records)));
        }
    }

    /// Writes the finished image, unless the batch has it already, and runs the effects on values.
    pub(crate) fn write(&self, image: &[u8], plan: &Plan, row: &mut Row<'_>) -> Result<()> {
        self.write_ops(plan, row);
        if let Some(decoding) = self.decoding {
            DecodeOps::nothing().write(record(row.bytes(decoding)));
        }
        if self.waits(row) {
            return Ok(());
        }
        let effects = if self.split.values() { &[][..] } else { &plan.drawn.values[..] };
        if self.writer.is_copy() {
            self.writer.change(effects, row.bytes(self.span))?;
        } else {
            let pixels = &image[..self.writer.image_bytes()];
            self.writer.write_changed(Unwritten { pixels, effects }, row.bytes(self.span))?;
        }
        Ok(())
    }

    /// Makes the image at `place` of a full batch black.
    pub(crate) fn blank(&self, full: &mut Full, place: usize) {
        // With empty records, a device does not change the pixels.
        for span in self.records.into_iter().chain(self.decoding) {
            let each = full.schema().spans[span].sample_bytes;
            full.bytes_mut(span)[place * each..][..each].fill(0);
        }
        let (black, each) = (vec![0; self.writer.image_bytes()], self.writer.sample_bytes());
        let written = self.writer.write(&black, &mut full.bytes_mut(self.span)[place * each..][..each]);
        written.expect("an image, and its place, have their size");
    }

    /// Mixes the waiting images of a full batch.
    pub(crate) fn mix(&self, mixing: &Mixing, full: &mut Full, scratch: &mut MixScratch) -> Result<()> {
        let (MixScratch { own, last }, count) = (scratch, full.len());
        resize(own, self.writer.image_bytes(), 0);
        let Some(records) = self.records else {
            return batch::mix(&self.writer, mixing, full.bytes_mut(self.span), (count, |_| []), own, last);
        };
        let (images, records) = full.bytes_mut_beside(self.span, records);
        let records = records.as_chunks().0;
        let effects = |place: usize| SampleOps::read_values(&records[place]);
        batch::mix(&self.writer, mixing, images, (count, effects), own, last)
    }
}

/// The brightness of a pixel, by ITU-R BT.601, rounded as by Pillow's `convert("L")`. That of a
/// gray pixel is its value.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000) >> 16) as u8
}

/// The bytes of a sample's record.
fn record<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("a record has its size")
}

/// The record of the sample at `place`.
#[cfg(feature = "_device")]
fn record_at(records: &mut [u8], place: usize) -> &mut [u8; DecodeOps::BYTES] {
    record(&mut records[place * DecodeOps::BYTES..])
}

/// Scratch memory of mixing, kept from batch to batch.
#[derive(Default)]
pub(crate) struct MixScratch {
    own: Vec<u8>,
    last: Vec<u8>,
}
