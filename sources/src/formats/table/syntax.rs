//! Dispatches to the parser of a table's syntax.

use std::ops::Range;

use super::cells::{Cell, Cells};
use super::csv::{Csv, End};
use super::json;
use crate::error::counted;

pub(super) enum Syntax {
    Csv(Csv),
    Json,
}

impl Syntax {
    /// `names` maps a JSON key to the index of its column. Returns the offset of the end of the
    /// row, or `None` if there are no more rows, and an error if the row is malformed.
    /// [`check_quotes`](Syntax::check_quotes) checks the quotes on opening.
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
                End::Quoted => (Some(text.len()), Err("a quoted cell is never closed".to_owned())),
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

    /// Checks the quotes in the text at `row`, because an invalid quote may merge several rows. The
    /// error is the offset of the first invalid quoted cell, and the cause.
    pub(super) fn check_quotes(&self, text: &str, row: Range<usize>) -> Result<(), (usize, String)> {
        match self {
            Syntax::Csv(csv) => csv.check_quotes(text.as_bytes(), row),
            Syntax::Json => Ok(()),
        }
    }

    /// In a CSV file, lists are JSON, and everything else is text.
    pub(super) fn cell_type(&self, text: &str) -> Cell {
        let list = matches!(self, Syntax::Csv(_)) && text.starts_with('[');
        let json = list && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if json { Cell::Json } else { Cell::Text }
    }

    /// Checks that a row of a CSV file has one cell per column.
    pub(super) fn complete(&self, cells: &Cells, columns: usize) -> Result<(), String> {
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
