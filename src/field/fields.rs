use std::cell::Cell;
use std::sync::Arc;

use super::corners::BoxReader;
use super::field_type::Shown;
use super::image::{ImageField, MixScratch, Written};
use super::pasted::{Objects, Pasted};
use super::split::{Room, Split};
use super::{FieldKind, FieldType, FieldWriter, Image, Input, Label, PasteRole, RowMut};
use crate::batch::{BatchWriter, DecodeOps, Dtype, Field, Full, Part, Role, Row, SampleOps};
use crate::decode::{MAX_IMAGES, MAX_PLANNED, Oriented};
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::source::{Sample, Source};
use crate::transform::{Augment, Plan};

/// The fields of a loader, each with its place in the batch.
pub(crate) struct Fields {
    pub(crate) images: Vec<ImageField>,
    /// The field that shows the sample's image in a loader without images.
    pub(crate) shown: Option<String>,
    /// The image that other fields follow: the first without an augmentation of its own.
    pub(crate) followed: Option<usize>,
    label: Option<Label>,
    /// All other fields that [copy](FieldType::copies), and those that compute.
    pub(crate) copied: Vec<Member>,
    pub(crate) computed: Vec<Member>,
}

/// Checks the augmentation of a view called `name`; `augment` is that of the loader.
fn check_view(name: &str, view: &Augment, augment: &Augment) -> Result<()> {
    view.check()?;
    if view.mixes() || augment.mixes() {
        return Err(Error::config(format!(
            "field {name:?} is a view, and views are not mixed: leave out Augment::mix"
        )));
    }
    if view.sees_boxes() {
        return Err(Error::config(format!(
            "field {name:?} is a view, which no boxes follow: iou_crop is not possible"
        )));
    }
    if let Some(step) = view.joins().next() {
        return Err(Error::config(format!("field {name:?} is a view of one image: leave out Augment::{step}")));
    }
    Ok(())
}

/// A field that its kind writes.
pub(crate) struct Member {
    pub(crate) name: String,
    kind: Arc<dyn FieldType>,
    first: usize,
    arrays: usize,
    /// Bytes of a sample in all its arrays.
    pub(crate) bytes: usize,
}

impl Member {
    /// Writes the part of `sample`, whose random numbers are `rng`.
    pub(crate) fn write(
        &self,
        sample: &Sample<'_>,
        shown: Shown<'_>,
        rng: Rng,
        part: &mut Part,
        place: usize,
    ) -> Result<()> {
        let mut place = RowMut::new(Row::new(part, place), self.first, self.arrays);
        self.kind.write(&Input::new(&self.name, sample, shown, rng), &mut place)
    }

    /// Makes the part of the sample at `place` of a full batch zero.
    fn blank(&self, full: &mut Full, place: usize) {
        for span in self.first..self.first + self.arrays {
            let each = full.schema().spans[span].sample_bytes;
            full.bytes_mut(span)[place * each..][..each].fill(0);
        }
    }

    /// Bytes of memory that writing `sample` takes.
    pub(crate) fn memory(&self, sample: &Sample<'_>, shown: Shown<'_>, rng: Rng) -> u64 {
        self.kind.memory(&Input::new(&self.name, sample, shown, rng))
    }
}

impl Fields {
    /// Creates the fields of these names and kinds, with their arrays in a batch of `epoch`. Images
    /// have `format` and pass `augment`, and `label` determines the form of classes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a duplicate name, and for options that a
    /// kind refuses.
    pub(crate) fn new(
        fields: &[(String, FieldKind)],
        label: Label,
        format: Written,
        (augment, epoch): (&Augment, u64),
        split: Split,
    ) -> Result<(Fields, Vec<(Field, Role)>)> {
        let size = augment.at_epoch(epoch).output_size();
        let label = label.joined(augment.joins().next());
        let mut arrays = Vec::new();
        let mut made = Fields {
            images: Vec::new(),
            shown: None,
            followed: None,
            label: None,
            copied: Vec::new(),
            computed: Vec::new(),
        };
        for (name, FieldKind(kind)) in fields {
            let span = arrays.len();
            if let FieldWriter::Image(of) = kind.maker() {
                let image = Image::described(of, kind.augment());
                made.add_image(name, image, &mut arrays, format, (augment, epoch), split)?;
                continue;
            }
            let (kind, role) = match kind.maker() {
                FieldWriter::Class if made.label.replace(label).is_some() => {
                    return Err(Error::config(format!("field {name:?}: a loader has one label")));
                }
                FieldWriter::Class => (Arc::new(label) as Arc<dyn FieldType>, Role::Label),
                _ => (kind.clone(), Role::Plain),
            };
            let own = kind.arrays(name, size)?;
            let bytes = own.iter().map(Field::sample_bytes).sum();
            let to = if kind.copies() { &mut made.copied } else { &mut made.computed };
            to.push(Member { name: name.clone(), kind, first: span, arrays: own.len(), bytes });
            arrays.extend(own.into_iter().map(|field| (field, role)));
        }
        if made.images.is_empty() {
            let shown = made.members().find(|field| field.kind.shows_image()).map(|field| field.name.clone());
            made.shown = shown;
        }
        if made.images.len() > MAX_IMAGES {
            let images = made.images.len();
            return Err(Error::config(format!("{images} images per sample; at most {MAX_IMAGES} are possible")));
        }
        if arrays.is_empty() && made.members().next().is_none() {
            return Err(Error::config("every field is left out by without; a batch needs at least one"));
        }
        made.add_records(&mut arrays, split);
        arrays.extend(made.label.and_then(|label| label.soft_array()));
        made.check_names(&arrays)?;
        // A device computes its own rows of shares, so they need not cross the bus.
        if split.there {
            arrays.retain(|(_, role)| *role != Role::SoftLabels);
        }
        Ok((made, arrays))
    }

    /// Adds the image `name`, and its array in a batch of `epoch`.
    fn add_image(
        &mut self,
        name: &str,
        image: Image,
        arrays: &mut Vec<(Field, Role)>,
        format: Written,
        (augment, epoch): (&Augment, u64),
        split: Split,
    ) -> Result<()> {
        if let Some(view) = image.own() {
            check_view(name, view, augment)?;
        } else if self.followed.is_none() {
            self.followed = Some(self.images.len());
        }
        let size = image.own().unwrap_or(augment).at_epoch(epoch).output_size();
        let (span, gray) = (arrays.len(), format.channels == 1);
        arrays.extend(image.arrays(name, size)?.into_iter().map(|field| format.array(field)));
        let writer = BatchWriter::new(size, format.dtype, format.layout, format.normalize)?;
        let writer = if gray { writer.of_one_channel() } else { writer };
        let name = name.to_owned();
        self.images.push(ImageField { image, name, span, records: None, decoding: None, split, gray, writer });
        Ok(())
    }

    /// Adds the arrays of records that the images have by `split`, and the encoded images.
    fn add_records(&mut self, arrays: &mut Vec<(Field, Role)>, split: Split) {
        let hidden = |bytes| Field { name: String::new(), dtype: Dtype::U8, shape: vec![bytes] };
        for image in self.images.iter_mut().filter(|_| split.records) {
            image.records = Some(arrays.len());
            arrays.push((hidden(SampleOps::BYTES), Role::Records { of: image.span }));
        }
        if let Some(Room { bytes, blocks }) = split.decode {
            for image in &mut self.images {
                image.decoding = Some(arrays.len());
                arrays.push((hidden(DecodeOps::BYTES), Role::Decoding { of: image.span }));
            }
            arrays.push((hidden(bytes), Role::Encoded { blocks }));
        }
    }

    /// Checks that no two fields have one name.
    fn check_names(&self, arrays: &[(Field, Role)]) -> Result<()> {
        let twice = arrays.iter().enumerate().find(|(i, (field, _))| {
            !field.name.is_empty() && arrays[..*i].iter().any(|(other, _)| other.name == field.name)
        });
        // A field without an array is a text.
        let texts = self.members().filter(|member| member.arrays == 0).map(|member| &member.name);
        let text = texts.into_iter().find(|text| arrays.iter().any(|(field, _)| field.name == **text));
        if let Some(name) = twice.map(|(_, (field, _))| &field.name).or(text) {
            return Err(Error::config(format!("duplicate field {name:?}")));
        }
        Ok(())
    }

    /// Checks that the fields and the augmentation go together. `moved` says whether the user's own
    /// steps may move pixels.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a field that cannot follow its image,
    /// for labels that are not mixed with the images, and for [`Augment::iou_crop`] without
    /// boxes.
    pub(crate) fn check(&self, augment: &Augment, moved: bool) -> Result<()> {
        if let Some(Member { name, .. }) = self.members().find(|field| field.kind.follows_image()) {
            if self.followed.is_none() && !self.images.is_empty() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but the loader has only views of it, which are cropped each in their own way: \
                     add .field(\"image\", Image::new())"
                )));
            }
            if self.images.is_empty() && self.shown.is_none() {
                return Err(Error::config(format!("field {name:?} follows the image, but the loader has none")));
            }
            if augment.repeats_borders() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but annotations do not repeat in the border of \
                     Augment::random_crop: use Border::Constant"
                )));
            }
            if augment.mixes() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, and images are mixed: a mixed mask or box has no meaning"
                )));
            }
            if moved {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but not Loader::transform, which may move pixels: move them with the augmentation, \
                     which the field follows, or add .transform_moves_pixels(false) if each pixel stays in its place"
                )));
            }
        }
        if let Some(label) = &self.label
            && augment.mixes()
            && !self.images.is_empty()
            && !label.is_soft()
        {
            return Err(Error::config(
                "augment mixes images (mixup, cutmix), but each label is the class of one image: add .soft_labels(classes, smoothing) \
                 and train on \"soft_label\"; or use .drop_field(\"label\") to train without labels",
            ));
        }
        if let (Some(name), Some(step)) = (&self.shown, augment.changes_colors()) {
            return Err(Error::config(format!(
                "field {name:?} shows the image as it is stored, so {step} would not change it: leave the step out, or add \
                 .field(\"image\", Image::new())"
            )));
        }
        if augment.sees_boxes() && self.with_boxes().next().is_none() {
            return Err(Error::config("augment: iou_crop needs a field with boxes, such as field::Boxes"));
        }
        augment.joins().try_for_each(|step| self.check_joins(augment, step))
    }

    /// Checks that the labels of `source` and the augmentation go together.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for labels of images that join several
    /// samples.
    pub(crate) fn check_labels(&self, source: &dyn Source) -> Result<()> {
        self.label.iter().try_for_each(|label| label.check_first(source))
    }

    /// Checks that the fields go together with `step`, which joins images.
    fn check_joins(&self, augment: &Augment, step: &str) -> Result<()> {
        let tiled = self.images.iter().filter(|field| field.image.own().is_none()).count();
        if tiled == 0 {
            return Err(Error::config(format!(
                "augment: {step} needs an image without an augmentation of its own, and there is none"
            )));
        }
        let planned = self.images.len() - tiled + augment.ever_most_images() * tiled;
        if planned > MAX_PLANNED {
            return Err(Error::config(format!(
                "augment: {step} of {tiled} images takes {planned} images per sample; at most {MAX_PLANNED} are possible"
            )));
        }
        let joins = |kind: &dyn FieldType| match step {
            "mosaic" => kind.joins_images(),
            _ => !matches!(kind.pastes(), PasteRole::Not),
        };
        let alone = |field: &&Member| field.kind.follows_image() && !joins(&*field.kind);
        if let Some(Member { name, .. }) = self.members().find(alone) {
            return Err(Error::config(format!(
                "field {name:?} follows one image, and augment joins several: leave out Augment::{step}, or the field"
            )));
        }
        let objects = self.objects().count();
        if step == "copy_paste" && objects != 1 {
            return Err(Error::config(format!(
                "augment: copy_paste needs one field with the masks of the objects, and the loader has {objects}: give it \
                 one field of boxes with masks"
            )));
        }
        Ok(())
    }

    /// The fields whose masks say which pixels are pasted, by name.
    fn objects(&self) -> impl Iterator<Item = (&str, &dyn Objects)> {
        self.members().filter_map(|field| match field.kind.pastes() {
            PasteRole::Gives(objects) => Some((&*field.name, objects)),
            _ => None,
        })
    }

    /// Chooses the objects of `sample`, whose image has `plan`, that are pasted into an image,
    /// with a margin in pixels. `rng` is that of the image's own sample.
    pub(crate) fn paste(
        &self,
        sample: &Sample<'_>,
        plan: &Plan,
        chosen: (&Rng, u32),
        pasted: &mut Pasted,
    ) -> Result<()> {
        let (name, objects) = self.objects().next().expect("checked when the loader was opened");
        objects.paste(name, sample, plan, chosen, pasted)
    }

    /// Makes the sample at `place` of a full batch black, and its other fields zero.
    pub(crate) fn blank(&self, full: &mut Full, place: usize) {
        self.images.iter().for_each(|field| field.blank(full, place));
        self.members().for_each(|field| field.blank(full, place));
    }

    /// The fields that their kinds write.
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.copied.iter().chain(&self.computed)
    }

    /// The fields of boxes, by name.
    fn with_boxes(&self) -> impl Iterator<Item = (&str, BoxReader)> {
        self.members().filter_map(|field| Some((&*field.name, field.kind.boxes()?)))
    }

    /// Replaces the content of `to` by the boxes of `sample` in its upright `original`.
    pub(crate) fn boxes(&self, sample: &Sample<'_>, original: Oriented, to: &mut Vec<[f32; 4]>) -> Result<()> {
        thread_local! {
            static NUMBERS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
        }
        to.clear();
        let mut numbers = NUMBERS.take();
        let read =
            self.with_boxes().try_for_each(|(name, of)| of.read(name, sample, original, &mut numbers, to).map(drop));
        NUMBERS.set(numbers);
        read
    }

    /// Bytes of the largest image as RGB of `u8`; 0 without images.
    pub(crate) fn largest_image(&self) -> usize {
        self.images.iter().map(ImageField::rgb_bytes).max().unwrap_or(0)
    }

    /// The augmentations of the images; `augment` is that of the loader.
    pub(crate) fn augments<'a>(&'a self, augment: &'a Augment) -> impl Iterator<Item = &'a Augment> {
        self.images.iter().map(move |field| field.image.own().unwrap_or(augment))
    }

    /// Bytes of a sample in the fields that compute.
    pub(crate) fn computed_bytes(&self) -> usize {
        self.computed.iter().map(|field| field.bytes).sum()
    }

    /// Checks a complete batch, before its failed samples are replaced.
    pub(crate) fn judge(&self, source: &dyn Source, full: &mut Full) {
        if let Some(label) = &self.label {
            label.judge(source, full);
        }
    }

    /// Mixes the images, if the host does that and this batch is mixed.
    pub(crate) fn mix(&self, full: &mut Full, scratch: &mut MixScratch) -> Result<()> {
        let Some(mixing) = full.header().mixing else { return Ok(()) };
        self.images.iter().filter(|image| !image.split.there).try_for_each(|image| image.mix(&mixing, full, scratch))
    }

    /// Writes the parts that depend on the whole batch.
    pub(crate) fn finish(&self, full: &mut Full) {
        if let Some(label) = &self.label {
            label.soften(full);
        }
    }

    /// Computes the launch sizes for the images that the batch leaves to a device.
    pub(crate) fn measure(&self, full: &mut Full) {
        let mut largest = std::mem::take(&mut full.header_mut().largest);
        largest.clear();
        largest.extend(self.images.iter().filter_map(|image| Some(DecodeOps::largest(full.bytes(image.decoding?)))));
        full.header_mut().largest = largest;
    }
}
