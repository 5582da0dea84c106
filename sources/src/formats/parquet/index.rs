//! Finds the offsets of the pages of a column in a row group.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::header::{Header, Kind, MAX_HEADER};
use super::input::Bytes;
use super::thrift;
use crate::error::{Error, ErrorKind, Result};

/// Number of bytes that are read to parse a header. If the header is longer, the next size is
/// tried.
const READS: [u64; 3] = [1 << 10, 64 << 10, MAX_HEADER];

/// The pages of a column in a row group, for a column without lists.
#[derive(Debug)]
pub(super) struct Index {
    pages: Vec<Place>,
    /// Total number of rows in the pages.
    rows: usize,
    pub(super) dictionary: Option<Range<u64>>,
    /// First row of the first page that is known not to need the dictionary. Once a writer has
    /// stopped using the dictionary of a column, it does not use it again.
    plain: AtomicUsize,
    /// The error that ended the scan, if any. It does not affect the pages before it.
    broken: Option<Error>,
}

/// Location of a page, including its header.
#[derive(Debug)]
struct Place {
    at: u64,
    len: u64,
    first: usize,
}

impl Index {
    /// Finds the pages in `range` by scanning their headers. The pages contain `rows` rows.
    ///
    /// # Errors
    /// If the file cannot be read. If a page is damaged, its rows and all later rows fail when they
    /// are read.
    pub(super) fn walk(bytes: Bytes<'_>, range: Range<u64>, rows: usize) -> Result<Self> {
        let plain = AtomicUsize::new(usize::MAX);
        let mut index = Index { pages: Vec::new(), rows: 0, dictionary: None, plain, broken: None };
        let mut at = range.start;
        while index.rows < rows {
            let header = match header(bytes, at, range.end) {
                Ok(header) => header,
                Err(e) if e.kind() == ErrorKind::Source && !e.is_transient() => {
                    index.broken = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            };
            let len = header.len as u64 + header.compressed as u64;
            match (header.kind, header.rows()) {
                // All pages of a column use the same dictionary. With a different dictionary,
                // values would silently be wrong.
                (Kind::Dictionary { .. }, _) if index.dictionary.is_some() || !index.pages.is_empty() => {
                    let cause = format!("damaged: the dictionary at offset {at} is not the first page of its column");
                    index.broken = Some(Error::in_source(format!("{cause}; write the file again")));
                    break;
                }
                (Kind::Dictionary { .. }, _) => index.dictionary = Some(at..at + len),
                (_, Some(count)) if count > rows - index.rows => {
                    let first = index.rows;
                    let cause = format!("damaged: a page claims {count} rows at row {first} of {rows}");
                    index.broken = Some(Error::in_source(cause));
                    break;
                }
                // Leave out pages without rows, because they are never looked up.
                (_, Some(count)) if count > 0 => {
                    index.noted(index.rows, header.needs_dictionary());
                    index.pages.push(Place { at, len, first: index.rows });
                    index.rows += count;
                }
                _ => {}
            }
            at += len;
        }
        Ok(index)
    }

    /// Parses the page index for the pages in `range`, which contain `rows` rows. Returns `None` if
    /// it lists no pages.
    ///
    /// # Errors
    /// If the page index is damaged.
    pub(super) fn listed(bytes: &[u8], range: Range<u64>, rows: usize) -> Result<Option<Self>> {
        let damaged = || Error::in_source("the page index is damaged");
        let listed = thrift::locations(bytes).ok_or_else(damaged)?;
        let mut pages = Vec::with_capacity(listed.len());
        let mut next = range.start;
        for page in &listed {
            let at = u64::try_from(page.offset).map_err(|_| damaged())?;
            let len = u64::try_from(page.compressed_page_size).map_err(|_| damaged())?;
            let first = usize::try_from(page.first_row_index).map_err(|_| damaged())?;
            let end = at.checked_add(len).filter(|&end| end <= range.end).ok_or_else(damaged)?;
            let begins = pages.last().map_or(first == 0, |last: &Place| first > last.first);
            if at < next || !begins || first >= rows {
                return Err(damaged());
            }
            pages.push(Place { at, len, first });
            next = end;
        }
        let Some(start) = pages.first().map(|page| page.at) else { return Ok(None) };
        let dictionary = (start > range.start).then_some(range.start..start);
        Ok(Some(Index { pages, rows, dictionary, plain: AtomicUsize::new(usize::MAX), broken: None }))
    }

    /// Finds the page that contains `row`. Returns its range of rows and its byte range. `rows` is
    /// the number of rows in the row group.
    ///
    /// # Errors
    /// If no page contains `row`.
    pub(super) fn find(&self, row: usize, rows: usize) -> Result<(Range<usize>, Range<u64>)> {
        if row >= self.rows {
            let end = self.rows;
            return Err(self
                .broken
                .clone()
                .unwrap_or_else(|| Error::in_source(format!("damaged: the pages contain only {end} of {rows} rows"))));
        }
        let number = self.pages.partition_point(|page| page.first <= row) - 1;
        Ok(self.page(number))
    }

    /// Records whether the page that starts at row `first` needs the dictionary.
    pub(super) fn noted(&self, first: usize, needs_dictionary: bool) {
        // This is only a hint for prefetching. Decoding relies on the header of a page to determine
        // whether the page needs the dictionary.
        if !needs_dictionary {
            self.plain.fetch_min(first, Ordering::Relaxed);
        }
    }

    /// Returns whether the page that starts at row `first` may need the dictionary.
    pub(super) fn may_need_dictionary(&self, first: usize) -> bool {
        self.dictionary.is_some() && first < self.plain.load(Ordering::Relaxed)
    }

    fn page(&self, number: usize) -> (Range<usize>, Range<u64>) {
        let Place { at, len, first } = self.pages[number];
        let end = self.pages.get(number + 1).map_or(self.rows, |next| next.first);
        (first..end, at..at + len)
    }
}

/// Reads the header of the page at offset `at`. The page must not extend past `end`.
///
/// # Errors
/// If the header is damaged or cannot be read.
pub(super) fn header(bytes: Bytes<'_>, at: u64, end: u64) -> Result<Header> {
    let left = end.saturating_sub(at);
    if left == 0 {
        return Err(Error::in_source("damaged: a page is missing"));
    }
    for len in READS {
        let found = bytes.get(at, len.min(left))?;
        if let Some(header) = Header::read(&found) {
            let fits = header.len as u64 + header.compressed as u64 <= left;
            return fits
                .then_some(header)
                .ok_or_else(|| Error::in_source("damaged: a page extends past the end of its column"));
        }
        if len >= left {
            break;
        }
    }
    Err(Error::in_source("a page header is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a list of structs, each with an offset, a size and a first row, which are encoded as
    /// short varints.
    fn listed(pages: &[(u8, u8, u8)]) -> Vec<u8> {
        let mut bytes = vec![0x19, ((pages.len() as u8) << 4) | 12];
        for &(at, len, first) in pages {
            bytes.extend([0x16, at << 1, 0x15, len << 1, 0x16, first << 1, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn misplaced_dictionary_fails_only_the_rows_after_it() {
        // Headers of empty pages: the page type, two sizes of 0, and a struct with 3 values and an
        // encoding.
        let dictionary = [0x15, 4, 0x15, 0, 0x15, 0, 0x4c, 0x15, 6, 0x15, 4, 0, 0];
        let values = [0x15, 0, 0x15, 0, 0x15, 0, 0x2c, 0x15, 6, 0x15, 16, 0x15, 6, 0x15, 6, 0, 0];
        let walk = |pages: &[&[u8]]| {
            let bytes = pages.concat();
            let index = Index::walk(Bytes::Part(100, &bytes), 100..100 + bytes.len() as u64, 6).unwrap();
            [0, 3].map(|row| index.find(row, 6).map(|(rows, _)| rows).map_err(|e| e.cause().to_owned()))
        };
        assert_eq!(walk(&[&dictionary, &values, &values]), [Ok(0..3), Ok(3..6)]);
        let refused = |at| {
            let cause = format!("damaged: the dictionary at offset {at} is not the first page of its column");
            Err(format!("{cause}; write the file again"))
        };
        assert_eq!(walk(&[&dictionary, &dictionary, &values, &values]), [refused(113), refused(113)]);
        assert_eq!(walk(&[&dictionary, &values, &dictionary, &values]), [Ok(0..3), refused(130)]);
        assert_eq!(walk(&[&values, &dictionary, &values]), [Ok(0..3), refused(117)]);
    }

    #[test]
    fn page_index_finds_pages_and_rejects_wrong_entries() {
        let index = Index::listed(&listed(&[(10, 5, 0), (15, 20, 4)]), 4..40, 9).unwrap().unwrap();
        assert_eq!((index.find(3, 9).unwrap(), index.find(8, 9).unwrap()), ((0..4, 10..15), (4..9, 15..35)));
        assert_eq!((index.dictionary.clone(), index.find(9, 9).is_err()), (Some(4..10), true));
        assert!(Index::listed(&listed(&[]), 4..40, 9).unwrap().is_none());
        for pages in [
            [(10, 5, 1), (15, 20, 4)],
            [(10, 5, 0), (14, 20, 4)],
            [(10, 5, 0), (15, 26, 4)],
            [(10, 5, 0), (15, 20, 0)],
            [(10, 5, 0), (15, 20, 9)],
            [(3, 5, 0), (15, 20, 4)],
        ] {
            assert!(Index::listed(&listed(&pages), 4..40, 9).is_err(), "{pages:?}");
        }
    }
}
