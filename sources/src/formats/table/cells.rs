//! Stores the *cells* of one row: the values of its columns.

use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellKind {
    /// The row has no value for the column, or the value is `null`.
    Missing,
    /// Text, a number or a Boolean.
    Text,
    /// A JSON list or object.
    Json,
}

/// The cells of one row. Parsing the next row reuses the memory.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) text: Vec<u8>,
    /// The end of each cell in `text`. Only the CSV parser uses this list.
    pub(super) ends: Vec<usize>,
    /// For each cell, its type and its range in `text`. The type is `None` for columns that the row
    /// does not contain.
    pub(super) cells: Vec<(Option<CellKind>, Range<usize>)>,
    pub(super) csv: Option<(u8, Box<csv_core::Reader>)>,
}

impl Cells {
    pub(super) const fn new() -> Self {
        Cells { text: Vec::new(), ends: Vec::new(), cells: Vec::new(), csv: None }
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn get(&self, column: usize) -> (CellKind, &[u8]) {
        match self.cells.get(column) {
            Some((Some(kind), range)) => (*kind, &self.text[range.clone()]),
            _ => (CellKind::Missing, &[]),
        }
    }

    /// Returns the trimmed text, or `None` if the cell is blank, missing, JSON, or not UTF-8.
    pub(super) fn trimmed_text(&self, column: usize) -> Option<&str> {
        match self.get(column) {
            (CellKind::Text, bytes) => std::str::from_utf8(bytes).ok().map(str::trim).filter(|text| !text.is_empty()),
            _ => None,
        }
    }
}

impl Default for Cells {
    fn default() -> Self {
        Self::new()
    }
}
