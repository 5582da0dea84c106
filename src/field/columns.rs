//! One number per box.

use super::encoded;
use crate::batch::Dtype;
use crate::error::Result;
use crate::source::Sample;

/// Name of the column with the numbers of classes.
const CLASS: &str = "class";

/// A batch array with one number per box.
#[derive(Debug, Clone)]
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
    fn padding(&self) -> u8 {
        let signed = self.dtype.integers().is_some_and(|(least, _)| least < 0);
        if signed { 0xff } else { 0 }
    }

    /// Writes the numbers of the `kept` of `all` boxes from the sample's field `name`.
    pub(super) fn write(
        &self,
        name: &str,
        sample: &Sample<'_>,
        all: usize,
        kept: impl Iterator<Item = usize>,
        to: &mut [u8],
    ) -> Result<()> {
        to.fill(self.padding());
        if all == 0 {
            return Ok(());
        }
        let field = encoded::find(sample, name)?;
        let (size, is_class) = (self.dtype.bytes(), self.name == CLASS);
        // Numbers of the data set's classes may not fit `dtype`, though the loader's numbers do.
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
                let (least, most) = self.dtype.integers().expect("checked when the loader was opened");
                if !(least..=most).contains(&class) {
                    let dtype = self.dtype.name();
                    let cause = format_args!("has class {class} for box {index}; {dtype} holds {least} to {most}");
                    return Err(field.error(cause));
                }
                put(class, self.dtype, to);
            }
            Ok(())
        })
    }
}

/// Writes `value`, which `dtype` can hold.
fn put(value: i64, dtype: Dtype, to: &mut [u8]) {
    match dtype {
        Dtype::U8 => to.copy_from_slice(&(value as u8).to_ne_bytes()),
        Dtype::U16 => to.copy_from_slice(&(value as u16).to_ne_bytes()),
        Dtype::I16 => to.copy_from_slice(&(value as i16).to_ne_bytes()),
        Dtype::I32 => to.copy_from_slice(&(value as i32).to_ne_bytes()),
        _ => to.copy_from_slice(&value.to_ne_bytes()),
    }
}
