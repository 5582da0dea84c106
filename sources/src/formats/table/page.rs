use std::ops::Range;

use arrayvec::ArrayVec;

use crate::machine::file::{self, read_whole};
use crate::model::sample::MAX_FIELDS;

/// Buffer that gathers the bytes of a sample, one piece after the other. The buffer keeps its
/// length from sample to sample, so that nothing is zeroed twice.
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

    /// Adds `bytes`. Returns their place.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let place = self.len..self.len + bytes.len();
        if self.buffer.len() < place.end {
            self.buffer.resize(2 * place.end, 0);
        }
        self.buffer[place.clone()].copy_from_slice(bytes);
        self.len = place.end;
        place
    }

    /// Adds the bytes of the file whose path is stored at `path`. Returns their place.
    pub(super) fn read(&mut self, path: Range<usize>) -> std::io::Result<Range<usize>> {
        let path = std::str::from_utf8(&self.buffer[path]).expect("its parts are text");
        let mut file = file::open(path)?;
        let start = self.len;
        self.len = read_whole(&mut file, self.buffer, start)?;
        Ok(start..self.len)
    }

    /// Text at `place`.
    pub(super) fn text(&self, place: Range<usize>) -> &str {
        std::str::from_utf8(&self.buffer[place]).expect("its parts are text")
    }
}

/// A sample whose parts are in a page.
pub(super) struct Gathered<'t> {
    pub(super) key: Range<usize>,
    pub(super) label: Option<i64>,
    pub(super) fields: ArrayVec<(Name<'t>, Range<usize>), MAX_FIELDS>,
}

/// The name of a field.
pub(super) enum Name<'t> {
    Known(&'t str),
    /// Assembled in the page.
    Made(Range<usize>),
}
