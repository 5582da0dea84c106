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

/// A kind of field: how a sample's bytes become its part of a batch.
///
/// Every field has a kind, including the built-in [`Image`](super::Image) and
/// [`Label`](super::Label). To add a kind, implement `arrays` and `write` for a type of your own. A
/// device gets the arrays unchanged.
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
    /// shapes for one sample. `output` is the size of the loader's images. It is called once for
    /// each size that images have in some epoch ([`Augment::from_epoch`]). Only the lengths of axes
    /// may depend on the size.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for options that cannot work.
    fn arrays(&self, name: &str, output: Size) -> Result<Vec<Field>>;

    /// Writes the sample's part of the field. It must write every byte of the place, which holds
    /// bytes of an earlier batch.
    ///
    /// # Errors
    /// Any. The loader adds the sample.
    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()>;

    /// Returns the names of the sample's fields that [`write`](FieldType::write) reads for a field called
    /// `name`, with or without the ending of an encoding. A loader does not open if its source
    /// [knows](crate::source::Source::fields) that it has no such field. By default nothing is
    /// checked, and a name that is missing is an error of each sample.
    fn reads(&self, name: &str) -> Vec<String> {
        let _ = name;
        Vec::new()
    }

    /// Whether the field's coordinates are those of the sample's image, so that the field is
    /// cropped and flipped with the image. Loaders without an image, and loaders that mix
    /// images, refuse such a field. False by default.
    fn follows_image(&self) -> bool {
        false
    }

    /// Whether the field shows the sample's image itself. A loader whose fields need no other
    /// image then opens the image only for its size, and refuses options that change images
    /// alone. False by default.
    fn shows_image(&self) -> bool {
        false
    }

    /// Whether [`write`](FieldType::write) takes all of [`Input::others`] too, so that the field can
    /// follow an image that shows several, a [`mosaic`](Augment::mosaic). A loader that makes
    /// mosaics refuses other kinds that follow the image. False by default.
    fn joins_images(&self) -> bool {
        false
    }

    /// Part of the field in an image into which objects of another sample are pasted
    /// ([`Augment::copy_paste`]). A loader that pastes refuses kinds that follow the image and
    /// have none, which is the default. A kind that wraps [`Boxes`](super::Boxes) or [`Mask`](super::Mask), and
    /// gives it the whole input, returns that of the wrapped kind.
    fn pastes(&self) -> PasteRole<'_> {
        PasteRole::Not
    }

    /// Whether [`write`](FieldType::write) does little more than copy bytes. Its time then counts as
    /// `write` in [`Stats`](crate::Stats). Otherwise the field has a stage of its own in
    /// [`Stats::fields`](crate::Stats::fields). False by default.
    fn copies(&self) -> bool {
        false
    }

    /// Returns the bytes of memory that [`write`](FieldType::write) needs for a sample, apart from its
    /// place; 0 by default. The worker takes them from the scratch memory of the [memory
    /// plan](crate::MemoryPlan), and waits until they are available. It is not called for a kind
    /// that [copies](FieldType::copies).
    fn memory(&self, input: &Input<'_>) -> u64 {
        let _ = input;
        0
    }

    /// Returns the maker of the field. By default this is [`write`](FieldType::write), on a worker. A
    /// kind may leave the field to the loader, which can also use the device.
    fn maker(&self) -> FieldWriter<'_> {
        FieldWriter::Write
    }

    /// Returns the augmentation of an image that has its own size and draws
    /// ([`Image::augment`](super::Image::augment)). By default an image has the loader's.
    fn augment(&self) -> Option<&Augment> {
        None
    }

    /// Returns how to read the field's boxes, for [`Augment::iou_crop`](crate::Augment::iou_crop).
    /// By default the field has no boxes.
    fn boxes(&self) -> Option<BoxReader> {
        None
    }
}

/// Maker of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldWriter<'a> {
    /// [`FieldType::write`], on a worker. A device gets a copy of the arrays.
    Write,
    /// The loader, which decodes, augments and converts an image: the sample's field of this name,
    /// or the first one that is named after an image format. For batches on a device, the device
    /// converts the image, and decodes it as [`Loader::decode_on`](crate::Loader::decode_on)
    /// says. [`FieldType::arrays`] and [`FieldType::write`] are not called.
    Image(Option<&'a str>),
    /// The loader, which writes the sample's class.
    /// [`Loader::soft_labels`](crate::Loader::soft_labels) turns the class into a row of shares;
    /// for batches on a device, this happens there. [`FieldType::arrays`] and [`FieldType::write`] are not
    /// called.
    Class,
}

/// Part of a field in an image into which objects of another sample are pasted.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PasteRole<'a> {
    /// None: the field does not change.
    Not,
    /// The field shows the pasted objects.
    Shows,
    /// The field shows the pasted objects, and its masks say which pixels they have.
    Gives(&'a dyn Objects),
}

/// The plan of the image that fields follow, the further images that it shows, and the objects
/// that are pasted from the first of those, if they are pasted.
pub(crate) type Shown<'a> = (Option<&'a Plan>, &'a [Tile<'a>], Option<&'a Pasted>);

/// A sample on its way into a field.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Input<'a> {
    /// Name of the field.
    pub name: &'a str,
    /// The sample as the source returned it.
    pub sample: &'a Sample<'a>,
    /// Plan of the sample's image, with its size, its visible part and its flip. If a sample has
    /// several images, this is the plan of the first without an augmentation of its own. `None`
    /// in a loader without such an image.
    pub plan: Option<&'a Plan>,
    others: &'a [Tile<'a>],
    pasted: Option<&'a Pasted>,
    rng: Rng,
}

/// A sample and the plan of its image, which is a part of an image.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Tile<'a> {
    /// Index in the source.
    pub index: u64,
    /// The sample as the source returned it.
    pub sample: &'a Sample<'a>,
    /// Plan of its image.
    pub plan: &'a Plan,
}

impl Tile<'_> {
    /// Says that an error belongs to this sample.
    pub(super) fn blame(&self, error: Error) -> Error {
        error.at_sample(self.index, self.sample.key())
    }
}

impl<'a> Input<'a> {
    /// `rng` is that of the sample, and `others` are the further images that the image shows.
    pub(crate) fn new(name: &'a str, sample: &'a Sample<'a>, (plan, others, pasted): Shown<'a>, rng: Rng) -> Self {
        Input { name, sample, plan, others, pasted, rng }
    }

    /// The further images that the image shows if it is a [`mosaic`](Augment::mosaic), each with
    /// its sample; otherwise none. `sample` and `plan` are those of the first image.
    pub fn others(&self) -> &'a [Tile<'a>] {
        if self.pasted.is_none() { self.others } else { &[] }
    }

    /// The further images of a mosaic, or the one whose objects are pasted.
    pub(super) fn tiles(&self) -> &'a [Tile<'a>] {
        self.others
    }

    /// The objects that are pasted into the image, if any may be.
    pub(super) fn pasted(&self) -> Option<&'a Pasted> {
        self.pasted
    }

    /// Returns the random numbers of the sample for this field: a function of (seed, epoch, sample,
    /// name of the field). They do not depend on workers, ranks or other fields. Each call returns
    /// the same numbers.
    pub fn rng(&self) -> Rng {
        self.rng.named(self.name)
    }

    /// The plan, for a kind that follows the image.
    pub(super) fn image(&self) -> &'a Plan {
        self.plan.expect("a loader without an image refuses kinds that follow it")
    }
}

/// One sample's place in the arrays of a field.
pub struct RowMut<'a> {
    row: Row<'a>,
    first: usize,
    arrays: usize,
}

impl<'a> RowMut<'a> {
    /// The place in `arrays` arrays from span `first` on.
    pub(crate) fn new(row: Row<'a>, first: usize, arrays: usize) -> Self {
        RowMut { row, first, arrays }
    }

    /// The sample's bytes in array number `array` of the field, in the machine's byte order. The
    /// shape of the array sets their number.
    ///
    /// # Panics
    /// If the field has no such array.
    pub fn bytes(&mut self, array: usize) -> &mut [u8] {
        assert!(array < self.arrays, "array {array} of a field of {}", self.arrays);
        self.row.bytes(self.first + array)
    }

    /// Delivers `text` as the sample's text of the field `name`.
    pub(super) fn set_text(&mut self, name: &str, text: &str) {
        self.row.meta().set_text(name, text);
    }

    /// Notes whether the sample has a label, and what to do if it has none.
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

/// A field's kind, as [`Loader::field`](crate::Loader::field) takes it. It is made from any
/// [`FieldType`]. `serde` reads a built-in kind from a map of its name to all its options.
#[derive(Debug, Clone)]
pub struct FieldKind(pub(crate) Arc<dyn FieldType>);

impl<K: FieldType + 'static> From<K> for FieldKind {
    fn from(kind: K) -> Self {
        FieldKind(Arc::new(kind))
    }
}
