//! [`NdArray`], an array with a fixed shape.

use super::encoded::{self, Encoded};
use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field};
use crate::decode::Size;
use crate::error::Result;
use crate::source::Shape;

/// An array that has the same shape in every sample, such as an embedding, an attribute vector or a
/// regression target.
///
/// The sample's field is a little-endian array of `dtype` and `shape` without a header, or an
/// `.npy`, `.json` or `.txt` field (see [encodings](super)). If an `.npy` or `.json` field has two
/// or more axes, its shape must be `shape`. Otherwise, only the number of elements must match. The
/// augmentation does not change the array. For batches on a device, the array is copied to the
/// device unchanged.
///
/// ```no_run
/// use warpfeed::field::NdArray;
/// use warpfeed::{Dtype, Loader};
///
/// let batches = Loader::new("train.lmdb")
///     .field("emb", NdArray::new(Dtype::F32, [768])) // (N, 768)
///     .field("weight", NdArray::new(Dtype::F32, [])) // (N)
///     .host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
pub struct NdArray {
    dtype: Dtype,
    shape: Vec<usize>,
}

impl NdArray {
    /// Creates a field of arrays of type `dtype`. `shape` is the shape of one sample, which is `[]`
    /// for a scalar.
    pub fn new(dtype: Dtype, shape: impl Into<Vec<usize>>) -> Self {
        NdArray { dtype, shape: shape.into() }
    }
}

impl FieldType for NdArray {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }])
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let (field, out) = (encoded::find(input.sample, input.name)?, row.bytes(0));
        field.with_exact_numbers(self.dtype, |bytes, shape| {
            self.check(&field, bytes.len(), shape, out.len())?;
            out.copy_from_slice(bytes);
            Ok(())
        })
    }
}

impl NdArray {
    fn check(
        &self,
        field: &Encoded<'_>,
        actual_bytes: usize,
        shape: Option<&Shape>,
        expected_bytes: usize,
    ) -> Result<()> {
        match shape {
            None if actual_bytes != expected_bytes => Err(field.error(format_args!(
                "has {actual_bytes} bytes, but its dtype and shape need {expected_bytes}; it is read as an array \
                 without a header, because its name does not end in npy, json or txt"
            ))),
            Some(_) if actual_bytes == 0 && expected_bytes > 0 => {
                let description = match &self.shape[..] {
                    [] => "a single number".to_owned(),
                    shape => format!("the shape {shape:?}"),
                };
                Err(field.error(format_args!(
                    "is empty: expected {description}; store a value such as nan if data is missing"
                )))
            }
            Some(shape) if actual_bytes != expected_bytes || (shape.len() > 1 && shape[..] != self.shape[..]) => {
                Err(field.error(format_args!("has the shape {shape:?}: expected {:?}", self.shape)))
            }
            _ => Ok(()),
        }
    }
}
