//! Reads the numbers of a sample's field. The field is either a typed value, or bytes whose
//! encoding is given by the suffix of the field's name.

use std::cell::Cell;

use super::json;
use super::number::{Number, check_kept, put};
use crate::batch::{Dtype, Element};
use crate::error::{Error, Result};
use crate::source::{Npy, Shape};
use crate::source::{Sample, Value};

/// Suffixes of field names and the encodings they stand for, in the order in which they are tried.
const ENDS: [(&str, Encoding); 3] = [(".npy", Encoding::Npy), (".json", Encoding::Json), (".txt", Encoding::Text)];

/// Maximum size of scratch memory that is kept for reuse, in bytes.
pub(super) const KEPT: usize = 1 << 20;

/// Encoding of a field's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A little-endian array without a header.
    Raw,
    Npy,
    Json,
    Text,
    /// A typed value.
    Typed,
}

/// A field of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a> {
    /// Full name of the field, for error messages.
    pub(crate) name: &'a str,
    pub(crate) value: Value<'a>,
    /// Bytes of the value in memory.
    pub(crate) bytes: &'a [u8],
    pub(crate) encoding: Encoding,
}

impl<'a> Encoded<'a> {
    /// Creates the field `name`. If `value` is bytes, they have the encoding `encoding`. For a
    /// typed value, `encoding` is ignored.
    pub(crate) fn new(name: &'a str, value: Value<'a>, encoding: Encoding) -> Self {
        let encoding = match value {
            // Bytes that begin with NumPy's signature are an array with a header, whatever the
            // field is called.
            Value::Bytes(bytes) if encoding == Encoding::Raw && Npy::matches(bytes) => Encoding::Npy,
            Value::Bytes(_) => encoding,
            Value::Text(_) if encoding == Encoding::Raw => Encoding::Text,
            Value::Text(_) => encoding,
            _ => Encoding::Typed,
        };
        Encoded { name, value, bytes: value.memory(), encoding }
    }
}

/// Looks up the field of `sample` that the batch field `name` reads.
fn look<'a>(sample: &Sample<'a>, name: &str) -> Option<Encoded<'a>> {
    let fields = sample.fields();
    if let Some(&(name, value)) = fields.iter().find(|(have, _)| *have == name) {
        // In WebDataset, a sample's only array may be called just `npy`.
        let ends = |end: &str| name.ends_with(end) || name == &end[1..];
        let encoding = ENDS.iter().find(|(end, _)| ends(end)).map_or(Encoding::Raw, |(_, e)| *e);
        return Some(Encoded::new(name, value, encoding));
    }
    ENDS.iter().find_map(|&(end, encoding)| {
        let &(name, value) = fields.iter().find(|(have, _)| have.strip_prefix(name) == Some(end))?;
        Some(Encoded::new(name, value, encoding))
    })
}

/// Returns whether the sample has the field `name` in any encoding.
pub(crate) fn has(sample: &Sample<'_>, name: &str) -> bool {
    look(sample, name).is_some()
}

/// Finds the field of `sample` that the batch field `name` reads.
///
/// # Errors
/// If the sample has no such field. The message lists the sample's fields.
pub(crate) fn find<'a>(sample: &Sample<'a>, name: &str) -> Result<Encoded<'a>> {
    look(sample, name).ok_or_else(|| Error::in_source(format!("no field {name:?} among {:?}", sample.names())))
}

/// Appends the numbers of the sample's field `name` to `to`. Returns their shape. Text and arrays
/// without a header have one axis.
///
/// # Errors
/// If the sample has no such field, or if its bytes are not numbers of type `T`.
pub(crate) fn numbers<T: Element>(sample: &Sample<'_>, name: &str, to: &mut Vec<T>) -> Result<Shape> {
    let field = find(sample, name)?;
    field.with_numbers(T::DTYPE, |bytes, shape| {
        let size = size_of::<T>();
        if !bytes.len().is_multiple_of(size) {
            let found = bytes.len();
            return Err(field.error(format!("has {found} bytes, which is not a multiple of {size}")));
        }
        to.extend(bytes.chunks_exact(size).map(bytemuck::pod_read_unaligned::<T>));
        Ok(shape.cloned().unwrap_or_else(|| Shape::from_iter([bytes.len() / size])))
    })
}

impl Encoded<'_> {
    /// Calls `take` with the field's numbers as an array of `dtype` in native byte order, and with
    /// their shape. An array without a header is passed unchanged and without a shape.
    ///
    /// # Errors
    /// If the bytes are not numbers of this type. Also returns the errors of `take`.
    pub(crate) fn with_numbers<R>(
        &self,
        dtype: Dtype,
        take: impl FnOnce(&[u8], Option<&Shape>) -> Result<R>,
    ) -> Result<R> {
        self.with(dtype, put, take)
    }

    /// Like [`with_numbers`](Encoded::with_numbers), but fails if `dtype` would
    /// [change](check_kept) a number. Intended for numbers that must be exact, unlike image
    /// coordinates.
    pub(crate) fn with_kept_numbers<R>(
        &self,
        dtype: Dtype,
        take: impl FnOnce(&[u8], Option<&Shape>) -> Result<R>,
    ) -> Result<R> {
        let put = |number: Number<'_>, dtype, to: &mut Vec<u8>| {
            check_kept(number, dtype)?;
            put(number, dtype, to)
        };
        self.with(dtype, put, take)
    }

    fn with<R>(
        &self,
        dtype: Dtype,
        put: impl Fn(Number<'_>, Dtype, &mut Vec<u8>) -> Result<(), String>,
        take: impl FnOnce(&[u8], Option<&Shape>) -> Result<R>,
    ) -> Result<R> {
        thread_local! {
            static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
        }
        if self.encoding == Encoding::Raw {
            return take(self.bytes, None);
        }
        let is_array = matches!(self.encoding, Encoding::Npy | Encoding::Typed);
        let npy = is_array.then(|| self.npy()).transpose()?;
        if let Some((npy, shape)) = npy.as_ref().filter(|(npy, _)| is_like(npy, dtype)) {
            return take(npy.data, Some(shape));
        }
        // If a panic or an error occurs, the scratch memory is lost, and the next call allocates it
        // again.
        let mut converted = SCRATCH.take();
        converted.clear();
        let shape = match (&npy, self.encoding) {
            (Some((npy, shape)), _) => self.convert(npy, shape, dtype, put, &mut converted)?,
            (None, Encoding::Json) => {
                json::numbers(self.bytes, |number| put(number, dtype, &mut converted)).map_err(|e| self.error(e))?
            }
            _ => self.text(dtype, put, &mut converted)?,
        };
        let taken = take(&converted, Some(&shape));
        if converted.capacity() <= KEPT {
            SCRATCH.set(converted);
        }
        taken
    }

    pub(crate) fn error(&self, cause: impl std::fmt::Display) -> Error {
        Error::in_source(format!("field {:?} {cause}", self.name))
    }

    /// Adds the field's name to an error.
    pub(crate) fn at_field(&self, e: &Error) -> Error {
        Error::in_source(format!("field {:?}: {}", self.name, e.cause()))
    }

    /// Returns an error about the number with index `place` in this field.
    fn at(&self, place: usize, cause: String) -> Error {
        self.error(format_args!("has {cause} as number {place}"))
    }

    /// Reads the array and its shape. Checks that the length of the data matches the shape.
    pub(super) fn npy(&self) -> Result<(Npy<'_>, Shape)> {
        if let Value::Numbers(numbers) = self.value {
            return Ok((Npy::of(numbers), numbers.sides().collect()));
        }
        if let Value::Lists(_) = self.value {
            return Err(self.error("contains lists of different lengths: expected an array"));
        }
        let npy = Npy::read(self.bytes).map_err(|e| self.error(format_args!("is not an array: {}", e.cause())))?;
        let known = matches!((npy.kind, npy.size), (b'u' | b'i', 1 | 2 | 4 | 8) | (b'f', 2 | 4 | 8) | (b'b', 1));
        let ordered = !npy.fortran || npy.shape.as_ref().is_some_and(|shape| shape.len() < 2);
        let Some(shape) = npy.shape.clone().filter(|_| known && ordered && self.bytes.starts_with(b"\x93NUMPY")) else {
            let cause = "expected booleans, integers or floats in C order";
            return Err(self.error(format_args!("is an npy of {}: {cause}", npy.shown())));
        };
        let claimed = shape.iter().try_fold(npy.size, |bytes, &axis| bytes.checked_mul(axis));
        if claimed != Some(npy.data.len()) {
            let (found, start) = (npy.data.len(), npy.start);
            let claimed = claimed.map_or("too many".to_owned(), |bytes| bytes.to_string());
            return Err(self.error(format_args!(
                "is an npy of shape {shape:?}: expected {claimed} bytes from byte {start} on, found {found}"
            )));
        }
        Ok((npy, shape))
    }

    fn convert(
        &self,
        npy: &Npy<'_>,
        shape: &Shape,
        dtype: Dtype,
        put: impl Fn(Number<'_>, Dtype, &mut Vec<u8>) -> Result<(), String>,
        to: &mut Vec<u8>,
    ) -> Result<Shape> {
        // `FieldType::memory` accounts for exactly this size, so the buffer must not be larger.
        to.reserve_exact(npy.data.len() / npy.size * dtype.bytes());
        let mut word = [0; 8];
        for (place, element) in npy.data.chunks_exact(npy.size).enumerate() {
            let word = &mut word[..npy.size];
            word.copy_from_slice(element);
            if npy.big_endian {
                word.reverse();
            }
            put(Number::of_bytes(npy.kind, word), dtype, to).map_err(|cause| self.at(place, cause))?;
        }
        Ok(shape.clone())
    }

    /// Reads numbers that are separated by spaces or commas.
    fn text(
        &self,
        dtype: Dtype,
        put: impl Fn(Number<'_>, Dtype, &mut Vec<u8>) -> Result<(), String>,
        to: &mut Vec<u8>,
    ) -> Result<Shape> {
        let text = std::str::from_utf8(self.bytes).map_err(|e| {
            let at = e.valid_up_to();
            self.error(format_args!("is not UTF-8 from byte {at} on"))
        })?;
        let mut count = 0;
        let listed = text.contains(',');
        for part in text.split(',') {
            if listed && part.trim().is_empty() {
                return Err(self.error(format_args!("has nothing between two commas as number {count}")));
            }
            for number in part.split_whitespace() {
                put(Number::Text(number), dtype, to).map_err(|cause| self.at(count, cause))?;
                count += 1;
            }
        }
        Ok(Shape::from_iter([count]))
    }
}

/// Returns whether the array's data is already in the format of `dtype`, so that it needs no
/// conversion.
pub(super) fn is_like(npy: &Npy<'_>, dtype: Dtype) -> bool {
    let kind = match dtype {
        Dtype::U8 | Dtype::U16 => b'u',
        Dtype::F32 | Dtype::F64 | Dtype::F16 => b'f',
        Dtype::I16 | Dtype::I32 | Dtype::I64 => b'i',
        Dtype::Bf16 => return false,
    };
    (npy.kind, npy.size) == (kind, dtype.bytes()) && npy.big_endian == cfg!(target_endian = "big")
}

#[cfg(test)]
#[path = "encoded/tests.rs"]
mod tests;
