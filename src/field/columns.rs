//! One number per box.

use arrayvec::ArrayVec;

use super::encoded;
use super::number::{Number, put};
use crate::batch::Dtype;
use crate::error::Result;
use crate::source::Sample;

/// Name of the column with the numbers of classes.
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
    /// The cause in words.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if ["", "count", "masks", "points", "units", "image_size"].contains(&&*self.name) {
            return Err(format!("a column called {:?}; that name is taken", self.name));
        }
        match self.dtype.integers() {
            None if self.name == CLASS => Err(format!("classes of {}; they are integers", self.dtype.name())),
            _ => Ok(()),
        }
    }

    /// The bytes of the padding: -1 for signed integers, otherwise 0.
    pub(super) fn padding(&self) -> u8 {
        let signed = self.dtype.integers().is_some_and(|(least, _)| least < 0);
        if signed { 0xff } else { 0 }
    }

    /// Writes the numbers of the `kept` of `all` boxes, and nothing behind them, from the sample's
    /// field `name`.
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
        // Numbers of the dataset's classes may not fit `dtype`, though the loader's numbers do.
        let read = if is_class { Dtype::I64 } else { self.dtype };
        field.with_numbers(read, |bytes, _| {
            if bytes.len() != all * read.bytes() {
                let found = bytes.len() as f64 / read.bytes() as f64;
                return Err(field.error(format_args!("has {found} numbers, there are {all} boxes")));
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
