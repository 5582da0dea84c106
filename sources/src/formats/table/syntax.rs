use std::ops::Range;

use super::cells::{Cell, Cells};
use super::csv::{Csv, End};
use super::json;

/// Syntax of the rows.
pub(super) enum Syntax {
    Csv(Csv),
    Json,
}

impl Syntax {
    /// Parses the row at byte `start`. Returns its end (`None` at the end of the text), and the
    /// error of a bad row. Quotes are checked when the table is opened.
    /// `names` maps a JSON key to its column.
    pub(super) fn row(
        &self,
        text: &str,
        start: usize,
        names: &mut dyn FnMut(&str) -> usize,
        cells: &mut Cells,
    ) -> (Option<usize>, Result<(), String>) {
        match self {
            Syntax::Csv(csv) => match csv.row(text.as_bytes(), start, cells) {
                End::Row(end) => (Some(end), Ok(())),
                End::Text => (None, Ok(())),
                End::Quoted => (Some(text.len()), Err("a quote is opened and never closed".to_owned())),
            },
            Syntax::Json => {
                let rest = &text[start..];
                let Some(skipped) = rest.find(|c: char| !c.is_ascii_whitespace()) else { return (None, Ok(())) };
                let line = &rest[skipped..];
                let line = &line[..memchr::memchr(b'\n', line.as_bytes()).unwrap_or(line.len())];
                (Some(start + skipped + line.len()), json::row(line, cells, names))
            }
        }
    }

    /// Checks the quotes of the row at `row`.
    ///
    /// # Errors
    /// The position of the first bad one, and the cause. The row may then have swallowed others.
    pub(super) fn check_quotes(&self, text: &str, row: Range<usize>) -> Result<(), (usize, String)> {
        match self {
            Syntax::Csv(csv) => csv.check_quotes(text.as_bytes(), row),
            Syntax::Json => Ok(()),
        }
    }

    /// Kind of a text: JSON for a list in a CSV, otherwise plain text.
    pub(super) fn is_list(&self, text: &str) -> Cell {
        let list = matches!(self, Syntax::Csv(_)) && text.starts_with('[');
        let json = list && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if json { Cell::Json } else { Cell::Text }
    }

    /// Checks that a row has as many cells as there are columns.
    pub(super) fn complete(&self, cells: &Cells, columns: usize) -> Result<(), String> {
        match self {
            Syntax::Csv(_) if cells.len() != columns => {
                Err(format!("a row of {} cells, the table has {columns} columns", cells.len()))
            }
            _ => Ok(()),
        }
    }
}
