//! The cells of one row.

use std::ops::Range;

/// What a cell contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// The cell has no value: its key is missing, or its value is `null`.
    Missing,
    /// The cell contains text or a number.
    Text,
    /// The cell contains a JSON list or object.
    Json,
}

/// The cells of one row. Parsing the next row reuses their memory.
#[derive(Debug)]
pub(super) struct Cells {
    /// The texts of all cells, concatenated.
    pub(super) text: Vec<u8>,
    /// The end of each cell in `text`. Only the CSV parser fills it.
    pub(super) ends: Vec<usize>,
    /// For each cell, its type and its range in `text`. The type is `None` if the row lacks the
    /// cell.
    pub(super) spans: Vec<(Option<Cell>, Range<usize>)>,
    /// The CSV parser, and its delimiter.
    pub(super) csv: Option<(u8, Box<csv_core::Reader>)>,
}

impl Cells {
    /// Creates an empty row.
    pub(super) const fn new() -> Self {
        Cells { text: Vec::new(), ends: Vec::new(), spans: Vec::new(), csv: None }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the type and the text of the cell in `column`.
    pub(super) fn get(&self, column: usize) -> (Cell, &[u8]) {
        match self.spans.get(column) {
            Some((Some(cell), span)) => (*cell, &self.text[span.clone()]),
            _ => (Cell::Missing, &[]),
        }
    }

    /// Returns the trimmed text of the cell in `column`, or `None` if it is blank.
    pub(super) fn trimmed_text(&self, column: usize) -> Option<&str> {
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
