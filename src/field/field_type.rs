//! [`FieldType`], the trait of all field types.

use std::fmt::Debug;
use std::sync::Arc;

use super::corners::BoxReader;
use super::pasted::{Objects, Pasted};
use crate::batch::{Field, Row};
use crate::decode::{Codecs, Size};
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::source::{Numbers, Sample};
use crate::transform::{Augment, Plan};

/// Produces one field of a batch from the samples. A field consists of arrays with one row per
/// sample.
///
/// Every field of a batch has a field type, including the built-in [`Image`](super::Image) and
/// [`Label`](super::Label). To define your own field type, implement `describe_arrays` and `write`.
/// For batches on a device, the arrays are copied to the device unchanged.
///
/// ```
/// use warpfeed::batch::{Dtype, Field};
/// use warpfeed::decode::Size;
/// use warpfeed::field::{Input, FieldType, RowMut};
///
/// /// The length of the sample's caption in bytes.
/// #[derive(Debug)]
/// struct Length;
///
/// impl FieldType for Length {
///     fn describe_arrays(&self, name: &str, _: Size) -> warpfeed::Result<Vec<Field>> {
///         Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![] }])
///     }
///
///     fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> warpfeed::Result<()> {
///         let length = input.sample.field("txt").map_or(0, |text| text.len()) as i64;
///         row.bytes(0).copy_from_slice(&length.to_ne_bytes());
///         Ok(())
///     }
/// }
/// # let loader = warpfeed::Loader::new("set").field("length", Length);
/// ```
pub trait FieldType: Send + Sync + Debug {
    /// Returns the name, element type and shape per sample of each array of a field called `name`.
    /// `output_size` is the size of the images in the batch. If batches have different image sizes
    /// ([`Augment::from_epoch`], [`Loader::size_buckets`](crate::Loader::size_buckets)), the loader
    /// calls this method for each size. The results may differ only in the lengths of the axes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if an option is invalid.
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>>;

    /// Writes the row of a sample. The implementation must write every byte, because the row may
    /// contain data of an earlier batch.
    ///
    /// # Errors
    /// An implementation may return any error. The loader adds the index and the key of the sample.
    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()>;

    /// Returns the names of the sample's fields that [`write`](FieldType::write) reads for a batch
    /// field called `name`. The names may omit the suffix of an encoding, such as `.npy`. Opening
    /// the loader fails if the source [lists its fields](crate::source::Source::fields) and a name
    /// is not in the list. Names with the extension of an image format are not checked. By default,
    /// the list is empty, and the loader assumes that `write` may read any field.
    fn required_fields(&self, name: &str) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// Returns whether the field contains coordinates or pixels that must be cropped and flipped
    /// together with the sample's image. The loader cannot be opened with both such a field and
    /// MixUp, CutMix, a border that repeats pixels, or a custom transform that may move pixels. It
    /// cannot be opened either if [`Input::plan`] would be `None`. The default is false.
    fn follows_image(&self) -> bool {
        false
    }

    /// Returns whether [`write`](FieldType::write) itself decodes the sample's image, to deliver
    /// the stored values. If this is true and there is no image field, the loader reads only the
    /// header of the image, because the plan depends on the size. The loader then rejects color
    /// augmentations and image options such as [`Loader::normalize`](crate::Loader::normalize). The
    /// default is false.
    fn reads_stored_image(&self) -> bool {
        false
    }

    /// Returns whether the field supports a [`mosaic`](Augment::mosaic), which combines the images
    /// of several samples. If it does, [`write`](FieldType::write) must also handle the samples in
    /// [`Input::other_tiles`]. A loader that creates mosaics rejects fields that [follow the
    /// image](FieldType::follows_image) but do not support mosaics. The default is false.
    fn supports_mosaic(&self) -> bool {
        false
    }

    /// Returns the role that the field plays when objects from another sample are pasted into the
    /// image ([`Augment::copy_paste`]). The default is [`PasteRole::Unsupported`]. A field type
    /// that wraps [`Boxes`](super::Boxes) or [`Mask`](super::Mask) must return the role of the
    /// wrapped type.
    fn paste_role(&self) -> PasteRole<'_> {
        PasteRole::Unsupported
    }

    /// Returns whether [`write`](FieldType::write) does little more than copy bytes. If it does,
    /// its time counts toward the `write` stage in [`Stats`](crate::Stats). Otherwise, the field
    /// has its own stage in [`Stats::fields`](crate::Stats::fields). The default is false.
    fn write_is_cheap(&self) -> bool {
        false
    }

    /// Writes the row from an array in memory, as a fast path without a [`Sample`]. The loader
    /// calls this method only if the loader has no other field, if this field is [cheap to
    /// write](FieldType::write_is_cheap), if the source lists a single field and this field reads
    /// it, and if the source has the sample's `numbers` in [memory](crate::source::Source::stored).
    /// The method must either write the same bytes as [`write`](FieldType::write) and return true,
    /// or return false. If it returns false, the loader calls `write`. The default returns false.
    fn write_stored(&self, numbers: Numbers<'_>, row: &mut RowMut<'_>) -> bool {
        let _ = (numbers, row);
        false
    }

    /// Returns the number of bytes that [`write`](FieldType::write) allocates for a sample. The
    /// default is 0. A worker waits until this much of the scratch memory in the [memory
    /// plan](crate::MemoryPlan) is free before it calls `write`. The loader does not call this
    /// method for field types that are [cheap to write](FieldType::write_is_cheap).
    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        let _ = input;
        0
    }

    /// Returns the writer of the field: [`write`](FieldType::write), the default, or one of the
    /// loader's built-in writers. A field type that wraps a built-in type must return the writer of
    /// the wrapped type.
    fn writer(&self) -> FieldWriter<'_> {
        FieldWriter::Write
    }

    /// Returns the augmentation of a view, which is an image field with its own augmentation, size
    /// and random numbers ([`Image::augment`](super::Image::augment)). The default is `None`: an
    /// image field then uses the loader's augmentation.
    fn augment(&self) -> Option<&Augment> {
        None
    }

    /// Returns the number of frames T if the field has a value for each frame of a
    /// [clip](super::Image::frames). By default, the field has one value per sample.
    ///
    /// If the field's [writer](FieldType::writer) is [`write`](FieldType::write), the loader adds
    /// an axis of length T after the batch axis of all its arrays, and calls `write` once per
    /// frame. In each call, `row` covers only one frame, and each field of the sample that
    /// [`required_fields`](FieldType::required_fields) lists contains only the value of this frame.
    fn frames(&self) -> Option<usize> {
        None
    }

    /// Returns the reader through which [`Augment::iou_crop`](crate::Augment::iou_crop) gets the
    /// field's boxes. By default, the field has no boxes.
    fn boxes(&self) -> Option<BoxReader> {
        None
    }
}

/// Determines whether the field type or the loader writes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldWriter<'a> {
    /// A worker calls [`FieldType::write`].
    Write,
    /// The loader decodes, augments and converts the image in the sample's field with this name.
    /// `None` stands for the first field with the extension of an image format, such as `jpg`. For
    /// batches on a device, the device converts the image, and may decode it
    /// ([`Loader::decode_on`](crate::Loader::decode_on)). The loader calls neither
    /// [`FieldType::describe_arrays`] nor [`FieldType::write`] of a type that wraps an image.
    Image(Option<&'a str>),
    /// The loader writes the sample's class and, if
    /// [`Loader::soft_labels`](crate::Loader::soft_labels) is set, its soft label.
    /// [`FieldType::describe_arrays`] and [`FieldType::write`] are not called.
    Class,
    /// Like `Write`, but the patches of all samples are concatenated without padding
    /// ([`Patches`](super::Patches)). [`FieldType::describe_arrays`] of a type that wraps `Patches`
    /// must return the arrays of the wrapped type.
    Patches,
}

/// Role of a field when objects of another sample are pasted into the image.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PasteRole<'a> {
    /// The field does not support pasting. A loader that pastes objects rejects the field if it
    /// [follows the image](FieldType::follows_image).
    Unsupported,
    /// The pasted objects are added to the field, for example their boxes or masks.
    Target,
    /// The field's masks define the pixels that are pasted. The pasted objects are also added to
    /// the field.
    Source(&'a dyn Objects),
}

#[derive(Clone, Copy)]
pub(crate) struct ImageContext<'a> {
    pub(crate) plan: Option<&'a Plan>,
    /// The other samples that contribute to the image, which are the tiles of a mosaic except the
    /// first one, or the sample with the objects to paste.
    pub(crate) tiles: &'a [Tile<'a>],
    /// The objects that are pasted from the first of `tiles`.
    pub(crate) pasted: Option<&'a Pasted>,
}

/// The input of [`FieldType::write`], which consists of a sample and the plan of its image.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Input<'a> {
    /// Name of the field.
    pub name: &'a str,
    /// The sample as the source returned it. If the field type has [frames](FieldType::frames), the
    /// fields in [`required_fields`](FieldType::required_fields) contain the value of one frame.
    pub sample: &'a Sample<'a>,
    /// Plan of the sample's image, with the output size, crop, flips and other steps. If the loader
    /// has several image fields, this is the plan of the first image field that uses the loader's
    /// augmentation. `None` if all image fields are views, or if the loader has neither an image
    /// field nor a field that [reads the stored image](FieldType::reads_stored_image).
    pub plan: Option<&'a Plan>,
    tiles: &'a [Tile<'a>],
    pasted: Option<&'a Pasted>,
    rng: Rng,
    settings: DecodeSettings<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeSettings<'a> {
    pub(crate) codecs: &'a Codecs,
    pub(crate) is_strict: bool,
}

/// One of several samples that are combined into one image, such as a mosaic.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Tile<'a> {
    /// Index of the sample in the source.
    pub index: u64,
    /// The sample as the source returned it.
    pub sample: &'a Sample<'a>,
    /// Plan of the sample's image.
    pub plan: &'a Plan,
}

impl Tile<'_> {
    pub(super) fn at_sample(&self, error: Error) -> Error {
        error.at_sample(self.index, self.sample.key())
    }
}

impl<'a> Input<'a> {
    pub(crate) fn new(
        name: &'a str,
        sample: &'a Sample<'a>,
        ImageContext { plan, tiles, pasted }: ImageContext<'a>,
        rng: Rng,
        settings: DecodeSettings<'a>,
    ) -> Self {
        Input { name, sample, plan, tiles, pasted, rng, settings }
    }

    pub(super) fn with_sample<'b>(&self, sample: &'b Sample<'b>) -> Input<'b>
    where
        'a: 'b,
    {
        Input { sample, ..self.clone() }
    }

    /// Returns the random number generator from which the generators of the sample's fields are
    /// derived.
    pub(super) fn sample_rng(&self) -> &Rng {
        &self.rng
    }

    pub(super) fn settings(&self) -> DecodeSettings<'a> {
        self.settings
    }

    /// Returns all tiles of a [`mosaic`](Augment::mosaic) but the first, which `sample` and `plan`
    /// describe. Without a mosaic, the list is empty.
    pub fn other_tiles(&self) -> &'a [Tile<'a>] {
        if self.pasted.is_none() { self.tiles } else { &[] }
    }

    /// Returns the other tiles of a mosaic, or the sample with the objects to paste.
    pub(super) fn tiles(&self) -> &'a [Tile<'a>] {
        self.tiles
    }

    pub(super) fn pasted(&self) -> Option<&'a Pasted> {
        self.pasted
    }

    /// Returns a random number generator for this sample and field. Its numbers depend only on the
    /// seed, the sample, its [`variant`](crate::sampler::Occurrence::variant) (by default, the
    /// epoch), and the name of the field. Every call returns a new generator that produces the same
    /// numbers.
    pub fn rng(&self) -> Rng {
        self.rng.named(self.name)
    }

    /// Returns the plan of the image.
    ///
    /// # Panics
    /// If `plan` is `None`, which never happens if the field type follows the image.
    pub(super) fn image(&self) -> &'a Plan {
        self.plan.expect("a loader without images rejects field types that follow the image")
    }
}

/// The row of one sample, or of one frame of a clip, in the arrays of a field.
pub struct RowMut<'a> {
    row: Row<'a>,
    first_array: usize,
    array_count: usize,
    /// The index of the frame and the number of frames, if the row is restricted to one frame.
    frame: Option<(usize, usize)>,
}

impl<'a> RowMut<'a> {
    pub(crate) fn new(row: Row<'a>, first_array: usize, array_count: usize) -> Self {
        RowMut { row, first_array, array_count, frame: None }
    }

    pub(super) fn select_frame(&mut self, frame: usize, count: usize) -> &mut Self {
        self.frame = Some((frame, count));
        self
    }

    /// Returns the bytes of this row in the field's array with index `array`. Elements are in
    /// native byte order.
    ///
    /// # Panics
    /// If the field has no such array.
    pub fn bytes(&mut self, array: usize) -> &mut [u8] {
        assert!(array < self.array_count, "array {array}: the field has {} arrays", self.array_count);
        let bytes = self.row.bytes(self.first_array + array);
        let Some((frame, count)) = self.frame else { return bytes };
        let frame_bytes = bytes.len() / count;
        &mut bytes[frame * frame_bytes..][..frame_bytes]
    }

    pub(super) fn count_damaged_image(&mut self) {
        let meta = self.row.meta();
        // If the image must be decoded again, `damaged_images` is reset to `damaged_field_images`,
        // because the fields are not written a second time.
        (meta.damaged_images, meta.damaged_field_images) = (meta.damaged_images + 1, meta.damaged_field_images + 1);
    }

    pub(super) fn set_text(&mut self, name: &str, text: &str) {
        self.row.meta().set_text(name, text);
    }

    /// Sets whether the sample has a label. If the sample has no label, the error shows `advice`
    /// instead of the default text.
    pub(super) fn set_labeled(&mut self, has_label: bool, missing_label_cause: Option<&Arc<str>>) {
        let meta = self.row.meta();
        meta.has_label = has_label;
        meta.missing_label_cause = missing_label_cause.filter(|_| !has_label).cloned();
    }
}

impl Debug for RowMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowMut").field("arrays", &self.array_count).finish_non_exhaustive()
    }
}

/// A type-erased field type, which [`Loader::field`](crate::Loader::field) accepts. Each
/// [`FieldType`] can be converted to an `AnyFieldType`. The built-in field types can also be
/// deserialized from a map with one entry. The key is the name of the field type, such as `boxes`,
/// and the value is a map of the options.
#[derive(Debug, Clone)]
pub struct AnyFieldType(pub(crate) Arc<dyn FieldType>);

impl<K: FieldType + 'static> From<K> for AnyFieldType {
    fn from(kind: K) -> Self {
        AnyFieldType(Arc::new(kind))
    }
}
