//! [`RowBytes`]: bytes that are borrowed from a file if possible, and copied to a buffer if not.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::file::MAX_FILE;

/// Bytes of a row, either borrowed from a file or in the row's page, a buffer that is refilled for
/// each row.
#[derive(Debug, Clone)]
pub(crate) enum RowBytes<'a> {
    Borrowed(&'a [u8]),
    Page(Range<usize>),
}

impl<'a> RowBytes<'a> {
    pub(crate) fn page_tail(start: usize, page: &[u8]) -> Self {
        RowBytes::Page(start..page.len())
    }

    pub(crate) fn resolve<'p>(&self, page: &'p [u8]) -> &'p [u8]
    where
        'a: 'p,
    {
        match self {
            RowBytes::Borrowed(bytes) => bytes,
            RowBytes::Page(range) => &page[range.clone()],
        }
    }

    /// Adjusts the bytes after two changes: `storage`, from which they may be borrowed, was copied
    /// to offset `start` of a page, and the earlier content of the page was moved up by `shift`
    /// bytes.
    pub(crate) fn rebase<'b>(self, storage: &[u8], start: usize, shift: usize) -> RowBytes<'b> {
        match self {
            // An empty slice may point outside `storage`.
            RowBytes::Borrowed([]) => RowBytes::Borrowed(&[]),
            RowBytes::Borrowed(bytes) => {
                let offset = start + bytes.as_ptr().addr() - storage.as_ptr().addr();
                RowBytes::Page(offset..offset + bytes.len())
            }
            RowBytes::Page(range) => RowBytes::Page(range.start + shift..range.end + shift),
        }
    }

    pub(crate) fn grow_page(page: &mut Vec<u8>, len: u64) -> Result<()> {
        if len > MAX_FILE {
            return Err(Error::in_source(format!("a value of {len} bytes exceeds the limit of {MAX_FILE} bytes")));
        }
        let no_memory = |_| Error::new(ErrorKind::Memory, format!("cannot allocate {len} bytes for a value"));
        page.try_reserve(len as usize).map_err(no_memory)?;
        page.resize(page.len() + len as usize, 0);
        Ok(())
    }
}
