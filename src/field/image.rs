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

/// An image: decoded, cropped, resized, flipped, color-adjusted, normalized, erased and mixed.
/// [`Loader::augment`](crate::Loader::augment) and related options define these steps.
///
/// All images of a sample use the same random numbers, so images of the same size are cropped and
/// flipped alike. Images are copied to a device as `u8` (N, H, W, 3). The device casts, normalizes,
/// transposes, erases and mixes them.
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
    /// Reads the sample's first field that is named after an image format: `jpg`, `png`, `img`, ...
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the sample's field `name`, which may have any name.
    pub fn of(name: impl Into<String>) -> Self {
        Image { of: Some(name.into()), augment: None }
    }

    /// Sets a separate augmentation, which makes this field a view of the image. A view has its own
    /// size. Its random numbers are a function of (seed, epoch, sample, name of the field).
    /// [`Loader::views`](crate::Loader::views) creates several views.
    ///
    /// Annotations such as boxes and masks are not transformed with a view, and views are not
    /// mixed.
    #[must_use]
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = Some(augment);
        self
    }

    /// Creates the image field that a field type describes.
    pub(super) fn described(of: Option<&str>, augment: Option<&Augment>) -> Self {
        Image { of: of.map(str::to_owned), augment: augment.cloned() }
    }

    /// Returns the separate augmentation, if any.
    pub(crate) fn own(&self) -> Option<&Augment> {
        self.augment.as_ref()
    }

    /// Returns the encoded bytes of the image in `sample`.
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

/// Returns a suggestion for the error message if the name of one of the sample's fields looks like
/// an image.
fn hint(names: &[&str]) -> String {
    let original =
        |name: &&str| Some((name.to_string(), name.rsplit_once('.').filter(|(_, end)| is_image(end))?.0.to_owned()));
    match names.iter().find_map(original) {
        Some((name, column)) => format!(
            "; if {name:?} is the image, use TableOptions::image({column:?}) for a table, or \
             Image::of({name:?})"
        ),
        None => String::new(),
    }
}

/// Format in which a loader writes all of its images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// Number of channels: 3 or 1.
    pub(crate) channels: usize,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    pub(crate) normalize: Normalize,
}

impl Written {
    /// Returns the array of an image in this format, and its role.
    pub(super) fn array(&self, mut image: Field) -> (Field, Role) {
        image.shape[2] = self.channels;
        if self.layout == Layout::Nchw {
            image.shape.rotate_right(1);
        }
        (Field { dtype: self.dtype, ..image }, Role::Image)
    }
}

impl FieldType for Image {
    /// Returns the array of the image before its conversion: `u8` (H, W, 3).
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

/// An [`Image`] field of a loader, with its spans in the batch.
pub(crate) struct ImageField {
    pub(crate) image: Image,
    /// Name of the field.
    pub(crate) name: String,
    pub(super) span: usize,
    /// Index of the span with the image's records, if any. A device runs the effects on values that
    /// are in these records. If the host mixes, it does so instead.
    pub(super) records: Option<usize>,
    /// Index of the span with the records for decoding on a device, if any.
    pub(super) decoding: Option<usize>,
    pub(super) split: Split,
    /// Whether the image has one channel, which is computed from the finished RGB image.
    pub(super) gray: bool,
    pub(super) writer: BatchWriter,
}

impl ImageField {
    /// Returns whether the image is converted only when the batch is full, because the values are
    /// rounded after mixing. Until then, the image is stored as `u8` HWC in its row. The row is
    /// large enough, because no dtype is smaller.
    fn waits(&self, row: &Row<'_>) -> bool {
        !self.split.there && row.header().mixing.is_some()
    }

    /// Transforms decoded pixels into the finished `u8` image. If the batch stores the image as
    /// `u8` at this point, writes it to the batch. Otherwise, writes it to `image`.
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

    /// Returns whether the batch stores the image as `u8` at this point.
    fn stays(&self, row: &Row<'_>) -> bool {
        self.writer.is_copy() || self.waits(row)
    }

    /// Returns the buffer for the RGB image before its conversion. This is the row of the batch if
    /// the image stays there, and `image` otherwise.
    pub(crate) fn unwritten<'i>(&self, image: &'i mut [u8], row: &'i mut Row<'_>) -> &'i mut [u8] {
        if self.stays(row) && !self.gray {
            &mut row.bytes(self.span)[..self.rgb_bytes()]
        } else {
            &mut image[..self.rgb_bytes()]
        }
    }

    /// Runs the effects on pixels and the custom transforms on the resized image, which may consist
    /// of several tiles. If there are custom transforms, `image` must be large enough for two
    /// images.
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
            // The conversion works in place, because each pixel is read before its position is
            // overwritten.
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

    /// Returns the size of the image as `u8` RGB in bytes.
    pub(crate) fn rgb_bytes(&self) -> usize {
        self.writer.image_bytes() * if self.gray { 3 } else { 1 }
    }

    /// Returns whether the device runs the effects on pixels for this plan.
    fn is_retouched_there(&self, plan: &Plan) -> bool {
        self.split.retouch && plan.drawn.is_for_devices()
    }

    /// Returns the field type and the name of the field.
    pub(crate) fn described(&self) -> (&Image, &str) {
        (&self.image, &self.name)
    }

    /// Returns whether a device may decode the image.
    pub(crate) fn may_be_left(&self) -> bool {
        self.decoding.is_some()
    }

    /// Leaves the decoding of an image to the device. `grid` describes the image, and `stream`
    /// contains its entropy-coded data. Returns `false` if there is no space left for the data, or
    /// if the device does not support `plan`.
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

    /// Returns the row that is stored in the decode record of row `place`, if the image was left to
    /// the device.
    #[cfg(feature = "_device")]
    pub(crate) fn left_at(&self, full: &mut Full, place: usize) -> Option<usize> {
        let ops = DecodeOps::read(record_at(full.bytes_mut(self.decoding?), place));
        ops.decodes().then(|| ops.place())
    }

    /// Writes the image in row `place` from pixels that were decoded on the host, and clears its
    /// decode record, so that the device does not decode it.
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

    /// Writes the record of the operations that the device runs on the image.
    fn write_ops(&self, plan: &Plan, row: &mut Row<'_>) {
        if let Some(records) = self.records {
            let ops = SampleOps::new(&plan.drawn, self.is_retouched_there(plan));
            ops.write(record(row.bytes(records)));
        }
    }

    /// Writes the finished image to the batch, unless it is already there, and runs the effects on
    /// values.
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

    /// Makes the image in row `place` of a full batch black.
    pub(crate) fn blank(&self, full: &mut Full, place: usize) {
        // If the records are zero, a device does not change the pixels.
        for span in self.records.into_iter().chain(self.decoding) {
            let each = full.schema().spans[span].sample_bytes;
            full.bytes_mut(span)[place * each..][..each].fill(0);
        }
        let (black, each) = (vec![0; self.writer.image_bytes()], self.writer.sample_bytes());
        let written = self.writer.write(&black, &mut full.bytes_mut(self.span)[place * each..][..each]);
        written.expect("an image and its row have the expected size");
    }

    /// Mixes the images of a full batch, which are stored as `u8` until then.
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

/// Returns the luminance of a pixel according to ITU-R BT.601, rounded like Pillow's
/// `convert("L")`. The luminance of a gray pixel is its value.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000) >> 16) as u8
}

/// Returns the bytes of a sample's record as an array.
fn record<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("a record has a fixed size")
}

/// Returns the bytes of the record in row `place`.
#[cfg(feature = "_device")]
fn record_at(records: &mut [u8], place: usize) -> &mut [u8; DecodeOps::BYTES] {
    record(&mut records[place * DecodeOps::BYTES..])
}

/// Scratch memory for mixing, reused from batch to batch.
#[derive(Default)]
pub(crate) struct MixScratch {
    own: Vec<u8>,
    last: Vec<u8>,
}
