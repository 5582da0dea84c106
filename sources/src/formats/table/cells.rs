use std::ops::Range;

/// Content of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// No value: a key that the row lacks, or `null`.
    Missing,
    /// Text or a number.
    Text,
    /// A list or an object in JSON.
    Json,
}

/// The cells of one row. The memory is reused from row to row.
#[derive(Debug)]
pub(super) struct Cells {
    /// Text of all cells, concatenated.
    pub(super) text: Vec<u8>,
    /// Ends of the cells in `text`, for parsers that report ends.
    pub(super) ends: Vec<usize>,
    pub(super) spans: Vec<(Option<Cell>, Range<usize>)>,
    /// The parser of a CSV, and its delimiter.
    pub(super) csv: Option<(u8, Box<csv_core::Reader>)>,
}

impl Cells {
    /// No cells yet.
    pub(super) const fn new() -> Self {
        Cells { text: Vec::new(), ends: Vec::new(), spans: Vec::new(), csv: None }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Kind and text of the cell of `column`.
    pub(super) fn get(&self, column: usize) -> (Cell, &[u8]) {
        match self.spans.get(column) {
            Some((Some(cell), span)) => (*cell, &self.text[span.clone()]),
            _ => (Cell::Missing, &[]),
        }
    }

    /// The text of the cell, if it holds text that is not blank.
    pub(super) fn filled(&self, column: usize) -> Option<&str> {
        match self.get(column) {
            (Cell::Text, bytes) => std::str::from_utf8(bytes).ok().map(str::trim).filter(|text| !text.is_empty()),
            _ => None,
        }
    }
}

impl Default for Cells {
    fn default() -> Self {
        Self::new()
    }
}
