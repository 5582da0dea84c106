//! [`ColumnValue`]: a column's value as the format stores it, before conversion.

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

/// A column's value in one row, as the format stores it. [`cell`](ColumnValue::cell) converts it to
/// a [`Cell`].
#[derive(Debug, Clone)]
pub(crate) enum ColumnValue<'a> {
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

impl<'a> ColumnValue<'a> {
    pub(crate) fn number(element: Element, data: RowBytes<'a>) -> Self {
        ColumnValue::Numbers { element, shape: ArrayVec::new(), data }
    }

    pub(crate) fn array(element: Element, shape: &[usize], data: RowBytes<'a>) -> Self {
        match shape.try_into() {
            Ok(shape) => ColumnValue::Numbers { element, shape, data },
            Err(_) => ColumnValue::TooManyAxes(shape.to_vec()),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ColumnValue::Null => "null",
            ColumnValue::Bytes(_) | ColumnValue::Path(_) => "bytes",
            ColumnValue::Text(_) => "text",
            ColumnValue::Json(_) => "a nested value",
            ColumnValue::Numbers { .. } | ColumnValue::TooManyAxes(_) => "numbers",
        }
    }

    pub(crate) fn map<'b>(self, f: impl FnOnce(RowBytes<'a>) -> RowBytes<'b>) -> ColumnValue<'b> {
        match self {
            ColumnValue::Null => ColumnValue::Null,
            ColumnValue::Bytes(bytes) => ColumnValue::Bytes(f(bytes)),
            ColumnValue::Text(text) => ColumnValue::Text(f(text)),
            ColumnValue::Json(json) => ColumnValue::Json(f(json)),
            ColumnValue::Numbers { element, shape, data } => ColumnValue::Numbers { element, shape, data: f(data) },
            ColumnValue::Path(path) => ColumnValue::Path(f(path)),
            ColumnValue::TooManyAxes(shape) => ColumnValue::TooManyAxes(shape),
        }
    }

    /// Reads the file if this value is a path. The path is relative to `root` and must stay below
    /// it unless `allows_outside_paths` is true.
    pub(crate) fn read_path(self, root: &Path, allows_outside_paths: bool, page: &mut Vec<u8>) -> Result<Self> {
        let ColumnValue::Path(path) = &self else { return Ok(self) };
        let path = utf8(path.resolve(page))?;
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
        Ok(ColumnValue::Bytes(RowBytes::page_tail(start, page)))
    }

    /// Converts a `u8` array to an image in the format [`NPY`](crate::format::NPY).
    #[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
    pub(crate) fn into_image(self, channels: Channels, colors: Colors, page: &mut Vec<u8>) -> Result<Self> {
        let start = page.len();
        match &self {
            ColumnValue::Null => return Ok(ColumnValue::Null),
            ColumnValue::Numbers { element: Element::U8, shape, data: RowBytes::Borrowed(pixels) } => {
                pixels::append(page, pixels, shape, channels, colors)?;
            }
            ColumnValue::Numbers { element: Element::U8, shape, data: RowBytes::Page(range) } => {
                let pixels = page[range.clone()].to_vec();
                pixels::append(page, &pixels, shape, channels, colors)?;
            }
            other => {
                let cause = format!("{}, but other samples have arrays of uint8", other.kind());
                return Err(Error::in_source(cause));
            }
        }
        Ok(ColumnValue::Bytes(RowBytes::page_tail(start, page)))
    }

    /// Converts the value to a cell, which may borrow from `page`. Fails if text is not UTF-8, or
    /// if an array has too many axes or a shape that does not match the number of bytes.
    ///
    /// # Panics
    /// If the value is a path. The format must [read](ColumnValue::read_path) the file first.
    pub(crate) fn cell<'p>(&self, page: &'p [u8]) -> Result<Cell<'p>>
    where
        'a: 'p,
    {
        Ok(match self {
            ColumnValue::Null => Cell::Null,
            ColumnValue::Bytes(bytes) => Cell::Bytes(bytes.resolve(page)),
            ColumnValue::Text(text) => Cell::Text(utf8(text.resolve(page))?),
            ColumnValue::Json(json) => Cell::Json(utf8(json.resolve(page))?),
            ColumnValue::Numbers { element, shape, data } => {
                let bytes = data.resolve(page);
                let numbers = Numbers::from_element(bytes, *element, shape);
                Cell::Numbers(numbers.ok_or_else(|| {
                    let count = counted(bytes.len(), "byte", "bytes");
                    Error::in_source(format!("the value of {count} does not match the shape {:?}", &shape[..]))
                })?)
            }
            ColumnValue::TooManyAxes(shape) => {
                return Err(Error::in_source(format!(
                    "an array of shape {shape:?} has too many axes; up to three are supported"
                )));
            }
            ColumnValue::Path(_) => unreachable!("the file is read first"),
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| Error::in_source(format!("the text is not UTF-8: {e}")))
}
