use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::file::MAX_FILE;

/// Bytes of a row: a part of the medium, or of the page, which is the memory filled for the row.
#[derive(Debug, Clone)]
pub(crate) enum Part<'a> {
    Borrowed(&'a [u8]),
    Page(Range<usize>),
}

impl<'a> Part<'a> {
    /// What was appended to `page` since it had `start` bytes.
    pub(crate) fn since(start: usize, page: &[u8]) -> Self {
        Part::Page(start..page.len())
    }

    /// The bytes.
    pub(crate) fn of<'p>(&self, page: &'p [u8]) -> &'p [u8]
    where
        'a: 'p,
    {
        match self {
            Part::Borrowed(bytes) => bytes,
            Part::Page(place) => &page[place.clone()],
        }
    }

    /// The same part after `medium`, from which it may borrow, was copied to byte `start` of the
    /// page. What was in the page before has moved by `moved` bytes.
    pub(crate) fn moved<'b>(self, medium: &[u8], start: usize, moved: usize) -> Part<'b> {
        match self {
            // Empty bytes may lie anywhere.
            Part::Borrowed([]) => Part::Borrowed(&[]),
            Part::Borrowed(bytes) => {
                let from = start + bytes.as_ptr().addr() - medium.as_ptr().addr();
                Part::Page(from..from + bytes.len())
            }
            Part::Page(place) => Part::Page(place.start + moved..place.end + moved),
        }
    }

    /// Appends `len` zeros to `page`.
    ///
    /// # Errors
    /// If `len` exceeds the size of a file of a sample, or the memory.
    pub(crate) fn append(page: &mut Vec<u8>, len: u64) -> Result<()> {
        if len > MAX_FILE {
            return Err(Error::in_source(format!("a value of {len} bytes; the limit is {MAX_FILE}")));
        }
        let no_memory = |_| Error::new(ErrorKind::Memory, format!("no memory for a value of {len} bytes"));
        page.try_reserve(len as usize).map_err(no_memory)?;
        page.resize(page.len() + len as usize, 0);
        Ok(())
    }
}
