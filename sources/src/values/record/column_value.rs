use std::path::Path;

use arrayvec::ArrayVec;

use super::cells::Cell;
use crate::error::{Error, Result};
use crate::machine::file::{self, MAX_FILE, is_below};
use crate::medium::Part;
use crate::model::Numbers;
use crate::model::value::{AXES, Element};
#[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
use crate::values::pixels::{self, Channels, Colors};

/// The value of one column in one row, as a format finds it.
#[derive(Debug, Clone)]
pub(crate) enum Found<'a> {
    /// The row has no value.
    Null,
    Bytes(Part<'a>),
    /// UTF-8, which [`cell`](Found::cell) checks.
    Text(Part<'a>),
    /// JSON text.
    Json(Part<'a>),
    /// Numbers in the machine's byte order, as many as the shape says. One number has no axes.
    Numbers {
        element: Element,
        shape: ArrayVec<usize, AXES>,
        data: Part<'a>,
    },
    /// Path of the file that has the value, in UTF-8.
    Path(Part<'a>),
    /// Numbers with more axes than a field can have.
    TooManyAxes(Vec<usize>),
}

impl<'a> Found<'a> {
    /// One number.
    pub(crate) fn number(element: Element, data: Part<'a>) -> Self {
        Found::Numbers { element, shape: ArrayVec::new(), data }
    }

    /// An array.
    pub(crate) fn array(element: Element, shape: &[usize], data: Part<'a>) -> Self {
        match shape.try_into() {
            Ok(shape) => Found::Numbers { element, shape, data },
            Err(_) => Found::TooManyAxes(shape.to_vec()),
        }
    }

    /// Name of the type, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Found::Null => "nothing",
            Found::Bytes(_) | Found::Path(_) => "bytes",
            Found::Text(_) => "text",
            Found::Json(_) => "a nested value",
            Found::Numbers { .. } | Found::TooManyAxes(_) => "numbers",
        }
    }

    /// The same value with other places of its bytes.
    pub(crate) fn map<'b>(self, place: impl FnOnce(Part<'a>) -> Part<'b>) -> Found<'b> {
        match self {
            Found::Null => Found::Null,
            Found::Bytes(bytes) => Found::Bytes(place(bytes)),
            Found::Text(text) => Found::Text(place(text)),
            Found::Json(json) => Found::Json(place(json)),
            Found::Numbers { element, shape, data } => Found::Numbers { element, shape, data: place(data) },
            Found::Path(path) => Found::Path(place(path)),
            Found::TooManyAxes(shape) => Found::TooManyAxes(shape),
        }
    }

    /// The bytes of the file, if this is a path. The path is relative to `root` and leads below it,
    /// unless it may lead `anywhere`.
    ///
    /// # Errors
    /// If the path leads elsewhere, or the file cannot be read.
    pub(crate) fn opened(self, root: &Path, anywhere: bool, page: &mut Vec<u8>) -> Result<Self> {
        let Found::Path(path) = &self else { return Ok(self) };
        let path = utf8(path.of(page))?;
        if !anywhere && !is_below(path) {
            return Err(Error::in_source(format!(
                "the bytes of the image are in another file, and {path:?} is not a relative path below {}; name the \
                 column with TableOptions::image to allow such paths",
                root.display()
            )));
        }
        let path = root.join(path);
        let start = page.len();
        let file = file::open(&path).map_err(|e| Error::io(&path, &e))?;
        file::append(file, page, MAX_FILE).map_err(|e| Error::io(&path, &e))?;
        Ok(Found::Bytes(Part::since(start, page)))
    }

    /// The image, if this is an array of its pixels: an `.npy` file, which its codec reads.
    ///
    /// # Errors
    /// If the numbers are not pixels of such an image, or this is another value.
    #[cfg(any(feature = "arrays", feature = "chunks", feature = "lmdb"))]
    pub(crate) fn image(self, channels: Channels, colors: Colors, page: &mut Vec<u8>) -> Result<Self> {
        let start = page.len();
        match &self {
            Found::Null => return Ok(Found::Null),
            Found::Numbers { element: Element::U8, shape, data: Part::Borrowed(pixels) } => {
                pixels::append(page, pixels, shape, channels, colors)?;
            }
            Found::Numbers { element: Element::U8, shape, data: Part::Page(place) } => {
                let pixels = page[place.clone()].to_vec();
                pixels::append(page, &pixels, shape, channels, colors)?;
            }
            other => {
                let cause = format!("{}, where other samples have arrays of uint8", other.kind());
                return Err(Error::in_source(cause));
            }
        }
        Ok(Found::Bytes(Part::since(start, page)))
    }

    /// The value, with the page that it may lie in.
    ///
    /// # Errors
    /// If text is not UTF-8, or the bytes of numbers do not have their shape.
    ///
    /// # Panics
    /// For a path, which the format reads first.
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
                let numbers = Numbers::of_element(bytes, *element, shape);
                let found = bytes.len();
                Cell::Numbers(
                    numbers.ok_or_else(|| {
                        Error::in_source(format!("{found} bytes for an array of shape {:?}", &shape[..]))
                    })?,
                )
            }
            Found::TooManyAxes(shape) => {
                return Err(Error::in_source(format!("an array of shape {shape:?}; up to three axes are supported")));
            }
            Found::Path(_) => unreachable!("the file is read first"),
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| Error::in_source(format!("text that is not UTF-8: {e}")))
}
