use std::fmt::Debug;
use std::sync::Arc;

use super::corners::BoxReader;
use super::pasted::{Objects, Pasted};
use crate::batch::{Field, Row};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::sampler::Rng;
use crate::source::Sample;
use crate::transform::{Augment, Plan};

/// A field type defines how the bytes of a sample are converted to the sample's row in a batch.
///
/// Every field has a field type, including the built-in [`Image`](super::Image) and
/// [`Label`](super::Label). To add a field type, implement `arrays` and `write` for your own type.
/// Its arrays are copied to a device unchanged.
///
/// ```
/// use warpfeed::batch::{Dtype, Field};
/// use warpfeed::decode::Size;
/// use warpfeed::field::{Input, FieldType, RowMut};
///
/// /// The number of bytes of the sample's caption.
/// #[derive(Debug)]
/// struct Length;
///
/// impl FieldType for Length {
///     fn arrays(&self, name: &str, _: Size) -> warpfeed::Result<Vec<Field>> {
///         Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![] }])
///     }
///
///     fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> warpfeed::Result<()> {
///         let length = input.sample.field("txt").map_or(0, |text| text.len()) as i64;
///         place.bytes(0).copy_from_slice(&length.to_ne_bytes());
///         Ok(())
///     }
/// }
/// # let loader = warpfeed::Loader::new("set").field("length", Length);
/// ```
pub trait FieldType: Send + Sync + Debug {
    /// Returns the arrays of a field called `name` in a batch: their names, element types and
    /// shapes for one sample. `output` is the size of the loader's images. The loader calls this
    /// function once for each image size that occurs in any epoch ([`Augment::from_epoch`]). Only
    /// the lengths of axes may depend on the size.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if an option is invalid.
    fn arrays(&self, name: &str, output: Size) -> Result<Vec<Field>>;

    /// Writes the sample's row of the field. The implementation must write every byte, because the
    /// row still contains data from an earlier batch.
    ///
    /// # Errors
    /// Any error. The loader adds the index and key of the sample to the error.
    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()>;

    /// Returns the names of the sample's fields that [`write`](FieldType::write) reads for a field
    /// called `name`, with or without an encoding suffix. Opening a loader fails if its source
    /// [knows](crate::source::Source::fields) that one of these fields does not exist. By default,
    /// nothing is checked when the loader is opened, and each sample without the field fails.
    fn reads(&self, name: &str) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// Returns whether the field contains coordinates or pixels of the sample's image, so that it
    /// must be cropped and flipped together with the image. Loaders without an image, and loaders
    /// that mix images, reject such a field. The default is false.
    fn follows_image(&self) -> bool {
        false
    }

    /// Returns whether the field delivers the sample's image itself. If so, and if no other field
    /// needs an image, the loader opens the image only to determine its size, and rejects options
    /// that affect only images. The default is false.
    fn shows_image(&self) -> bool {
        false
    }

    /// Returns whether [`write`](FieldType::write) also handles all of [`Input::others`], so that
    /// the field supports images that combine several samples, such as a
    /// [`mosaic`](Augment::mosaic). A loader that creates mosaics rejects other field types that
    /// [follow the image](FieldType::follows_image). The default is false.
    fn joins_images(&self) -> bool {
        false
    }

    /// Returns the role of the field when objects from a different sample are pasted into the image
    /// ([`Augment::copy_paste`]). The default is [`PasteRole::Not`]. A loader that pastes objects
    /// rejects field types with this role that follow the image. A field type that wraps
    /// [`Boxes`](super::Boxes) or [`Mask`](super::Mask) and passes on the whole input must return
    /// the role of the wrapped field type.
    fn pastes(&self) -> PasteRole<'_> {
        PasteRole::Not
    }

    /// Returns whether [`write`](FieldType::write) does little more than copy bytes. If so, its
    /// time counts toward the stage `write` in [`Stats`](crate::Stats). Otherwise the field has its
    /// own stage in [`Stats::fields`](crate::Stats::fields). The default is false.
    fn copies(&self) -> bool {
        false
    }

    /// Returns how much memory [`write`](FieldType::write) needs for a sample in addition to the
    /// row, in bytes. The default is 0. The worker reserves this amount of the scratch memory in
    /// the [memory plan](crate::MemoryPlan), and waits until it is available. This function is not
    /// called for a field type that [copies](FieldType::copies).
    fn memory(&self, input: &Input<'_>) -> u64 {
        let _ = input;
        0
    }

    /// Returns how the field is written. By default, a worker calls [`write`](FieldType::write). A
    /// field type may instead let the loader write the field, which can use the device.
    fn maker(&self) -> FieldWriter<'_> {
        FieldWriter::Write
    }

    /// Returns the augmentation of a view, which has its own size and its own random numbers
    /// ([`Image::augment`](super::Image::augment)). By default, an image uses the loader's
    /// augmentation.
    fn augment(&self) -> Option<&Augment> {
        None
    }

    /// Returns how to read the field's boxes, for [`Augment::iou_crop`](crate::Augment::iou_crop).
    /// By default, the field has no boxes.
    fn boxes(&self) -> Option<BoxReader> {
        None
    }
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldWriter<'a> {
    /// By [`FieldType::write`], on a worker. A device gets a copy of the arrays.
    Write,
    /// By the loader, which decodes, augments and converts an image. The image is the sample's
    /// field of this name, or, with `None`, the first field that is named after an image format.
    /// For batches on a device, the device converts the image, and may also decode it, depending on
    /// [`Loader::decode_on`](crate::Loader::decode_on). [`FieldType::arrays`] and
    /// [`FieldType::write`] are not called.
    Image(Option<&'a str>),
    /// By the loader, which writes the sample's class. With
    /// [`Loader::soft_labels`](crate::Loader::soft_labels) it also writes soft labels. For batches
    /// on a device, the device computes the soft labels. [`FieldType::arrays`] and
    /// [`FieldType::write`] are not called.
    Class,
}

/// Role of a field when objects of a different sample are pasted into the image.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PasteRole<'a> {
    /// The field does not change.
    Not,
    /// The field shows the pasted objects.
    Shows,
    /// The field shows the pasted objects, and its masks define which pixels are pasted.
    Gives(&'a dyn Objects),
}

/// The plan of the image with which fields are transformed, the additional tiles of that image, and
/// the objects that are pasted from the first of these tiles, if any.
pub(crate) type Shown<'a> = (Option<&'a Plan>, &'a [Tile<'a>], Option<&'a Pasted>);

/// The input of [`FieldType::write`]: one sample.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Input<'a> {
    /// Name of the field.
    pub name: &'a str,
    /// The sample as the source returned it.
    pub sample: &'a Sample<'a>,
    /// Plan of the sample's image: its size, its visible part, its flips and other steps. If the
    /// sample has several images, this is the plan of the first image without a separate
    /// augmentation. `None` in a loader without such an image.
    pub plan: Option<&'a Plan>,
    others: &'a [Tile<'a>],
    pasted: Option<&'a Pasted>,
    rng: Rng,
}

/// A sample whose image is one tile of an output image.
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
    /// Adds this sample's index and key to an error.
    pub(super) fn blame(&self, error: Error) -> Error {
        error.at_sample(self.index, self.sample.key())
    }
}

impl<'a> Input<'a> {
    /// Creates the input. `rng` is the generator of the sample, and `others` are the additional
    /// tiles of the image.
    pub(crate) fn new(name: &'a str, sample: &'a Sample<'a>, (plan, others, pasted): Shown<'a>, rng: Rng) -> Self {
        Input { name, sample, plan, others, pasted, rng }
    }

    /// Returns the additional tiles of a [`mosaic`](Augment::mosaic), each with its sample, or an
    /// empty slice if the image is not a mosaic. `sample` and `plan` describe the first tile.
    pub fn others(&self) -> &'a [Tile<'a>] {
        if self.pasted.is_none() { self.others } else { &[] }
    }

    /// Returns the additional tiles of a mosaic, or the sample whose objects are pasted.
    pub(super) fn tiles(&self) -> &'a [Tile<'a>] {
        self.others
    }

    /// Returns the objects that are pasted into the image, or `None` if the loader does not paste.
    pub(super) fn pasted(&self) -> Option<&'a Pasted> {
        self.pasted
    }

    /// Returns a generator of random numbers for this sample and field. The numbers are a function
    /// of (seed, epoch, sample, name of the field), and do not depend on workers, ranks or other
    /// fields. Each call returns a generator of the same numbers.
    pub fn rng(&self) -> Rng {
        self.rng.named(self.name)
    }

    /// Returns the plan of the image, for a field type that follows the image.
    pub(super) fn image(&self) -> &'a Plan {
        self.plan.expect("a loader without images refuses field types that follow them")
    }
}

/// One sample's row in the arrays of a field.
pub struct RowMut<'a> {
    row: Row<'a>,
    first: usize,
    arrays: usize,
}

impl<'a> RowMut<'a> {
    /// Creates the row of a field that has `arrays` arrays, the first of which is in span `first`.
    pub(crate) fn new(row: Row<'a>, first: usize, arrays: usize) -> Self {
        RowMut { row, first, arrays }
    }

    /// Returns the sample's bytes in the field's array with index `array`. Elements are in native
    /// byte order, and their number is given by the shape of the array.
    ///
    /// # Panics
    /// If the field has no such array.
    pub fn bytes(&mut self, array: usize) -> &mut [u8] {
        assert!(array < self.arrays, "array {array} of a field of {}", self.arrays);
        self.row.bytes(self.first + array)
    }

    /// Sets the sample's text in the field `name` to `text`.
    pub(super) fn set_text(&mut self, name: &str, text: &str) {
        self.row.meta().set_text(name, text);
    }

    /// Records whether the sample has a label, and the advice to give in the error message if it
    /// has none.
    pub(super) fn set_labeled(&mut self, labeled: bool, advice: Option<&Arc<str>>) {
        let meta = self.row.meta();
        meta.labeled = labeled;
        meta.advice = advice.filter(|_| !labeled).cloned();
    }
}

impl Debug for RowMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowMut").field("arrays", &self.arrays).finish_non_exhaustive()
    }
}

/// A field type, as the argument of [`Loader::field`](crate::Loader::field). Any [`FieldType`] can
/// be converted into it. A built-in field type can be deserialized from a map of its name to a map
/// of all its options.
#[derive(Debug, Clone)]
pub struct FieldKind(pub(crate) Arc<dyn FieldType>);

impl<K: FieldType + 'static> From<K> for FieldKind {
    fn from(kind: K) -> Self {
        FieldKind(Arc::new(kind))
    }
}
