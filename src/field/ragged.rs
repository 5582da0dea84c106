use super::encoded::{self, Encoded};
use super::number::{Number, put};
use super::{FieldType, Input, RowMut};
use crate::batch::{COUNT, Dtype, Element, Field};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::source::Shape;

/// A variable number of rows per sample, such as tokens, points or arbitrary bytes.
///
/// The sample's field is a little-endian array of rows without a header, or an `.npy`, `.json` or
/// `.txt` field of shape (n, row...); see [encodings](super). The batch field has `most` rows per
/// sample, (N, most, ...). Rows after the sample's last one are padding, 0 by default. A second
/// array, `<name>.count`, i64 of shape (N), contains the number of rows of each sample.
/// [`HostBatch::counts`](crate::HostBatch::counts) returns this array. The augmentation does not
/// change the rows, so use [`Boxes`](super::Boxes) for boxes, which must be cropped together with
/// the image. Both arrays are copied to a device unchanged.
///
/// ```no_run
/// use warpfeed::field::Ragged;
/// use warpfeed::{Dtype, Loader};
///
/// let mut batches = Loader::new("texts.tar")
///     .drop_field("image")
///     .drop_field("label")
///     .field("tokens", Ragged::new(Dtype::I64, [], 512).padding(-100_i64).truncated())
///     .host()?;
/// for batch in batches.epoch(0) {
///     let batch = batch?;
///     let tokens = batch.field("tokens").expect("the loader has it"); // (N, 512)
///     let counts = batch.counts("tokens").expect("and their numbers");
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "Given")]
pub struct Ragged {
    dtype: Dtype,
    row: Vec<usize>,
    most: usize,
    padding: Option<(Dtype, Vec<u8>)>,
    truncated: bool,
    /// Whether the field's bytes themselves are the rows, regardless of the suffix of the field's
    /// name.
    plain: bool,
}

impl Ragged {
    /// Creates a field with at most `most` rows per sample. Rows have the type `dtype` and the
    /// shape `row`; use `[]` for scalars.
    pub fn new(dtype: Dtype, row: impl Into<Vec<usize>>, most: usize) -> Self {
        Ragged { dtype, row: row.into(), most, padding: None, truncated: false, plain: false }
    }

    /// Creates a field that delivers at most `most` bytes per sample, exactly as stored: a text, or
    /// any file. `.npy`, `.json` and `.txt` fields are not decoded.
    pub fn bytes(most: usize) -> Self {
        Ragged { plain: true, ..Self::new(Dtype::U8, [], most) }
    }

    /// Sets the padding value, which must have the type of the rows. The default is 0.
    #[must_use]
    pub fn padding<T: Element>(mut self, value: T) -> Self {
        self.padding = Some((T::DTYPE, bytemuck::bytes_of(&value).to_vec()));
        self
    }

    /// Keeps only the first `most` rows of a sample that has more. By default, such a sample fails.
    #[must_use]
    pub fn truncated(mut self) -> Self {
        self.truncated = true;
        self
    }
}

/// Serialized form of the options. The padding is text because JSON has no NaN.
#[derive(serde::Deserialize)]
struct Given {
    dtype: Dtype,
    row: Vec<usize>,
    most: usize,
    padding: Option<String>,
    truncated: bool,
    plain: bool,
}

impl TryFrom<Given> for Ragged {
    type Error = String;

    fn try_from(given: Given) -> std::result::Result<Self, String> {
        let Given { dtype, row, most, padding, truncated, plain } = given;
        let bytes = |text: String| {
            let mut bytes = Vec::new();
            put(Number::Text(&text), dtype, &mut bytes)
                .map_err(|cause| format!("a padding of {}", cause.trim_end_matches(',')))?;
            Ok::<_, String>((dtype, bytes))
        };
        Ok(Ragged { dtype, row, most, padding: padding.map(bytes).transpose()?, truncated, plain })
    }
}

impl FieldType for Ragged {
    fn arrays(&self, name: &str, _output: Size) -> Result<Vec<Field>> {
        if self.most == 0 {
            return Err(Error::config(format!("field {name:?}: at most 0 rows: expected at least 1")));
        }
        if self.row.contains(&0) {
            return Err(Error::config(format!("field {name:?}: rows of shape {:?} are empty", self.row)));
        }
        if let Some((dtype, _)) = self.padding.as_ref().filter(|(dtype, _)| *dtype != self.dtype) {
            let (padding, rows) = (dtype.name(), self.dtype.name());
            return Err(Error::config(format!("field {name:?}: a padding of {padding} for rows of {rows}")));
        }
        let shape = std::iter::once(self.most).chain(self.row.iter().copied()).collect();
        Ok(vec![
            Field { name: name.to_owned(), dtype: self.dtype, shape },
            Field { name: format!("{name}{COUNT}"), dtype: Dtype::I64, shape: vec![] },
        ])
    }

    fn reads(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn copies(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        let field = encoded::find(input.sample, input.name)?;
        if self.plain {
            return self.put(&field, &field.value.encoded(field.name), None, place);
        }
        field.with_kept_numbers(self.dtype, |bytes, shape| self.put(&field, bytes, shape, place))
    }
}

impl Ragged {
    fn put(&self, field: &Encoded<'_>, bytes: &[u8], shape: Option<&Shape>, place: &mut RowMut<'_>) -> Result<()> {
        let to = place.bytes(0);
        let row = to.len() / self.most;
        // An array with one axis contains the rows one after another.
        if let Some(shape) = shape.filter(|shape| shape.len() > 1 && shape[1..] != self.row[..] && !bytes.is_empty()) {
            return Err(field.error(format_args!("has the shape {shape:?}: expected rows of {:?}", self.row)));
        }
        if !bytes.len().is_multiple_of(row) {
            let found = bytes.len();
            return Err(field.error(format_args!("has {found} bytes, which is not a multiple of the row's {row}")));
        }
        let found = bytes.len() / row;
        if found > self.most && !self.truncated {
            let (most, new) = (self.most, if self.plain { "Ragged::bytes(" } else { "Ragged::new(.., " });
            return Err(field.error(format_args!(
                "has {found} rows, but {new}{most}) keeps at most {most}: use {new}{found}) or more, or .truncated()"
            )));
        }
        let (rows, rest) = to.split_at_mut(bytes.len().min(to.len()));
        rows.copy_from_slice(&bytes[..rows.len()]);
        let count = (rows.len() / row) as i64;
        match &self.padding {
            None => rest.fill(0),
            Some((_, value)) => rest.chunks_exact_mut(value.len()).for_each(|to| to.copy_from_slice(value)),
        }
        place.bytes(1).copy_from_slice(&count.to_ne_bytes());
        Ok(())
    }
}
