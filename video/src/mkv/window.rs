//! [`Window`] reads the elements of a file.

use crate::error::{Error, Result, reserve};
use crate::input::Input;

pub(super) const WINDOW_BYTES: usize = 16 << 10;

/// Maximum length of an element's identifier and size.
const MAX_HEADER_LEN: usize = 12;

#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    /// The identifier, including the bits that mark its length.
    pub(super) id: u32,
    pub(super) offset: u64,
    pub(super) content_start: u64,
    /// The end of the content, or `None` if the size is unknown.
    pub(super) content_end: Option<u64>,
}

impl Element {
    pub(super) fn known_end(&self) -> Result<u64> {
        self.content_end
            .ok_or_else(|| Error::damaged(format!("element {:x} at byte {} has an unknown size", self.id, self.offset)))
    }
}

pub(super) struct Window<'a> {
    input: &'a dyn Input,
    len: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn new(input: &'a dyn Input) -> Self {
        Window { input, len: input.len(), offset: 0, bytes: Vec::new() }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the bytes from `offset` to `end`, but at most `max_bytes` bytes. `max_bytes` must be
    /// less than [`WINDOW_BYTES`], and `end` must be inside the file.
    pub(super) fn read(&mut self, offset: u64, end: u64, max_bytes: usize) -> Result<&[u8]> {
        let len = end.saturating_sub(offset).min(max_bytes as u64) as usize;
        let is_inside = offset >= self.offset && offset + len as u64 <= self.offset + self.bytes.len() as u64;
        if !is_inside {
            let window_len = self.len.saturating_sub(offset).min(WINDOW_BYTES as u64) as usize;
            self.bytes.clear();
            reserve(&mut self.bytes, window_len)?;
            self.bytes.resize(window_len, 0);
            self.input.read_at(offset, &mut self.bytes)?;
            self.offset = offset;
        }
        let start = (offset - self.offset) as usize;
        Ok(&self.bytes[start..start + len])
    }

    /// Reads the header of the element at `offset`. Fails if the element ends after its parent,
    /// which ends at `end`.
    pub(super) fn read_element(&mut self, offset: u64, end: u64) -> Result<Element> {
        let bytes = self.read(offset, end, MAX_HEADER_LEN)?;
        let (id, size, header_len) = parse_header(bytes).ok_or_else(|| {
            Error::damaged(format!("damaged element at byte {offset}: no identifier and size before byte {end}"))
        })?;
        let content_start = offset + header_len as u64;
        let content_end = size.map(|size| content_start.saturating_add(size));
        match content_end.filter(|&content_end| content_end > end) {
            Some(content_end) => Err(Error::damaged(format!(
                "element {id:x} at byte {offset} ends at byte {content_end}, but its parent ends at byte {end}"
            ))),
            None => Ok(Element { id, offset, content_start, content_end }),
        }
    }

    pub(super) fn read_content(&mut self, element: &Element, max_bytes: usize) -> Result<Vec<u8>> {
        let size = element.known_end()? - element.content_start;
        let size = usize::try_from(size).ok().filter(|&size| size <= max_bytes).ok_or_else(|| {
            let Element { id, offset, .. } = element;
            Error::unsupported(format!(
                "element {id:x} at byte {offset} has {size} bytes: expected at most {max_bytes}"
            ))
        })?;
        let mut bytes = Vec::new();
        reserve(&mut bytes, size)?;
        bytes.resize(size, 0);
        self.input.read_at(element.content_start, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_integer(&mut self, element: &Element) -> Result<u64> {
        let end = element.known_end()?;
        if end - element.content_start > 8 {
            let Element { id, offset, .. } = element;
            return Err(Error::damaged(format!("the integer {id:x} at byte {offset} has more than 8 bytes")));
        }
        Ok(parse_integer(self.read(element.content_start, end, 8)?))
    }
}

pub(super) fn parse_integer(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Parses a variable-length number of up to `max_bytes` bytes. Returns the number with the bit that
/// marks its length, the number without this bit, and its length.
pub(super) fn parse_variable_length_number(bytes: &[u8], max_bytes: usize) -> Option<(u64, u64, usize)> {
    let len = bytes.first()?.leading_zeros() as usize + 1;
    let marked = parse_integer(bytes.get(..len).filter(|_| len <= max_bytes)?);
    Some((marked, marked ^ 1 << (7 * len), len))
}

/// Parses the identifier and the size of an element, and returns the length of both. The size is
/// `None` if it is unknown.
pub(super) fn parse_header(bytes: &[u8]) -> Option<(u32, Option<u64>, usize)> {
    let (id, _, id_len) = parse_variable_length_number(bytes, 4)?;
    let (_, size, size_len) = parse_variable_length_number(&bytes[id_len..], 8)?;
    let is_unknown = size == (1 << (7 * size_len)) - 1;
    Some((id as u32, (!is_unknown).then_some(size), id_len + size_len))
}
