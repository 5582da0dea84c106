//! Batch arrays that contain one number per box, such as its class.

use arrayvec::ArrayVec;

use super::encoded;
use super::number::{Number, put};
use crate::batch::Dtype;
use crate::error::Result;
use crate::source::Sample;

/// Name of the column that contains the class of each box.
const CLASS: &str = "class";

/// A batch array with one number per box.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) dtype: Dtype,
}

impl Column {
    /// Checks the name and the type.
    ///
    /// # Errors
    /// If the name is reserved, or if the type is not valid for it. The error is the cause as text.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if ["", "count", "masks", "points", "units", "image_size"].contains(&&*self.name) {
            return Err(format!("column {:?}: this name is reserved", self.name));
        }
        match self.dtype.integers() {
            None if self.name == CLASS => {
                Err(format!("column \"class\" of {}: expected an integer type", self.dtype.name()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the byte that padding consists of. It makes the padding -1 for signed integers, and
    /// 0 for other types.
    pub(super) fn padding(&self) -> u8 {
        let signed = self.dtype.integers().is_some_and(|(least, _)| least < 0);
        if signed { 0xff } else { 0 }
    }

    /// Writes the numbers of the boxes in `kept`, which are some of the sample's `all` boxes, from
    /// the sample's field `name`. Does not write padding.
    pub(super) fn write(
        &self,
        name: &str,
        sample: &Sample<'_>,
        all: usize,
        kept: impl Iterator<Item = usize>,
        to: &mut [u8],
    ) -> Result<()> {
        if all == 0 {
            return Ok(());
        }
        let field = encoded::find(sample, name)?;
        let (size, is_class) = (self.dtype.bytes(), self.name == CLASS);
        // The dataset's class numbers may not fit into `dtype`, even if the numbers that the loader
        // assigns do.
        let read = if is_class { Dtype::I64 } else { self.dtype };
        field.with_numbers(read, |bytes, _| {
            if bytes.len() != all * read.bytes() {
                let found = bytes.len() as f64 / read.bytes() as f64;
                return Err(field.error(format_args!("has {found} numbers for {all} boxes")));
            }
            for (index, to) in kept.zip(to.chunks_exact_mut(size)) {
                let number = &bytes[index * read.bytes()..][..read.bytes()];
                if !is_class {
                    to.copy_from_slice(number);
                    continue;
                }
                let class = sample.class(bytemuck::pod_read_unaligned(number))?;
                let mut bytes = ArrayVec::<u8, 8>::new();
                put(Number::Whole(class.into()), self.dtype, &mut bytes)
                    .map_err(|cause| field.error(format_args!("has class {cause} for box {index}")))?;
                to.copy_from_slice(&bytes);
            }
            Ok(())
        })
    }
}
