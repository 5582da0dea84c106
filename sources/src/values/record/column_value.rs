//! [`Found`]: a column's value as the format stores it, before conversion.

use std::path::Path;

use arrayvec::ArrayVec;

use super::cells::Cell;
use crate::error::{Error, Result, counted};
use crate::machine::file::{self, MAX_FILE, is_below};
use crate::model::Numbers;
use crate::model::value::{Element, MAX_NUMBERS_AXES};
use crate::storage::RowBytes;
#[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
use crate::values::pixels::{self, Channels, Colors};

/// A column's value in one row, as the format stores it. [`cell`](Found::cell) converts it to a
/// [`Cell`].
#[derive(Debug, Clone)]
pub(crate) enum Found<'a> {
    Null,
    Bytes(RowBytes<'a>),
    /// Text that may not be UTF-8.
    Text(RowBytes<'a>),
    Json(RowBytes<'a>),
    /// Numbers in native byte order. The shape must match the number of elements. A scalar has no
    /// axes.
    Numbers {
        element: Element,
        shape: ArrayVec<usize, MAX_NUMBERS_AXES>,
        data: RowBytes<'a>,
    },
    /// Path of the file that contains the value.
    Path(RowBytes<'a>),
    /// Numbers with more axes than a field supports.
    TooManyAxes(Vec<usize>),
}

impl<'a> Found<'a> {
    pub(crate) fn number(element: Element, data: RowBytes<'a>) -> Self {
        Found::Numbers { element, shape: ArrayVec::new(), data }
    }

    pub(crate) fn array(element: Element, shape: &[usize], data: RowBytes<'a>) -> Self {
        match shape.try_into() {
            Ok(shape) => Found::Numbers { element, shape, data },
            Err(_) => Found::TooManyAxes(shape.to_vec()),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Found::Null => "null",
            Found::Bytes(_) | Found::Path(_) => "bytes",
            Found::Text(_) => "text",
            Found::Json(_) => "a nested value",
            Found::Numbers { .. } | Found::TooManyAxes(_) => "numbers",
        }
    }

    pub(crate) fn map<'b>(self, f: impl FnOnce(RowBytes<'a>) -> RowBytes<'b>) -> Found<'b> {
        match self {
            Found::Null => Found::Null,
            Found::Bytes(bytes) => Found::Bytes(f(bytes)),
            Found::Text(text) => Found::Text(f(text)),
            Found::Json(json) => Found::Json(f(json)),
            Found::Numbers { element, shape, data } => Found::Numbers { element, shape, data: f(data) },
            Found::Path(path) => Found::Path(f(path)),
            Found::TooManyAxes(shape) => Found::TooManyAxes(shape),
        }
    }

    /// Reads the file if this value is a path. The path is relative to `root` and must stay below
    /// it unless `allows_outside_paths` is true.
    pub(crate) fn read_path(self, root: &Path, allows_outside_paths: bool, page: &mut Vec<u8>) -> Result<Self> {
        let Found::Path(path) = &self else { return Ok(self) };
        let path = utf8(path.of(page))?;
        if !allows_outside_paths && !is_below(path) {
            return Err(Error::in_source(format!(
                "the image is in a separate file, but {path:?} is not a relative path below {}; select the column with \
                 TableOptions::image to allow such paths",
                root.display()
            )));
        }
        let path = root.join(path);
        let start = page.len();
        let file = file::open(&path).map_err(|e| Error::io(&path, &e))?;
        file::append(file, page, MAX_FILE).map_err(|e| Error::io(&path, &e))?;
        Ok(Found::Bytes(RowBytes::since(start, page)))
    }

    /// Converts a `u8` array to an image in the format [`NPY`](crate::format::NPY).
    #[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
    pub(crate) fn image(self, channels: Channels, colors: Colors, page: &mut Vec<u8>) -> Result<Self> {
        let start = page.len();
        match &self {
            Found::Null => return Ok(Found::Null),
            Found::Numbers { element: Element::U8, shape, data: RowBytes::Borrowed(pixels) } => {
                pixels::append(page, pixels, shape, channels, colors)?;
            }
            Found::Numbers { element: Element::U8, shape, data: RowBytes::Page(range) } => {
                let pixels = page[range.clone()].to_vec();
                pixels::append(page, &pixels, shape, channels, colors)?;
            }
            other => {
                let cause = format!("{}, but other samples have arrays of uint8", other.kind());
                return Err(Error::in_source(cause));
            }
        }
        Ok(Found::Bytes(RowBytes::since(start, page)))
    }

    /// Converts the value to a cell, which may borrow from `page`. Fails if text is not UTF-8, or
    /// if an array has too many axes or a shape that does not match the number of bytes.
    ///
    /// # Panics
    /// If the value is a path. The format must [read](Found::read_path) the file first.
    pub(crate) fn cell<'p>(&self, page: &'p [u8]) -> Result<Cell<'p>>
    where
        'a: 'p,
    {
        Ok(match self {
            Found::Null => Cell::Null,
            Found::Bytes(bytes) => Cell::Bytes(bytes.of(page)),
            Found::Text(text) => Cell::Text(utf8(text.of(page))?),
            Found::Json(json) => Cell::Json(utf8(json.of(page))?),
            Found::Numbers { element, shape, data } => {
                let bytes = data.of(page);
                let numbers = Numbers::from_element(bytes, *element, shape);
                Cell::Numbers(numbers.ok_or_else(|| {
                    let count = counted(bytes.len(), "byte", "bytes");
                    Error::in_source(format!("the value of {count} does not match the shape {:?}", &shape[..]))
                })?)
            }
            Found::TooManyAxes(shape) => {
                return Err(Error::in_source(format!(
                    "an array of shape {shape:?} has too many axes; up to three are supported"
                )));
            }
            Found::Path(_) => unreachable!("the file is read first"),
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| Error::in_source(format!("the text is not UTF-8: {e}")))
}
