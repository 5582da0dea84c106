//! Dispatches to the parser of a table's syntax.

use std::ops::Range;

use super::cells::{CellKind, Cells};
use super::csv::{Csv, RowEnd};
use super::json;
use crate::error::counted;

pub(super) enum Syntax {
    Csv(Csv),
    Json,
}

impl Syntax {
    /// Parses the row at `start`. `names` maps a JSON key to the index of its column. Returns the
    /// offset of the end of the row, or `None` if there are no more rows. The second value is an
    /// error if the row is malformed. Text after a closing quote is accepted here, because
    /// [`check_quotes`](Syntax::check_quotes) rejects it on opening.
    pub(super) fn parse_row(
        &self,
        text: &str,
        start: usize,
        names: &mut dyn FnMut(&str) -> usize,
        cells: &mut Cells,
    ) -> (Option<usize>, Result<(), String>) {
        match self {
            Syntax::Csv(csv) => match csv.parse_row(text.as_bytes(), start, cells) {
                RowEnd::Complete(end) => (Some(end), Ok(())),
                RowEnd::EndOfText => (None, Ok(())),
                RowEnd::OpenQuote => (Some(text.len()), Err("a quoted cell is never closed".to_owned())),
            },
            Syntax::Json => {
                let rest = &text[start..];
                let Some(blank_len) = rest.find(|c: char| !c.is_ascii_whitespace()) else { return (None, Ok(())) };
                let line = &rest[blank_len..];
                let line = &line[..memchr::memchr(b'\n', line.as_bytes()).unwrap_or(line.len())];
                (Some(start + blank_len + line.len()), json::parse_row(line, cells, names))
            }
        }
    }

    /// Checks the quotes in the byte range `row` of the text, because an invalid quote may merge
    /// several rows. The error is the offset of the first invalid quoted cell, and the cause.
    pub(super) fn check_quotes(&self, text: &str, row: Range<usize>) -> Result<(), (usize, String)> {
        match self {
            Syntax::Csv(csv) => csv.check_quotes(text.as_bytes(), row),
            Syntax::Json => Ok(()),
        }
    }

    /// Returns the kind of a cell that contains `text`. In a CSV file, a valid JSON list is JSON,
    /// and everything else is text.
    pub(super) fn cell_type(&self, text: &str) -> CellKind {
        let is_list = matches!(self, Syntax::Csv(_)) && text.starts_with('[');
        let is_json = is_list && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if is_json { CellKind::Json } else { CellKind::Text }
    }

    /// Checks that a row of a CSV file has one cell per column.
    pub(super) fn check_complete(&self, cells: &Cells, columns: usize) -> Result<(), String> {
        match self {
            Syntax::Csv(_) if cells.len() != columns => Err(format!(
                "the row has {}, but the table has {}",
                counted(cells.len(), "cell", "cells"),
                counted(columns, "column", "columns")
            )),
            _ => Ok(()),
        }
    }
}
