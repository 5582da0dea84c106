//! [`Ragged`], a variable number of rows per sample.

use super::encoded::{self, Encoded};
use super::number::{Number, append_number};
use super::{FieldType, Input, RowMut};
use crate::batch::{COUNT_SUFFIX, Dtype, Element, Field};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::source::Shape;

/// A variable number of rows per sample, such as tokens, points or the bytes of a file.
///
/// The sample's field is a little-endian array of rows without a header, or an `.npy`, `.json` or
/// `.txt` field of shape (n, row...) (see [encodings](super)). The batch array has the shape (N,
/// max_rows, ...), with [padding](Ragged::padding) after a sample's last row. A second array,
/// `<name>.count`, is i64 of shape (N) and contains the number of rows of each sample.
/// [`HostBatch::counts`](crate::HostBatch::counts) returns this array.
///
/// The augmentation does not change the rows. For boxes, which must be cropped together with the
/// image, use [`Boxes`](super::Boxes) instead. For batches on a device, both arrays are copied to
/// the device unchanged.
///
/// ```no_run
/// use warpfeed::field::Ragged;
/// use warpfeed::{Dtype, Loader};
///
/// let mut batches = Loader::new("texts.tar")
///     .drop_field("image")
///     .drop_field("label")
///     .field("tokens", Ragged::new(Dtype::I64, [], 512).padding(-100_i64).truncate())
///     .host()?;
/// for batch in batches.epoch(0) {
///     let batch = batch?;
///     let tokens = batch.field("tokens").expect("the loader has this field"); // (N, 512)
///     let counts = batch.counts("tokens").expect("the loader has this field");
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "SerializedOptions")]
pub struct Ragged {
    dtype: Dtype,
    row_shape: Vec<usize>,
    max_rows: usize,
    padding: Option<(Dtype, Vec<u8>)>,
    truncate: bool,
    /// Whether to deliver the stored bytes even if the name of the field has an encoding suffix.
    plain: bool,
}

impl Ragged {
    /// Creates a field with at most `max_rows` rows per sample. A row has type `dtype` and shape
    /// `row_shape`, which is `[]` for a scalar.
    pub fn new(dtype: Dtype, row_shape: impl Into<Vec<usize>>, max_rows: usize) -> Self {
        Ragged { dtype, row_shape: row_shape.into(), max_rows, padding: None, truncate: false, plain: false }
    }

    /// Creates a field that delivers the stored bytes of text or of any file. Each byte is a row,
    /// so a sample has at most `max_rows` bytes. `.npy`, `.json` and `.txt` fields are not decoded.
    pub fn bytes(max_rows: usize) -> Self {
        Ragged { plain: true, ..Self::new(Dtype::U8, [], max_rows) }
    }

    /// Sets the padding value, which must have the type of the rows. The default is 0.
    #[must_use]
    pub fn padding<T: Element>(mut self, value: T) -> Self {
        self.padding = Some((T::DTYPE, bytemuck::bytes_of(&value).to_vec()));
        self
    }

    /// Delivers only the first `max_rows` rows of a longer sample. By default, such a sample fails.
    #[must_use]
    pub fn truncate(mut self) -> Self {
        self.truncate = true;
        self
    }
}

/// The serialized form of [`Ragged`]. The padding is text, because JSON cannot represent NaN.
#[derive(serde::Deserialize)]
struct SerializedOptions {
    dtype: Dtype,
    row_shape: Vec<usize>,
    max_rows: usize,
    padding: Option<String>,
    truncate: bool,
    plain: bool,
}

impl TryFrom<SerializedOptions> for Ragged {
    type Error = String;

    fn try_from(options: SerializedOptions) -> std::result::Result<Self, String> {
        let SerializedOptions { dtype, row_shape, max_rows, padding, truncate, plain } = options;
        let parse_padding = |text: String| {
            let mut parse_padding = Vec::new();
            append_number(Number::Text(&text), dtype, &mut parse_padding)
                .map_err(|cause| format!("the padding is {cause}"))?;
            Ok::<_, String>((dtype, parse_padding))
        };
        Ok(Ragged { dtype, row_shape, max_rows, padding: padding.map(parse_padding).transpose()?, truncate, plain })
    }
}

impl FieldType for Ragged {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        if self.max_rows == 0 {
            return Err(Error::config(format!("field {name:?}: the maximum number of rows is 0: expected at least 1")));
        }
        if self.row_shape.contains(&0) {
            let cause = format!("rows have the shape {:?}: expected at least one element", self.row_shape);
            return Err(Error::config(format!("field {name:?}: {cause}")));
        }
        if let Some((dtype, _)) = self.padding.as_ref().filter(|(dtype, _)| *dtype != self.dtype) {
            let (padding, rows) = (dtype.name(), self.dtype.name());
            return Err(Error::config(format!(
                "field {name:?}: the padding has the type {padding}, but the rows have the type {rows}"
            )));
        }
        let shape = std::iter::once(self.max_rows).chain(self.row_shape.iter().copied()).collect();
        Ok(vec![
            Field { name: name.to_owned(), dtype: self.dtype, shape },
            Field { name: format!("{name}{COUNT_SUFFIX}"), dtype: Dtype::I64, shape: vec![] },
        ])
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, batch_row: &mut RowMut<'_>) -> Result<()> {
        let field = encoded::find(input.sample, input.name)?;
        if self.plain {
            return self.write_rows(&field, &field.value.encoded(field.name), None, batch_row);
        }
        field.with_exact_numbers(self.dtype, |bytes, shape| self.write_rows(&field, bytes, shape, batch_row))
    }
}

impl Ragged {
    fn write_rows(
        &self,
        field: &Encoded<'_>,
        bytes: &[u8],
        shape: Option<&Shape>,
        batch_row: &mut RowMut<'_>,
    ) -> Result<()> {
        let out = batch_row.bytes(0);
        let row_bytes = out.len() / self.max_rows;
        // An array with one axis may contain all rows one after the other.
        if let Some(shape) =
            shape.filter(|shape| shape.len() > 1 && shape[1..] != self.row_shape[..] && !bytes.is_empty())
        {
            return Err(
                field.error(format_args!("has the shape {shape:?}: expected rows of shape {:?}", self.row_shape))
            );
        }
        if !bytes.len().is_multiple_of(row_bytes) {
            let actual = bytes.len();
            return Err(field.error(format_args!("has {actual} bytes: expected {row_bytes} bytes for each row")));
        }
        let actual = bytes.len() / row_bytes;
        if actual > self.max_rows && !self.truncate {
            let (max_rows, constructor) =
                (self.max_rows, if self.plain { "Ragged::bytes(" } else { "Ragged::new(.., " });
            return Err(field.error(format_args!(
                "has {actual} rows, but {constructor}{max_rows}) allows at most {max_rows}: use \
                 {constructor}{actual}) or more, or .truncate()"
            )));
        }
        let (rows, padding_bytes) = out.split_at_mut(bytes.len().min(out.len()));
        rows.copy_from_slice(&bytes[..rows.len()]);
        let count = (rows.len() / row_bytes) as i64;
        match &self.padding {
            None => padding_bytes.fill(0),
            Some((_, value)) => {
                padding_bytes.chunks_exact_mut(value.len()).for_each(|out_row| out_row.copy_from_slice(value))
            }
        }
        batch_row.bytes(1).copy_from_slice(&count.to_ne_bytes());
        Ok(())
    }
}
