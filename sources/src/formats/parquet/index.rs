//! Locates the pages of a column chunk.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::header::{Header, MAX_HEADER_BYTES, PageKind};
use super::input::ByteSource;
use super::thrift;
use crate::error::{Error, ErrorKind, Result};

/// Sizes of the reads for parsing a page header, in bytes. If a header is longer than one size, the
/// next size is tried.
const HEADER_READ_SIZES: [u64; 3] = [1 << 10, 64 << 10, MAX_HEADER_BYTES];

/// Page locations of a column chunk without lists.
#[derive(Debug)]
pub(super) struct Index {
    pages: Vec<Page>,
    /// Number of rows in `pages`.
    rows: usize,
    /// Byte range of the dictionary in the file, if there is a dictionary.
    pub(super) dictionary: Option<Range<u64>>,
    /// First row of the first page that does not need the dictionary, or `usize::MAX` if no such
    /// page has been found yet. Writers that stop using a dictionary do not usually resume, so
    /// later pages are assumed not to need the dictionary either.
    first_plain_row: AtomicUsize,
    /// The error that stopped the scan, if any. The pages before the damaged page can be read.
    error: Option<Error>,
}

/// The location of a page, including its header.
#[derive(Debug)]
struct Page {
    /// Offset in the file, in bytes.
    offset: u64,
    /// Length in bytes.
    len: u64,
    /// Index of the first row within the row group.
    first_row: usize,
}

impl Index {
    /// Finds the pages in `range`, which contain `rows` rows, by scanning their headers. A damaged
    /// page does not fail the scan: [`find_page`](Index::find_page) reports the damage for the rows
    /// of this page and for later rows. Fails on other errors, such as transient I/O errors.
    pub(super) fn scan(bytes: ByteSource<'_>, range: Range<u64>, rows: usize) -> Result<Self> {
        let first_plain_row = AtomicUsize::new(usize::MAX);
        let mut index = Index { pages: Vec::new(), rows: 0, dictionary: None, first_plain_row, error: None };
        let mut offset = range.start;
        while index.rows < rows {
            let header = match read_header(bytes, offset, range.end) {
                Ok(header) => header,
                Err(e) if e.kind() == ErrorKind::Source && !e.is_transient() => {
                    index.error = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            };
            let len = header.len as u64 + header.compressed_len as u64;
            match (header.kind, header.row_count()) {
                // All pages of a column chunk use its first dictionary. A page that was written for
                // a different dictionary would silently have wrong values.
                (PageKind::Dictionary { .. }, _) if index.dictionary.is_some() || !index.pages.is_empty() => {
                    let cause =
                        format!("damaged: the dictionary at offset {offset} is not the first page of its column");
                    index.error = Some(Error::in_source(format!("{cause}; write the file again")));
                    break;
                }
                (PageKind::Dictionary { .. }, _) => index.dictionary = Some(offset..offset + len),
                (_, Some(count)) if count > rows - index.rows => {
                    let first_row = index.rows;
                    let cause = format!(
                        "damaged: a page at row {first_row} claims {count} rows, but the row group has {rows} rows"
                    );
                    index.error = Some(Error::in_source(cause));
                    break;
                }
                // Pages without rows are never looked up.
                (_, Some(count)) if count > 0 => {
                    index.record_dictionary_use(index.rows, header.needs_dictionary());
                    index.pages.push(Page { offset, len, first_row: index.rows });
                    index.rows += count;
                }
                _ => {}
            }
            offset += len;
        }
        Ok(index)
    }

    /// Creates an index from the encoded page index in `bytes`. `range` is the byte range of the
    /// column chunk, which contains `rows` rows. Returns `None` if the page index lists no pages.
    pub(super) fn from_page_index(bytes: &[u8], range: Range<u64>, rows: usize) -> Result<Option<Self>> {
        let damaged = || Error::in_source("the page index is damaged");
        let locations = thrift::page_locations(bytes).ok_or_else(damaged)?;
        let mut pages = Vec::with_capacity(locations.len());
        let mut next = range.start;
        for page in &locations {
            let offset = u64::try_from(page.offset).map_err(|_| damaged())?;
            let len = u64::try_from(page.compressed_page_size).map_err(|_| damaged())?;
            let first_row = usize::try_from(page.first_row_index).map_err(|_| damaged())?;
            let end = offset.checked_add(len).filter(|&end| end <= range.end).ok_or_else(damaged)?;
            let is_in_order = pages.last().map_or(first_row == 0, |last: &Page| first_row > last.first_row);
            if offset < next || !is_in_order || first_row >= rows {
                return Err(damaged());
            }
            pages.push(Page { offset, len, first_row });
            next = end;
        }
        let Some(start) = pages.first().map(|page| page.offset) else { return Ok(None) };
        let dictionary = (start > range.start).then_some(range.start..start);
        Ok(Some(Index { pages, rows, dictionary, first_plain_row: AtomicUsize::new(usize::MAX), error: None }))
    }

    /// Returns the rows and the byte range of the page that contains `row`. `rows` is the number of
    /// rows in the row group. Fails if `row` is in or after a damaged page, or after the last page.
    pub(super) fn find_page(&self, row: usize, rows: usize) -> Result<(Range<usize>, Range<u64>)> {
        if row >= self.rows {
            let end = self.rows;
            return Err(self
                .error
                .clone()
                .unwrap_or_else(|| Error::in_source(format!("damaged: the pages contain only {end} of {rows} rows"))));
        }
        let index = self.pages.partition_point(|page| page.first_row <= row) - 1;
        Ok(self.page_at(index))
    }

    /// Records whether the page that starts at `first_row` needs the dictionary.
    pub(super) fn record_dictionary_use(&self, first_row: usize, needs_dictionary: bool) {
        // This is only a hint for prefetching. Decoding relies on the header of the page.
        if !needs_dictionary {
            self.first_plain_row.fetch_min(first_row, Ordering::Relaxed);
        }
    }

    pub(super) fn may_need_dictionary(&self, first_row: usize) -> bool {
        self.dictionary.is_some() && first_row < self.first_plain_row.load(Ordering::Relaxed)
    }

    fn page_at(&self, index: usize) -> (Range<usize>, Range<u64>) {
        let Page { offset, len, first_row } = self.pages[index];
        let end = self.pages.get(index + 1).map_or(self.rows, |next| next.first_row);
        (first_row..end, offset..offset + len)
    }
}

/// Reads the header of the page at `offset`. Fails if the page extends past `end`, the end of the
/// column chunk.
pub(super) fn read_header(bytes: ByteSource<'_>, offset: u64, end: u64) -> Result<Header> {
    let remaining = end.saturating_sub(offset);
    if remaining == 0 {
        return Err(Error::in_source("damaged: a page is missing"));
    }
    for len in HEADER_READ_SIZES {
        let head = bytes.get(offset, len.min(remaining))?;
        if let Some(header) = Header::read(&head) {
            let fits = header.len as u64 + header.compressed_len as u64 <= remaining;
            return fits
                .then_some(header)
                .ok_or_else(|| Error::in_source("damaged: a page extends past the end of its column"));
        }
        if len >= remaining {
            break;
        }
    }
    Err(Error::in_source("a page header is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a page index. Each entry consists of an offset, a size and a first row. All numbers
    /// must fit in one byte as varints.
    fn page_index(pages: &[(u8, u8, u8)]) -> Vec<u8> {
        let mut bytes = vec![0x19, ((pages.len() as u8) << 4) | 12];
        for &(offset, len, first_row) in pages {
            bytes.extend([0x16, offset << 1, 0x15, len << 1, 0x16, first_row << 1, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn misplaced_dictionary_fails_only_the_rows_after_it() {
        // Page headers without content: the page type, two sizes of 0, and a struct that declares 3
        // values and an encoding.
        let dictionary = [0x15, 4, 0x15, 0, 0x15, 0, 0x4c, 0x15, 6, 0x15, 4, 0, 0];
        let values = [0x15, 0, 0x15, 0, 0x15, 0, 0x2c, 0x15, 6, 0x15, 16, 0x15, 6, 0x15, 6, 0, 0];
        let scan = |pages: &[&[u8]]| {
            let bytes = pages.concat();
            let index = Index::scan(ByteSource::Slice(100, &bytes), 100..100 + bytes.len() as u64, 6).unwrap();
            [0, 3].map(|row| index.find_page(row, 6).map(|(rows, _)| rows).map_err(|e| e.cause().to_owned()))
        };
        assert_eq!(scan(&[&dictionary, &values, &values]), [Ok(0..3), Ok(3..6)]);
        let misplaced_error = |offset| {
            let cause = format!("damaged: the dictionary at offset {offset} is not the first page of its column");
            Err(format!("{cause}; write the file again"))
        };
        assert_eq!(scan(&[&dictionary, &dictionary, &values, &values]), [misplaced_error(113), misplaced_error(113)]);
        assert_eq!(scan(&[&dictionary, &values, &dictionary, &values]), [Ok(0..3), misplaced_error(130)]);
        assert_eq!(scan(&[&values, &dictionary, &values]), [Ok(0..3), misplaced_error(117)]);
    }

    #[test]
    fn page_index_finds_pages_and_rejects_wrong_entries() {
        let index = Index::from_page_index(&page_index(&[(10, 5, 0), (15, 20, 4)]), 4..40, 9).unwrap().unwrap();
        assert_eq!((index.find_page(3, 9).unwrap(), index.find_page(8, 9).unwrap()), ((0..4, 10..15), (4..9, 15..35)));
        assert_eq!((index.dictionary.clone(), index.find_page(9, 9).is_err()), (Some(4..10), true));
        assert!(Index::from_page_index(&page_index(&[]), 4..40, 9).unwrap().is_none());
        for pages in [
            [(10, 5, 1), (15, 20, 4)],
            [(10, 5, 0), (14, 20, 4)],
            [(10, 5, 0), (15, 26, 4)],
            [(10, 5, 0), (15, 20, 0)],
            [(10, 5, 0), (15, 20, 9)],
            [(3, 5, 0), (15, 20, 4)],
        ] {
            assert!(Index::from_page_index(&page_index(&pages), 4..40, 9).is_err(), "{pages:?}");
        }
    }
}
