use std::fmt::Debug;
use std::sync::Arc;

use super::{Image, Label};
use crate::batch::{Field, Row};
use crate::decode::{Oriented, Size};
use crate::error::Result;
use crate::source::Sample;
use crate::transform::Plan;

/// A kind of field: how a sample's bytes become its part of a batch.
///
/// [`Numbers`](super::Numbers) and [`Rows`](super::Rows) implement it. A kind of your own is one
/// more type that implements it. Its arrays are copied to a device unchanged.
///
/// ```
/// use warpfeed::batch::{Dtype, Field};
/// use warpfeed::decode::Size;
/// use warpfeed::field::{Kind, Place};
/// use warpfeed::source::Sample;
/// use warpfeed::transform::Plan;
///
/// /// The number of bytes of the sample's caption.
/// #[derive(Debug)]
/// struct Length;
///
/// impl Kind for Length {
///     fn arrays(&self, name: &str, _: Size) -> warpfeed::Result<Vec<Field>> {
///         Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![] }])
///     }
///
///     fn write(
///         &self,
///         _: &str,
///         sample: &Sample<'_>,
///         _: Option<&Plan>,
///         place: &mut Place<'_>,
///     ) -> warpfeed::Result<()> {
///         let length = sample.field("txt").map_or(0, |text| text.len()) as i64;
///         place.bytes(0).copy_from_slice(&length.to_ne_bytes());
///         Ok(())
///     }
/// }
/// # let loader = warpfeed::Loader::new("set").field("length", Length);
/// ```
pub trait Kind: Send + Sync + Debug {
    /// The arrays of a field called `name` in a batch: their names, element types and shapes for
    /// one sample. `output` is the size of the loader's pictures.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for options that cannot work.
    fn arrays(&self, name: &str, output: Size) -> Result<Vec<Field>>;

    /// Whether the field lies in the coordinates of the sample's picture, so that it is cropped and
    /// flipped with it. A loader without a picture, and one that mixes pictures, refuses such a
    /// field. The default is no.
    fn follows_picture(&self) -> bool {
        false
    }

    /// Whether [`write`](Kind::write) hardly does more than copy bytes. Its time then counts as
    /// `write` in [`Stats`](crate::Stats), otherwise as `decode`. The default is no.
    fn copies(&self) -> bool {
        false
    }

    /// Whether the samples have boxes that [`Augment::iou_crop`](crate::Augment::iou_crop) can see.
    /// The default is no.
    fn has_boxes(&self) -> bool {
        false
    }

    /// Appends the boxes of `sample` to `to`: (x1, y1, x2, y2) in pixels of its upright `picture`.
    /// [`Oriented::frame`] turns boxes of the stored one. It is called before the plan is made, and
    /// only for [`Augment::iou_crop`](crate::Augment::iou_crop).
    ///
    /// # Errors
    /// Any. The loader adds the sample.
    fn boxes(&self, name: &str, sample: &Sample<'_>, picture: Oriented, to: &mut Vec<[f32; 4]>) -> Result<()> {
        let _ = (name, sample, picture, to);
        Ok(())
    }

    /// Writes the part of `sample` in the field called `name`. It must write every byte of the
    /// place, which holds bytes of an earlier batch.
    ///
    /// `plan` says what is done to the sample's picture: its original size, the part that is taken,
    /// the flip. With several pictures it is that of the first. It is `None` in a loader without a
    /// picture.
    ///
    /// # Errors
    /// Any. The loader adds the sample.
    fn write(&self, name: &str, sample: &Sample<'_>, plan: Option<&Plan>, place: &mut Place<'_>) -> Result<()>;
}

/// One sample's place in the arrays of a field.
pub struct Place<'a> {
    row: Row<'a>,
    first: usize,
    arrays: usize,
}

impl<'a> Place<'a> {
    /// The place in `arrays` arrays from span `first` on.
    pub(crate) fn new(row: Row<'a>, first: usize, arrays: usize) -> Self {
        Place { row, first, arrays }
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
}

impl Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("arrays", &self.arrays).finish_non_exhaustive()
    }
}

/// A field's kind, as [`Loader::field`](crate::Loader::field) takes it. It is made from an
/// [`Image`], a [`Label`], or any [`Kind`].
#[derive(Debug, Clone)]
pub struct FieldKind(pub(crate) Inner);

#[derive(Debug, Clone)]
pub(crate) enum Inner {
    Image(Image),
    Label(Label),
    Other(Arc<dyn Kind>),
}

impl From<Image> for FieldKind {
    fn from(image: Image) -> Self {
        FieldKind(Inner::Image(image))
    }
}

impl From<Label> for FieldKind {
    fn from(label: Label) -> Self {
        FieldKind(Inner::Label(label))
    }
}

impl<K: Kind + 'static> From<K> for FieldKind {
    fn from(kind: K) -> Self {
        FieldKind(Inner::Other(Arc::new(kind)))
    }
}
