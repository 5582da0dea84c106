//! [`Column`], a batch array with one number per box, such as the box's class.

use arrayvec::ArrayVec;

use super::encoded;
use super::number::{Number, append_number};
use crate::batch::Dtype;
use crate::error::{Error, Result};
use crate::source::Sample;

const CLASS: &str = "class";

#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) dtype: Dtype,
}

impl Column {
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if ["", "count", "masks", "points", "units", "image_size"].contains(&&*self.name) {
            return Err(format!("column {:?}: this name is reserved", self.name));
        }
        match self.dtype.integer_range() {
            None if self.name == CLASS => {
                Err(format!("column \"class\" has the type {}: expected an integer type", self.dtype.name()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn padding(&self) -> u8 {
        let signed = self.dtype.integer_range().is_some_and(|(min, _)| min < 0);
        if signed { 0xff } else { 0 }
    }

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
        let (element_bytes, is_class) = (self.dtype.bytes(), self.name == CLASS);
        // The loader may renumber classes, so the original class numbers need not fit into `dtype`.
        let read_dtype = if is_class { Dtype::I64 } else { self.dtype };
        field.with_numbers(read_dtype, |bytes, _| {
            if bytes.len() != box_count * read_dtype.bytes() {
                let actual = bytes.len() as f64 / read_dtype.bytes() as f64;
                return Err(field.error(format_args!("has {actual} numbers: expected {box_count}, one for each box")));
            }
            for (index, out) in indices.zip(out.chunks_exact_mut(element_bytes)) {
                let number = &bytes[index * read_dtype.bytes()..][..read_dtype.bytes()];
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
