//! Reads a numeric field of a sample. The suffix of the field's name determines the encoding of
//! text and bytes. Without a suffix, text is a list of numbers, and bytes are an array with or
//! without NumPy's header.

use std::borrow::Cow;
use std::cell::Cell;

use super::json;
use super::number::{Number, append_number, check_exact};
use crate::batch::{Dtype, Element};
use crate::error::{Error, Result};
use crate::source::{Frames, Npy, Sample, Shape, Value};

/// The name suffixes of the encodings, in the order in which they are tried.
const SUFFIXES: [(&str, Encoding); 3] = [(".npy", Encoding::Npy), (".json", Encoding::Json), (".txt", Encoding::Text)];

/// Maximum size of a scratch buffer that is reused for the next field, in bytes. Larger buffers are
/// freed.
pub(super) const MAX_REUSED_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A little-endian array without a header.
    Raw,
    /// A NumPy array with a header.
    Npy,
    /// Nested lists of numbers.
    Json,
    /// Numbers separated by whitespace or commas.
    Text,
    /// A typed value, which is not encoded.
    Typed,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Value<'a>,
    pub(crate) bytes: &'a [u8],
    pub(crate) encoding: Encoding,
}

impl<'a> Encoded<'a> {
    /// Describes a field. `encoding` is the encoding that the field's name indicates. With `Raw`,
    /// bytes that begin with NumPy's signature are `Npy`, and text is `Text`. Typed values are
    /// `Typed`, whatever `encoding` is.
    pub(crate) fn new(name: &'a str, value: Value<'a>, encoding: Encoding) -> Self {
        let encoding = match value {
            // NumPy's signature identifies an array in a field without a suffix.
            Value::Bytes(bytes) if encoding == Encoding::Raw && Npy::matches(bytes) => Encoding::Npy,
            Value::Bytes(_) => encoding,
            Value::Text(_) if encoding == Encoding::Raw => Encoding::Text,
            Value::Text(_) => encoding,
            _ => Encoding::Typed,
        };
        Encoded { name, value, bytes: value.as_bytes(), encoding }
    }
}

fn find_optional<'a>(sample: &Sample<'a>, name: &str) -> Option<Encoded<'a>> {
    let fields = sample.fields();
    if let Some(&(name, value)) = fields.iter().find(|(have, _)| *have == name) {
        // In WebDataset, the name may be a bare suffix, such as `npy`.
        let has_suffix = |suffix: &str| name.ends_with(suffix) || name == &suffix[1..];
        let encoding = SUFFIXES.iter().find(|(suffix, _)| has_suffix(suffix)).map_or(Encoding::Raw, |(_, e)| *e);
        return Some(Encoded::new(name, value, encoding));
    }
    SUFFIXES.iter().find_map(|&(suffix, encoding)| {
        let &(name, value) = fields.iter().find(|(have, _)| have.strip_prefix(name) == Some(suffix))?;
        Some(Encoded::new(name, value, encoding))
    })
}

pub(crate) fn has_field(sample: &Sample<'_>, name: &str) -> bool {
    find_optional(sample, name).is_some()
}

pub(crate) fn find<'a>(sample: &Sample<'a>, name: &str) -> Result<Encoded<'a>> {
    find_optional(sample, name).ok_or_else(|| Error::in_source(format!("no field {name:?} among {:?}", sample.names())))
}

/// Appends the numbers of the sample's field `name` to `out`, and returns their shape. Text and
/// arrays without a header have one axis.
pub(crate) fn read_numbers<T: Element>(sample: &Sample<'_>, name: &str, out: &mut Vec<T>) -> Result<Shape> {
    let field = find(sample, name)?;
    field.with_numbers(T::DTYPE, |bytes, shape| {
        let size = size_of::<T>();
        if !bytes.len().is_multiple_of(size) {
            let actual = bytes.len();
            return Err(field.error(format!("has {actual} bytes: expected a multiple of {size}")));
        }
        out.extend(bytes.chunks_exact(size).map(bytemuck::pod_read_unaligned::<T>));
        Ok(shape.cloned().unwrap_or_else(|| Shape::from_iter([bytes.len() / size])))
    })
}

impl<'a> Encoded<'a> {
    /// Calls `consume` with the field's numbers, as `dtype` in native byte order, and with their
    /// shape. Arrays without a header have no shape.
    pub(crate) fn with_numbers<R>(
        &self,
        dtype: Dtype,
        consume: impl FnOnce(&[u8], Option<&Shape>) -> Result<R>,
    ) -> Result<R> {
        self.convert_numbers(dtype, append_number, consume)
    }

    /// Like [`with_numbers`](Encoded::with_numbers), but fails if [`check_exact`] rejects a number
    /// that is converted to `dtype`. Fields of image coordinates use `with_numbers` instead,
    /// because coordinates need not be exact.
    pub(crate) fn with_exact_numbers<R>(
        &self,
        dtype: Dtype,
        consume: impl FnOnce(&[u8], Option<&Shape>) -> Result<R>,
    ) -> Result<R> {
        let write = |number: Number<'_>, dtype, out: &mut Vec<u8>| {
            check_exact(number, dtype)?;
            append_number(number, dtype, out)
        };
        self.convert_numbers(dtype, write, consume)
    }

    fn convert_numbers<R>(
        &self,
        dtype: Dtype,
        write: impl Fn(Number<'_>, Dtype, &mut Vec<u8>) -> Result<(), String>,
        consume: impl FnOnce(&[u8], Option<&Shape>) -> Result<R>,
    ) -> Result<R> {
        thread_local! {
            static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        if self.encoding == Encoding::Raw {
            if Frames::matches(self.bytes) {
                return Err(
                    self.error("has a value for each frame of a clip: use the `frames` option of the field type")
                );
            }
            let is_swapped = cfg!(target_endian = "big") && dtype.bytes() > 1;
            return consume(&little_endian(self.bytes, dtype.bytes(), is_swapped), None);
        }
        let is_array = matches!(self.encoding, Encoding::Npy | Encoding::Typed);
        let npy = is_array.then(|| self.npy()).transpose()?;
        if let Some((npy, shape)) = npy.as_ref().filter(|(npy, _)| has_dtype(npy, dtype)) {
            return consume(npy.data, Some(shape));
        }
        // If an error or a panic ends this function, the buffer is freed.
        let mut converted = SCRATCH.take();
        converted.clear();
        let shape = match (&npy, self.encoding) {
            (Some((npy, shape)), _) => self.convert(npy, shape, dtype, write, &mut converted)?,
            (None, Encoding::Json) => json::parse_numbers(self.bytes, |number| write(number, dtype, &mut converted))
                .map_err(|e| self.error(e))?,
            _ => self.parse_text(dtype, write, &mut converted)?,
        };
        let result = consume(&converted, Some(&shape));
        if converted.capacity() <= MAX_REUSED_BYTES {
            SCRATCH.set(converted);
        }
        result
    }

    pub(crate) fn error(&self, cause: impl std::fmt::Display) -> Error {
        Error::in_source(format!("field {:?} {cause}", self.name))
    }

    pub(crate) fn at_field(&self, e: &Error) -> Error {
        Error::in_source(format!("field {:?}: {}", self.name, e.cause()))
    }

    fn element_error(&self, index: usize, cause: String) -> Error {
        self.at_field(&Error::in_source(format!("element {index} is {cause}")))
    }

    pub(super) fn npy(&self) -> Result<(Npy<'a>, Shape)> {
        if let Value::Numbers(numbers) = self.value {
            return Ok((Npy::from_numbers(numbers), numbers.dims().collect()));
        }
        if let Value::Lists(_) = self.value {
            return Err(self.error("contains lists of different lengths: expected an array"));
        }
        let npy = Npy::read(self.bytes).map_err(|e| self.error(format_args!("is not an array: {}", e.cause())))?;
        let is_supported =
            matches!((npy.kind, npy.item_size), (b'u' | b'i', 1 | 2 | 4 | 8) | (b'f', 2 | 4 | 8) | (b'b', 1));
        let is_c_order = !npy.fortran_order || npy.shape.as_ref().is_some_and(|shape| shape.len() < 2);
        let Some(shape) =
            npy.shape.clone().filter(|_| is_supported && is_c_order && self.bytes.starts_with(b"\x93NUMPY"))
        else {
            let cause = "expected booleans, integers or floats in C order";
            return Err(self.error(format_args!("is an .npy array of {}: {cause}", npy.header_for_message())));
        };
        let expected_bytes = shape.iter().try_fold(npy.item_size, |bytes, &axis| bytes.checked_mul(axis));
        if expected_bytes != Some(npy.data.len()) {
            let (actual, start) = (npy.data.len(), npy.data_offset);
            let Some(expected_bytes) = expected_bytes else {
                return Err(self.error(format_args!("is an .npy array of shape {shape:?}, which is too large")));
            };
            return Err(self.error(format_args!(
                "is an .npy array of shape {shape:?}: expected {expected_bytes} bytes of data after byte {start}, found \
                 {actual}"
            )));
        }
        Ok((npy, shape))
    }

    fn convert(
        &self,
        npy: &Npy<'_>,
        shape: &Shape,
        dtype: Dtype,
        write: impl Fn(Number<'_>, Dtype, &mut Vec<u8>) -> Result<(), String>,
        out: &mut Vec<u8>,
    ) -> Result<Shape> {
        // `DenseMap::scratch_bytes` counts exactly this size.
        out.reserve_exact(npy.data.len() / npy.item_size * dtype.bytes());
        let mut word = [0; 8];
        for (index, element) in npy.data.chunks_exact(npy.item_size).enumerate() {
            let word = &mut word[..npy.item_size];
            word.copy_from_slice(element);
            if npy.big_endian {
                word.reverse();
            }
            write(Number::from_bytes(npy.kind, word), dtype, out).map_err(|cause| self.element_error(index, cause))?;
        }
        Ok(shape.clone())
    }

    fn parse_text(
        &self,
        dtype: Dtype,
        write: impl Fn(Number<'_>, Dtype, &mut Vec<u8>) -> Result<(), String>,
        out: &mut Vec<u8>,
    ) -> Result<Shape> {
        let text = std::str::from_utf8(self.bytes).map_err(|e| {
            let offset = e.valid_up_to();
            self.error(format_args!("has invalid UTF-8 at byte {offset}"))
        })?;
        let mut count = 0;
        let has_commas = text.contains(',');
        for part in text.split(',') {
            if has_commas && part.trim().is_empty() {
                return Err(self
                    .error(format_args!("has no number at index {count}: expected one before and after each comma")));
            }
            for number in part.split_whitespace() {
                write(Number::Text(number), dtype, out).map_err(|cause| self.element_error(count, cause))?;
                count += 1;
            }
        }
        Ok(Shape::from_iter([count]))
    }
}

/// Converts little-endian elements of `size` bytes to native byte order, by reversing their bytes
/// if `is_swapped` is set.
fn little_endian(bytes: &[u8], size: usize, is_swapped: bool) -> Cow<'_, [u8]> {
    if !is_swapped {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(bytes.chunks(size).flat_map(|element| element.iter().rev().copied()).collect())
}

pub(super) fn has_dtype(npy: &Npy<'_>, dtype: Dtype) -> bool {
    let kind = match dtype {
        Dtype::U8 | Dtype::U16 => b'u',
        Dtype::F32 | Dtype::F64 | Dtype::F16 => b'f',
        Dtype::I16 | Dtype::I32 | Dtype::I64 => b'i',
        Dtype::Bf16 => return false,
    };
    (npy.kind, npy.item_size) == (kind, dtype.bytes()) && npy.big_endian == cfg!(target_endian = "big")
}

#[cfg(test)]
#[path = "encoded/tests.rs"]
mod tests;
