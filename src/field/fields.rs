//! [`Fields`] contains all fields of a loader, lays out their arrays in a batch, and checks that
//! they are compatible with the augmentation.

use std::cell::Cell;
use std::sync::Arc;

use super::corners::BoxReader;
use super::encoded;
use super::field_type::{DecodeSettings, ImageContext};
use super::image::{ArrayFormat, ImageField, MixScratch};
use super::pasted::{Objects, Pasted};
use super::per_frame::{PerFrame, clips};
use super::split::{DecodeSpace, DeviceSplit};
use super::{AnyFieldType, FieldType, FieldWriter, Image, Input, Label, PasteRole, Patches, RowMut};
use crate::batch::{BatchWriter, DecodeOps, Dtype, Field, FilledSlot, Role, Row, SampleOps, SlotPart};
use crate::decode::{MAX_IMAGES_PER_SAMPLE, MAX_PLANNED_IMAGES, Oriented};
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::source::{Numbers, Sample, Source};
use crate::transform::{Augment, Plan};

pub(crate) struct Fields {
    pub(crate) images: Vec<ImageField>,
    /// Name of the field that [reads](FieldType::reads_stored_image) the sample's image, if there
    /// are no image fields.
    pub(crate) image_provider: Option<String>,
    /// Index of the first image with the loader's augmentation, if there is such an image. Masks
    /// and boxes are transformed together with this image.
    pub(crate) followed_image: Option<usize>,
    label: Option<Label>,
    patches: Option<String>,
    pub(crate) copied_fields: Vec<ArrayField>,
    pub(crate) computed_fields: Vec<ArrayField>,
}

fn check_view(name: &str, view: &Augment, augment: &Augment) -> Result<()> {
    view.check()?;
    if view.mixes() || augment.mixes() {
        return Err(Error::config(format!("field {name:?} is a view, and views cannot be mixed: remove Augment::mix")));
    }
    if view.needs_boxes() {
        return Err(Error::config(format!(
            "field {name:?} is a view, and boxes cannot follow a view: remove Augment::iou_crop"
        )));
    }
    if let Some(step) = view.joining_steps().next() {
        return Err(Error::config(format!(
            "field {name:?} is a view of a single sample, but {step} combines several: remove Augment::{step}"
        )));
    }
    Ok(())
}

fn check_clip(name: &str, image: &Image, augment: &Augment) -> Result<()> {
    let Some(frames) = image.clip() else { return Ok(()) };
    if frames == 0 {
        return Err(Error::config(format!("field {name:?} is a clip of 0 frames: expected at least 1")));
    }
    if augment.mixes() {
        return Err(Error::config(format!(
            "field {name:?} is a clip of {frames} frames, and clips cannot be mixed: remove Augment::mix"
        )));
    }
    if let Some(step) = augment.joining_steps().next() {
        return Err(Error::config(format!(
            "field {name:?} is a clip of {frames} frames, which cannot show several samples: remove Augment::{step}"
        )));
    }
    Ok(())
}

pub(crate) struct ArrayField {
    pub(crate) name: String,
    field_type: Arc<dyn FieldType>,
    first_array: usize,
    array_count: usize,
    /// How the field is divided into frames, or `None` if it has one value per sample.
    frames: Option<PerFrame>,
    pub(crate) bytes: usize,
}

impl ArrayField {
    pub(crate) fn write(
        &self,
        sample: &Sample<'_>,
        context: ImageContext<'_>,
        (rng, settings): (Rng, DecodeSettings<'_>),
        part: &mut SlotPart,
        index: usize,
    ) -> Result<()> {
        let mut row = RowMut::new(Row::new(part, index), self.first_array, self.array_count);
        let input = Input::new(&self.name, sample, context, rng, settings);
        match &self.frames {
            Some(frames) => frames.write(&*self.field_type, &input, &mut row),
            None => self.field_type.write(&input, &mut row),
        }
    }

    pub(crate) fn write_stored(&self, numbers: Numbers<'_>, part: &mut SlotPart, index: usize) -> bool {
        let mut row = RowMut::new(Row::new(part, index), self.first_array, self.array_count);
        self.field_type.write_stored(numbers, &mut row)
    }

    fn blank(&self, full: &mut FilledSlot, index: usize) {
        for span in self.first_array..self.first_array + self.array_count {
            let row_bytes = full.schema().spans[span].sample_bytes;
            full.bytes_mut(span)[index * row_bytes..][..row_bytes].fill(0);
        }
    }

    pub(crate) fn scratch_bytes(
        &self,
        sample: &Sample<'_>,
        context: ImageContext<'_>,
        rng: Rng,
        settings: DecodeSettings<'_>,
    ) -> u64 {
        let input = Input::new(&self.name, sample, context, rng, settings);
        match &self.frames {
            Some(frames) => frames.scratch_bytes(&*self.field_type, &input),
            None => self.field_type.scratch_bytes(&input),
        }
    }
}

impl Fields {
    pub(crate) fn new(
        fields: &[(String, AnyFieldType)],
        label: Label,
        format: ArrayFormat,
        (augment, epoch): (&Augment, u64),
        split: DeviceSplit,
    ) -> Result<(Fields, Vec<(Field, Role)>)> {
        let size = augment.at_epoch(epoch).output_size();
        let label = label.with_joining_step(augment.joining_steps().next());
        let mut arrays = Vec::new();
        let mut new_fields = Fields {
            images: Vec::new(),
            image_provider: None,
            followed_image: None,
            label: None,
            patches: None,
            copied_fields: Vec::new(),
            computed_fields: Vec::new(),
        };
        let clips = clips(fields);
        for (name, AnyFieldType(field_type)) in fields {
            let span = arrays.len();
            if let FieldWriter::Image(source_name) = field_type.writer() {
                let image = Image::with_options(source_name, field_type.augment(), field_type.frames());
                new_fields.add_image(name, image, &mut arrays, format, (augment, epoch), split)?;
                continue;
            }
            let (field_type, role) = match field_type.writer() {
                FieldWriter::Patches => {
                    new_fields.patches.get_or_insert_with(|| name.clone());
                    (field_type.clone(), None)
                }
                FieldWriter::Class if new_fields.label.replace(label).is_some() => {
                    return Err(Error::config(format!("field {name:?}: a loader can have only one label")));
                }
                FieldWriter::Class => (Arc::new(label) as Arc<dyn FieldType>, Some(Role::Label)),
                _ => (field_type.clone(), Some(Role::Plain)),
            };
            let mut field_arrays = field_type.describe_arrays(name, size)?;
            let frames = field_type.frames().filter(|_| field_type.writer() == FieldWriter::Write);
            if let Some(count) = frames {
                field_arrays.iter_mut().for_each(|array| array.shape.insert(0, count));
            }
            let frames = frames.map(|count| PerFrame::new(name, count, &clips)).transpose()?;
            let bytes = field_arrays.iter().map(Field::sample_bytes).sum();
            let out = if field_type.write_is_cheap() {
                &mut new_fields.copied_fields
            } else {
                &mut new_fields.computed_fields
            };
            out.push(ArrayField {
                name: name.clone(),
                field_type,
                first_array: span,
                array_count: field_arrays.len(),
                frames,
                bytes,
            });
            let role = |array| role.unwrap_or_else(|| Patches::role(array, span));
            arrays.extend(field_arrays.into_iter().enumerate().map(|(array, field)| (field, role(array))));
        }
        if new_fields.images.is_empty() {
            let provider = new_fields
                .array_fields()
                .find(|field| field.field_type.reads_stored_image())
                .map(|field| field.name.clone());
            new_fields.image_provider = provider;
        }
        if new_fields.images.len() > MAX_IMAGES_PER_SAMPLE {
            let images = new_fields.images.len();
            return Err(Error::config(format!(
                "{images} image fields, including views: expected at most {MAX_IMAGES_PER_SAMPLE}"
            )));
        }
        if arrays.is_empty() && new_fields.array_fields().next().is_none() {
            return Err(Error::config("drop_field removes every field, but a batch needs at least one"));
        }
        new_fields.add_records(&mut arrays, split);
        arrays.extend(new_fields.label.and_then(|label| label.soft_array()));
        new_fields.check_names(&arrays)?;
        // A device computes the soft labels itself, so batches that are copied to the device need
        // no array for them.
        if split.on_device {
            arrays.retain(|(_, role)| *role != Role::SoftLabels);
        }
        Ok((new_fields, arrays))
    }

    fn add_image(
        &mut self,
        name: &str,
        image: Image,
        arrays: &mut Vec<(Field, Role)>,
        format: ArrayFormat,
        (augment, epoch): (&Augment, u64),
        split: DeviceSplit,
    ) -> Result<()> {
        check_clip(name, &image, augment)?;
        if let Some(view) = image.own_augment() {
            check_view(name, view, augment)?;
        } else if self.followed_image.is_none() {
            self.followed_image = Some(self.images.len());
        }
        let size = image.own_augment().unwrap_or(augment).at_epoch(epoch).output_size();
        let (span, is_gray) = (arrays.len(), format.channels == 1);
        arrays.extend(image.describe_arrays(name, size)?.into_iter().map(|field| format.array(field, image.clip())));
        let writer = BatchWriter::new(size, format.dtype, format.layout, format.normalize)?;
        let writer = if is_gray { writer.single_channel() } else { writer };
        let name = name.to_owned();
        self.images.push(ImageField {
            image,
            name,
            span,
            records_span: None,
            decoding_span: None,
            split,
            is_gray,
            writer,
        });
        Ok(())
    }

    fn add_records(&mut self, arrays: &mut Vec<(Field, Role)>, split: DeviceSplit) {
        let unnamed_field = |bytes| Field { name: String::new(), dtype: Dtype::U8, shape: vec![bytes] };
        for image in self.images.iter_mut().filter(|_| split.has_records) {
            image.records_span = Some(arrays.len());
            arrays.push((
                unnamed_field(SampleOps::BYTES * image.image_count()),
                Role::Records { image_span: image.span },
            ));
        }
        if let Some(DecodeSpace { images, bytes, blocks }) = split.decode {
            for image in &mut self.images {
                image.decoding_span = Some(arrays.len());
                arrays.push((
                    unnamed_field(DecodeOps::BYTES * image.image_count()),
                    Role::Decoding { image_span: image.span },
                ));
            }
            arrays.push((unnamed_field(images * bytes), Role::Encoded { blocks: images * blocks }));
        }
    }

    fn check_names(&self, arrays: &[(Field, Role)]) -> Result<()> {
        let duplicate = arrays.iter().enumerate().find(|(i, (field, _))| {
            !field.name.is_empty() && arrays[..*i].iter().any(|(other, _)| other.name == field.name)
        });
        // Text fields have no arrays.
        let texts = self.array_fields().filter(|member| member.array_count == 0).map(|member| &member.name);
        let text = texts.into_iter().find(|text| arrays.iter().any(|(field, _)| field.name == **text));
        if let Some(name) = duplicate.map(|(_, (field, _))| &field.name).or(text) {
            return Err(Error::config(format!("duplicate field {name:?}: use a different name for one of the two")));
        }
        Ok(())
    }

    /// Checks that the fields and the augmentation are compatible. Set `moves_pixels` if custom
    /// transforms may move pixels.
    pub(crate) fn check(&self, augment: &Augment, moves_pixels: bool) -> Result<()> {
        if let Some(ArrayField { name, .. }) = self.array_fields().find(|field| field.field_type.follows_image()) {
            if self.followed_image.is_none() && !self.images.is_empty() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but the loader has only views of it, and each view has a different crop: \
                     add .field(\"image\", Image::new())"
                )));
            }
            if self.images.is_empty() && self.image_provider.is_none() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but the loader has no image: remove drop_field(\"image\") or add \
                     .field(\"image\", Image::new())"
                )));
            }
            if augment.repeats_borders() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but annotations do not repeat in the border of \
                     Augment::random_crop: use Border::Constant"
                )));
            }
            if augment.mixes() {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but masks and boxes cannot be mixed: remove Augment::mix or the field"
                )));
            }
            if moves_pixels {
                return Err(Error::config(format!(
                    "field {name:?} follows the image, but cannot follow pixels that Loader::transform moves: use Augment instead, \
                     or add .transform_moves_pixels(false) if the transform does not move pixels"
                )));
            }
        }
        if let Some(name) = &self.patches {
            let step = if augment.mixes() { Some("mix") } else { augment.joining_steps().next() };
            if let Some(step) = step {
                return Err(Error::config(format!(
                    "field {name:?} has the patches of one image, which cannot be combined with other images: remove \
                     Augment::{step} or the field"
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
                and train on \"soft_label\", or use .drop_field(\"label\") to train without labels",
            ));
        }
        if let (Some(name), Some(step)) = (&self.image_provider, augment.changes_colors()) {
            return Err(Error::config(format!(
                "field {name:?} contains the image as stored, so {step} has no effect on it: remove the step, or add \
                 .field(\"image\", Image::new())"
            )));
        }
        if augment.needs_boxes() && self.box_fields().next().is_none() {
            return Err(Error::config("augment: iou_crop needs a field with boxes, such as field::Boxes"));
        }
        if augment.needs_boxes()
            && let Some(ArrayField { name, .. }) =
                self.array_fields().find(|field| field.frames.is_some() && field.field_type.boxes().is_some())
        {
            return Err(Error::config(format!(
                "augment: iou_crop needs the boxes of one image, but field {name:?} has boxes for each frame: remove \
                 Augment::iou_crop"
            )));
        }
        augment.joining_steps().try_for_each(|step| self.check_joins(augment, step))
    }

    /// Rejects an augmentation that combines samples into one image if the first sample has a
    /// label. Any other sample with a label fails when it is written.
    pub(crate) fn check_labels(&self, source: &dyn Source) -> Result<()> {
        self.label.iter().try_for_each(|label| label.check_first(source))
    }

    fn check_joins(&self, augment: &Augment, step: &str) -> Result<()> {
        let joined_images = self.images.iter().filter(|field| field.image.own_augment().is_none()).count();
        if joined_images == 0 {
            return Err(Error::config(format!(
                "augment: {step} needs an image field that uses the loader's augmentation, but there is none"
            )));
        }
        let image_count = self.images.len() - joined_images + augment.max_images_of_all_epochs() * joined_images;
        if image_count > MAX_PLANNED_IMAGES {
            return Err(Error::config(format!(
                "augment: {step} with {joined_images} image fields needs {image_count} images per sample: expected at \
                 most {MAX_PLANNED_IMAGES}"
            )));
        }
        let supports_step = |field_type: &dyn FieldType| match step {
            "mosaic" => field_type.supports_mosaic(),
            _ => !matches!(field_type.paste_role(), PasteRole::Unsupported),
        };
        let is_incompatible =
            |field: &&ArrayField| field.field_type.follows_image() && !supports_step(&*field.field_type);
        if let Some(ArrayField { name, .. }) = self.array_fields().find(is_incompatible) {
            return Err(Error::config(format!(
                "field {name:?} is transformed with a single image, but {step} combines several: remove Augment::{step} \
                 or the field"
            )));
        }
        let source_count = self.objects().count();
        if step == "copy_paste" && source_count != 1 {
            return Err(Error::config(format!(
                "augment: copy_paste needs one field with the masks of the objects, but the loader has \
                 {source_count}: add one field of boxes with masks"
            )));
        }
        Ok(())
    }

    fn objects(&self) -> impl Iterator<Item = (&str, &dyn Objects)> {
        self.array_fields().filter_map(|field| match field.field_type.paste_role() {
            PasteRole::Source(objects) => Some((&*field.name, objects)),
            _ => None,
        })
    }

    pub(crate) fn select_pasted(
        &self,
        sample: &Sample<'_>,
        plan: &Plan,
        rng_and_margin: (&Rng, u32),
        pasted: &mut Pasted,
    ) -> Result<()> {
        let (name, objects) = self.objects().next().expect("checked when the loader was opened");
        objects.select(name, sample, plan, rng_and_margin, pasted)
    }

    pub(crate) fn blank(&self, full: &mut FilledSlot, index: usize) {
        self.images.iter().for_each(|field| field.blank(full, index));
        self.array_fields().for_each(|field| field.blank(full, index));
    }

    /// Returns the loader's only field if it is cheap to write and reads the sample's field `name`,
    /// as the fast path for stored numbers requires.
    pub(crate) fn sole_copied_field(&self, name: &str) -> Option<&ArrayField> {
        let [field] = &self.copied_fields[..] else { return None };
        let has_others = !self.images.is_empty()
            || self.image_provider.is_some()
            || self.label.is_some()
            || !self.computed_fields.is_empty();
        let is_read =
            || Sample::new("").with_field(name, &b""[..]).is_ok_and(|sample| encoded::has_field(&sample, &field.name));
        (!has_others && is_read()).then_some(field)
    }

    fn array_fields(&self) -> impl Iterator<Item = &ArrayField> {
        self.copied_fields.iter().chain(&self.computed_fields)
    }

    fn box_fields(&self) -> impl Iterator<Item = (&str, BoxReader)> {
        self.array_fields().filter_map(|field| Some((&*field.name, field.field_type.boxes()?)))
    }

    pub(crate) fn read_boxes(&self, sample: &Sample<'_>, image: Oriented, out: &mut Vec<[f32; 4]>) -> Result<()> {
        thread_local! {
            static NUMBERS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
        }
        out.clear();
        let mut numbers = NUMBERS.take();
        let result = self
            .box_fields()
            .try_for_each(|(name, reader)| reader.read(name, sample, image, &mut numbers, out).map(drop));
        NUMBERS.set(numbers);
        result
    }

    pub(crate) fn has_clips(&self) -> bool {
        self.images.iter().any(|field| field.image.clip().is_some())
    }

    pub(crate) fn largest_image_bytes(&self) -> usize {
        self.images.iter().map(ImageField::rgb_bytes).max().unwrap_or(0)
    }

    pub(crate) fn augments<'a>(&'a self, augment: &'a Augment) -> impl Iterator<Item = &'a Augment> {
        self.images.iter().map(move |field| field.image.own_augment().unwrap_or(augment))
    }

    pub(crate) fn computed_bytes(&self) -> usize {
        self.computed_fields.iter().map(|field| field.bytes).sum()
    }

    /// See [`Label::mark_unlabeled`]. Must be called before failed samples are replaced.
    pub(crate) fn mark_unlabeled(&self, source: &dyn Source, full: &mut FilledSlot) {
        if let Some(label) = &self.label {
            label.mark_unlabeled(source, full);
        }
    }

    pub(crate) fn mix(&self, full: &mut FilledSlot, scratch: &mut MixScratch) -> Result<()> {
        let Some(mixing) = full.header().mixing else { return Ok(()) };
        self.images
            .iter()
            .filter(|image| !image.split.on_device)
            .try_for_each(|image| image.mix(&mixing, full, scratch))
    }

    pub(crate) fn finish(&self, full: &mut FilledSlot) {
        if let Some(label) = &self.label {
            label.write_soft_labels(full);
        }
        full.pack();
    }

    /// Computes the launch sizes of the device's decoding kernels.
    pub(crate) fn compute_launch_stats(&self, full: &mut FilledSlot) {
        let mut launch_stats = std::mem::take(&mut full.header_mut().launch_stats);
        launch_stats.clear();
        launch_stats.extend(
            self.images.iter().filter_map(|image| Some(DecodeOps::launch_stats(full.bytes(image.decoding_span?)))),
        );
        full.header_mut().launch_stats = launch_stats;
    }
}
