//! [`Column`]: an array of the batch that contains one number per box, such as its class.

use arrayvec::ArrayVec;

use super::encoded;
use super::number::{Number, append_number};
use crate::batch::Dtype;
use crate::error::{Error, Result};
use crate::source::Sample;

/// Name of the column that contains the classes of the boxes.
const CLASS: &str = "class";

/// An array of the batch with one number per box.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) dtype: Dtype,
}

impl Column {
    /// Checks the name and the type of the column.
    ///
    /// # Errors
    /// If the name is reserved, or if classes do not have an integer type. The error is the cause
    /// as text.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if ["", "count", "masks", "points", "units", "image_size"].contains(&&*self.name) {
            return Err(format!("column {:?}: this name is reserved", self.name));
        }
        match self.dtype.integers() {
            None if self.name == CLASS => {
                Err(format!("column \"class\" has the type {}: expected an integer type", self.dtype.name()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the byte that fills the padding of the array. The padding is -1 for signed integer
    /// types, and 0 for other types.
    pub(super) fn padding(&self) -> u8 {
        let signed = self.dtype.integers().is_some_and(|(min, _)| min < 0);
        if signed { 0xff } else { 0 }
    }

    /// Writes the numbers of the boxes in `indices` to `out`, without padding. The sample's field
    /// `name` contains the numbers of all `box_count` boxes.
    pub(super) fn write(
        &self,
        name: &str,
        sample: &Sample<'_>,
        box_count: usize,
        indices: impl Iterator<Item = usize>,
        out: &mut [u8],
    ) -> Result<()> {
        if box_count == 0 {
            return Ok(());
        }
        let field = encoded::find(sample, name)?;
        let (size, is_class) = (self.dtype.bytes(), self.name == CLASS);
        // The loader renumbers classes, so the dataset's own class numbers need not fit into
        // `dtype`.
        let read = if is_class { Dtype::I64 } else { self.dtype };
        field.with_numbers(read, |bytes, _| {
            if bytes.len() != box_count * read.bytes() {
                let actual = bytes.len() as f64 / read.bytes() as f64;
                return Err(field.error(format_args!("has {actual} numbers: expected {box_count}, one for each box")));
            }
            for (index, out) in indices.zip(out.chunks_exact_mut(size)) {
                let number = &bytes[index * read.bytes()..][..read.bytes()];
                if !is_class {
                    out.copy_from_slice(number);
                    continue;
                }
                let class = sample.class(bytemuck::pod_read_unaligned(number))?;
                let mut bytes = ArrayVec::<u8, 8>::new();
                append_number(Number::Whole(class.into()), self.dtype, &mut bytes)
                    .map_err(|cause| field.at_field(&Error::in_source(format!("box {index} has class {cause}"))))?;
                out.copy_from_slice(&bytes);
            }
            Ok(())
        })
    }
}
