use std::ops::Range;
use std::path::Path;

use arrayvec::ArrayVec;

use super::cells::Cell;
use crate::error::{Error, ErrorKind, Result};
use crate::source::Numbers;
use crate::source::file::{self, MAX_FILE, is_below};
use crate::source::value::{AXES, Element};

/// The value of one column in one row, as a format finds it: part of its medium, or a range of the
/// scratch memory.
#[derive(Debug, Clone)]
pub(in crate::source) enum Found<'a> {
    /// The row has no value.
    Null,
    Bytes(&'a [u8]),
    BytesAt(Range<usize>),
    Text(&'a str),
    TextAt(Range<usize>),
    Numbers(Numbers<'a>),
    NumbersAt(Range<usize>, Element, ArrayVec<usize, AXES>),
    JsonAt(Range<usize>),
    /// Path of the file that has the value.
    Path(&'a str),
    PathAt(Range<usize>),
}

impl<'a> Found<'a> {
    /// Bytes as numbers.
    ///
    /// # Panics
    /// If they do not have the length of `shape`.
    pub(in crate::source) fn numbers(self, element: Element, shape: &[usize]) -> Self {
        match self {
            Found::Bytes(bytes) => Found::Numbers(Numbers::of_element(bytes, element, shape).expect("as many bytes")),
            Found::BytesAt(range) => Found::NumbersAt(range, element, shape.iter().copied().collect()),
            _ => unreachable!("only bytes become numbers"),
        }
    }

    /// Bytes as text, if they are UTF-8.
    pub(in crate::source) fn text(self, scratch: &[u8]) -> Option<Self> {
        Some(match self {
            Found::Bytes(bytes) => Found::Text(std::str::from_utf8(bytes).ok()?),
            Found::BytesAt(range) => {
                std::str::from_utf8(&scratch[range.clone()]).ok()?;
                Found::TextAt(range)
            }
            _ => unreachable!("only bytes become text"),
        })
    }

    /// The bytes of the file, if this is a path. The path is relative to `root` and leads below it,
    /// unless it may lead `anywhere`.
    ///
    /// # Errors
    /// If the path leads elsewhere, or the file cannot be read.
    pub(in crate::source) fn opened(self, root: &Path, anywhere: bool, scratch: &mut Vec<u8>) -> Result<Self> {
        let path = match &self {
            Found::Path(path) => (*path).to_owned(),
            Found::PathAt(range) => {
                std::str::from_utf8(&scratch[range.clone()]).expect("checked when it was found").to_owned()
            }
            _ => return Ok(self),
        };
        if !anywhere && !is_below(&path) {
            return Err(Error::in_source(format!(
                "the bytes of the picture are in another file, and {path:?} is not a relative path below {}; name the \
                 column with TableOptions::picture to allow such paths",
                root.display()
            )));
        }
        let path = root.join(path);
        let start = scratch.len();
        let file = file::open(&path).map_err(|e| Error::io(&path, &e))?;
        file::append(file, scratch, MAX_FILE).map_err(|e| Error::io(&path, &e))?;
        Ok(Found::BytesAt(start..scratch.len()))
    }

    /// Appends `len` zeros to `scratch`.
    ///
    /// # Errors
    /// If `len` exceeds the size of a file of a sample, or the memory.
    pub(in crate::source) fn append(scratch: &mut Vec<u8>, len: u64) -> Result<()> {
        if len > MAX_FILE {
            return Err(Error::in_source(format!("a value of {len} bytes; the limit is {MAX_FILE}")));
        }
        let no_memory = |_| Error::new(ErrorKind::Memory, format!("no memory for a value of {len} bytes"));
        scratch.try_reserve(len as usize).map_err(no_memory)?;
        scratch.resize(scratch.len() + len as usize, 0);
        Ok(())
    }

    /// The value, with the scratch memory that it may lie in.
    ///
    /// # Panics
    /// For a path, which the format reads first.
    pub(in crate::source) fn cell(self, scratch: &'a [u8]) -> Cell<'a> {
        let text = |range: Range<usize>| std::str::from_utf8(&scratch[range]).expect("checked when it was found");
        match self {
            Found::Null => Cell::Null,
            Found::Bytes(bytes) => Cell::Bytes(bytes),
            Found::BytesAt(range) => Cell::Bytes(&scratch[range]),
            Found::Text(text) => Cell::Text(text),
            Found::TextAt(range) => Cell::Text(text(range)),
            Found::Numbers(numbers) => Cell::Numbers(numbers),
            Found::NumbersAt(range, element, shape) => {
                let numbers = Numbers::of_element(&scratch[range], element, &shape);
                Cell::Numbers(numbers.expect("written with this shape"))
            }
            Found::JsonAt(range) => Cell::Json(text(range)),
            Found::Path(_) | Found::PathAt(_) => unreachable!("the file is read first"),
        }
    }
}
