//! A buffer for the bytes of a sample.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::machine::file::{self, read_whole};
use crate::model::sample::MAX_FIELDS;

/// Collects the bytes of a sample in a buffer. The length of the buffer never shrinks between
/// samples, so that its memory is zeroed only once.
pub(super) struct Page<'b> {
    buffer: &'b mut Vec<u8>,
    len: usize,
}

impl<'b> Page<'b> {
    pub(super) fn new(buffer: &'b mut Vec<u8>) -> Self {
        Page { buffer, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends `bytes`, and returns their range in the buffer.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let place = self.len..self.len + bytes.len();
        if self.buffer.len() < place.end {
            self.buffer.resize(2 * place.end, 0);
        }
        self.buffer[place.clone()].copy_from_slice(bytes);
        self.len = place.end;
        place
    }

    /// Appends the content of the file whose path is stored at the range `path`. Returns the range
    /// of the content.
    pub(super) fn read(&mut self, path: Range<usize>) -> std::io::Result<Range<usize>> {
        let path = std::str::from_utf8(&self.buffer[path]).expect("its parts are text");
        let mut file = file::open(path)?;
        let start = self.len;
        self.len = read_whole(&mut file, self.buffer, start)?;
        Ok(start..self.len)
    }

    /// Returns the text at the range `place`.
    pub(super) fn text(&self, place: Range<usize>) -> &str {
        std::str::from_utf8(&self.buffer[place]).expect("its parts are text")
    }
}

/// A sample whose content is in a page.
pub(super) struct Gathered<'t> {
    pub(super) key: Range<usize>,
    pub(super) label: Option<i64>,
    pub(super) fields: ArrayVec<(Name<'t>, Range<usize>), MAX_FIELDS>,
}

/// Name of a field.
pub(super) enum Name<'t> {
    Known(&'t str),
    /// The name is stored at this range of the page.
    Made(Range<usize>),
}
