//! Collects the bytes of a sample in a buffer.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::machine::file::{self, read_whole};
use crate::model::sample::MAX_FIELDS;

/// A reusable buffer with the key, the names and the contents of one sample, back to back. The
/// `Vec` keeps its length between samples, so that memory is zeroed only when the `Vec` grows.
pub(super) struct SampleBuffer<'b> {
    buffer: &'b mut Vec<u8>,
    len: usize,
}

impl<'b> SampleBuffer<'b> {
    pub(super) fn new(buffer: &'b mut Vec<u8>) -> Self {
        SampleBuffer { buffer, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let range = self.len..self.len + bytes.len();
        if self.buffer.len() < range.end {
            self.buffer.resize(2 * range.end, 0);
        }
        self.buffer[range.clone()].copy_from_slice(bytes);
        self.len = range.end;
        range
    }

    /// Appends the content of a file, and returns its range in the buffer. `path` is the range of
    /// the buffer that contains the file's path.
    pub(super) fn read(&mut self, path: Range<usize>) -> std::io::Result<Range<usize>> {
        let path = std::str::from_utf8(&self.buffer[path]).expect("paths and names are UTF-8");
        let mut file = file::open(path)?;
        let start = self.len;
        self.len = read_whole(&mut file, self.buffer, start)?;
        Ok(start..self.len)
    }

    pub(super) fn text(&self, range: Range<usize>) -> &str {
        std::str::from_utf8(&self.buffer[range]).expect("paths and names are UTF-8")
    }
}

/// A sample whose key and contents are ranges of a buffer.
pub(super) struct SampleRanges<'t> {
    pub(super) key: Range<usize>,
    pub(super) label: Option<i64>,
    pub(super) fields: ArrayVec<(Name<'t>, Range<usize>), MAX_FIELDS>,
}

pub(super) enum Name<'t> {
    Static(&'t str),
    /// A name that is built for the row, and stored in this range of the buffer.
    InBuffer(Range<usize>),
}
