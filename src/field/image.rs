use super::{Input, Kind, Maker, Place};
use crate::batch::{self, Dtype, Field, Full, Layout, Normalize, Part, Role, Row, Writer};
use crate::cuda::{DecodeOps, Encoded, SampleOps};
use crate::decode::{Bitstream, Codecs, Grid, Pixels, Size};
use crate::error::{Error, Result};
use crate::format::is_picture;
use crate::order::Rng;
use crate::source::Sample;
use crate::transform::{Augment, Erase, ImageMut, Mixing, Plan, Resizer, Transform};

/// A picture: decoded, cropped, resized, flipped, coloured, normalised, erased and mixed.
/// [`Loader::augment`](crate::Loader::augment) and its neighbours set the steps.
///
/// All images of a sample draw the same random numbers. So pictures of one size are cropped and
/// flipped alike. On the way to a device images are `u8` (N, H, W, 3). The device casts,
/// normalises, transposes, erases and mixes them.
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
#[derive(Debug, Clone, Default)]
pub struct Image {
    of: Option<String>,
}

impl Image {
    /// The sample's first field that is named after a picture format: `jpg`, `png`, `img`, ...
    pub fn new() -> Self {
        Self::default()
    }

    /// The sample's field `name`. Its name need not be that of a format.
    pub fn of(name: impl Into<String>) -> Self {
        Image { of: Some(name.into()) }
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
                None => format!("no image among the fields {names:?}{}", hint(&names)),
            })
        })
    }
}

/// How to say that a file of the sample is its picture, if it has one whose name ends as pictures do.
fn hint(names: &[&str]) -> String {
    let picture =
        |name: &&str| Some((name.to_string(), name.rsplit_once('.').filter(|(_, end)| is_picture(end))?.0.to_owned()));
    match names.iter().find_map(picture) {
        Some((name, column)) => format!(
            "; if {name:?} is the picture, say so with TableOptions::picture({column:?}) for a table, or with \
             Image::of({name:?})"
        ),
        None => String::new(),
    }
}

/// How all images of a loader are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) size: Size,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    pub(crate) normalize: Normalize,
}

impl Written {
    /// The array of an image, written so.
    pub(super) fn array(&self, mut image: Field) -> (Field, Role) {
        if self.layout == Layout::Nchw {
            image.shape.rotate_right(1);
        }
        (Field { dtype: self.dtype, ..image }, Role::Picture)
    }
}

impl Kind for Image {
    /// The image before its conversion: `u8` (H, W, 3).
    fn arrays(&self, name: &str, output: Size) -> Result<Vec<Field>> {
        let shape = vec![output.height as usize, output.width as usize, 3];
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::U8, shape }])
    }

    fn maker(&self) -> Maker<'_> {
        Maker::Picture(self.of.as_deref())
    }

    fn write(&self, _input: &Input<'_>, _place: &mut Place<'_>) -> Result<()> {
        unreachable!("workers decode pictures in groups and call `ImageField::write`")
    }
}

/// An [`Image`] of a loader, with its place in the batch.
pub(crate) struct ImageField {
    pub(crate) image: Image,
    /// Its place among the loader's images.
    pub(super) number: usize,
    pub(super) span: usize,
    /// The span of its records for a device, which then erases.
    pub(super) records: Option<usize>,
    /// The span of its records of what a device decodes.
    pub(super) decoding: Option<usize>,
    /// Whether the host mixes.
    pub(super) mixed_here: bool,
    pub(super) writer: Writer,
}

impl ImageField {
    /// Whether the image is written only when the batch is full: it is mixed before it is rounded.
    /// Until then it lies in its place as `u8` HWC, which has room for any dtype.
    fn waits(&self, row: &Row<'_>) -> bool {
        self.mixed_here && row.header().mixing.is_some()
    }

    /// From decoded pixels to the finished `u8` image: in the batch itself if the batch takes `u8`
    /// bytes, else in `image`.
    pub(crate) fn transform(
        &self,
        pixels: &Pixels,
        plan: &Plan,
        rng: &mut Rng,
        steps: (&Augment, &[std::sync::Arc<dyn Transform>]),
        (resizer, image): (&mut Resizer, &mut [u8]),
        row: &mut Row<'_>,
    ) -> Result<()> {
        let image = if self.writer.is_copy() || self.waits(row) {
            &mut row.bytes(self.span)[..self.writer.image_bytes()]
        } else {
            image
        };
        resizer.run(pixels, plan, image)?;
        let mut image = ImageMut::new(image, plan.output.width, plan.output.height);
        let (augment, transforms) = steps;
        augment.colour(&mut image, rng);
        transforms.iter().try_for_each(|transform| transform.apply(&mut image, rng))
    }

    /// Whether a device may make it.
    pub(crate) fn may_be_left(&self) -> bool {
        self.decoding.is_some()
    }

    /// Leaves a picture to the device: what it needs of it lies in `stream`, and `grid` describes
    /// it. `false` if it has no room, or does not make what `plan` says.
    pub(crate) fn leave(&self, grid: &Grid, stream: &Bitstream, plan: &Plan, part: &mut Part, place: usize) -> bool {
        let Some(decoding) = self.decoding.filter(|_| DecodeOps::takes(plan)) else { return false };
        let (bytes, blocks) = (stream.len(), grid.kept_blocks());
        let Some((at, block, to)) = part.encoded(bytes + DecodeOps::SLACK, blocks) else { return false };
        stream.write(&mut to[..bytes]);
        let Some(ops) = DecodeOps::new(grid, plan, Encoded { place, at, bytes, block }) else { return false };
        ops.write(record(part.bytes(decoding, place)));
        self.write_ops(plan, &mut Row::new(part, place));
        true
    }

    /// The place that the picture at `place` was left to the device for, if it was.
    #[cfg(feature = "cuda")]
    pub(crate) fn left_at(&self, full: &mut Full, place: usize) -> Option<usize> {
        let ops = DecodeOps::read(record_at(full.bytes_mut(self.decoding?), place));
        ops.decodes().then(|| ops.place())
    }

    /// Makes the picture at `place` on the host, in place of the device.
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
            DecodeOps::NOTHING.write(record(part.bytes(decoding, place)));
        }
        Ok(())
    }

    /// Writes what a device does to the pixels.
    fn write_ops(&self, plan: &Plan, row: &mut Row<'_>) {
        if let Some(records) = self.records {
            let erase = plan.erase.as_ref();
            let ops = erase.map_or_else(SampleOps::new, |erase| SampleOps::new().erase(erase.rect, erase.value));
            ops.write(record(row.bytes(records)));
        }
    }

    /// Writes the finished image, unless it lies in the batch already, and erases in it.
    pub(crate) fn write(&self, image: &[u8], plan: &Plan, row: &mut Row<'_>) -> Result<()> {
        let erase = plan.erase.as_ref();
        self.write_ops(plan, row);
        if let Some(decoding) = self.decoding {
            DecodeOps::NOTHING.write(record(row.bytes(decoding)));
        }
        let erase = erase.filter(|_| self.records.is_none());
        if self.waits(row) {
            let waiting = &mut row.meta().erase;
            waiting.resize(waiting.len().max(self.number + 1), None);
            waiting[self.number] = erase.copied();
        } else if !self.writer.is_copy() {
            self.writer.write(image, erase, row.bytes(self.span))?;
        } else if let Some(erase) = erase {
            self.writer.erase(erase, row.bytes(self.span))?;
        }
        Ok(())
    }

    /// Makes the picture at `place` of a full batch black.
    pub(crate) fn blank(&self, full: &mut Full, place: usize) {
        // A device leaves the pixels as they are.
        for span in self.records.into_iter().chain(self.decoding) {
            let each = full.schema().spans[span].sample_bytes;
            full.bytes_mut(span)[place * each..][..each].fill(0);
        }
        let (black, each) = (vec![0; self.writer.image_bytes()], self.writer.sample_bytes());
        let written = self.writer.write(&black, None, &mut full.bytes_mut(self.span)[place * each..][..each]);
        written.expect("an image, and its place, have their size");
    }

    /// Mixes the waiting images of a full batch.
    pub(crate) fn mix(&self, mixing: &Mixing, full: &mut Full, scratch: &mut MixScratch) -> Result<()> {
        let MixScratch { own, last, erase } = scratch;
        erase.clear();
        erase.extend((0..full.len()).map(|place| full.meta(place).erase.get(self.number).copied().flatten()));
        own.resize(self.writer.image_bytes(), 0);
        batch::mix(&self.writer, mixing, full.bytes_mut(self.span), erase, own, last)
    }
}

/// The bytes of a sample's record.
fn record<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("a record has its size")
}

/// The record of the sample at `place`.
#[cfg(feature = "cuda")]
fn record_at(records: &mut [u8], place: usize) -> &mut [u8; DecodeOps::BYTES] {
    record(&mut records[place * DecodeOps::BYTES..])
}

/// Scratch memory of mixing, kept from batch to batch.
#[derive(Default)]
pub(crate) struct MixScratch {
    own: Vec<u8>,
    last: Vec<u8>,
    erase: Vec<Option<Erase>>,
}
