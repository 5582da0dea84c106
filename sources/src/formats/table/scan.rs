//! Scans all rows of a table to find the columns and the malformed rows.

use super::cells::{CellKind, Cells};
use super::syntax::Syntax;
use crate::error::{Error, push};

/// Maximum number of columns. In JSON Lines, every key in any row is a column.
const MAX_COLUMNS: usize = 4096;

/// Maximum number of texts per column that are examined to find out whether the column contains
/// paths.
pub(super) const MAX_TEXTS_PER_COLUMN: usize = 32;

pub(super) struct TableScan {
    pub(super) names: Vec<String>,
    pub(super) row_starts: Vec<usize>,
    pub(super) first_values: Vec<Option<(CellKind, String)>>,
    pub(super) first_texts: Vec<Vec<String>>,
    /// Index of the first malformed row, and the cause.
    pub(super) first_malformed: Option<(usize, String)>,
    pub(super) malformed_count: usize,
}

/// Scans all rows. Fails if a quote is malformed or unterminated, because it would merge the rows
/// that follow. Also fails if there are more than `MAX_COLUMNS` columns, because every column slows
/// down every row. The error contains an offset in the row's text, and the cause.
pub(super) fn scan(text: &str, syntax: &Syntax, headerless: bool) -> Result<TableScan, (usize, Error)> {
    let (names, row_starts, first_values, first_texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut scan =
        TableScan { names, row_starts, first_values, first_texts, first_malformed: None, malformed_count: 0 };
    let (mut cells, mut start) = (Cells::default(), 0);
    let mut expects_header = matches!(syntax, Syntax::Csv(_));
    loop {
        let names = &mut scan.names;
        let mut column_of = |key: &str| {
            names.iter().position(|name| name == key).unwrap_or_else(|| {
                names.push(key.to_owned());
                names.len() - 1
            })
        };
        let (end, parsed) = syntax.parse_row(text, start, &mut column_of, &mut cells);
        let Some(end) = end else { return Ok(scan) };
        syntax.check_quotes(text, start..end).map_err(|(offset, cause)| (offset, Error::in_source(cause)))?;
        if std::mem::take(&mut expects_header) {
            let name = |(index, column): (usize, &str)| match column.trim() {
                "" => index.to_string(),
                _ if headerless => index.to_string(),
                name => name.to_owned(),
            };
            let columns = (0..cells.len()).map(|column| std::str::from_utf8(cells.get(column).1).unwrap_or(""));
            scan.names = columns.enumerate().map(name).collect();
            check_columns(&scan.names).map_err(|cause| (start, cause))?;
            if !headerless {
                start = end;
                continue;
            }
        }
        check_columns(&scan.names).map_err(|cause| (start, cause))?;
        let row = scan.row_starts.len();
        push(&mut scan.row_starts, start).map_err(|e| (start, e))?;
        start = end;
        if let Err(cause) = parsed.and_then(|()| syntax.check_complete(&cells, scan.names.len())) {
            scan.first_malformed.get_or_insert((row, cause));
            scan.malformed_count += 1;
            continue;
        }
        scan.first_values.resize(scan.names.len(), None);
        scan.first_texts.resize(scan.names.len(), Vec::new());
        for (column, texts) in
            scan.first_texts.iter_mut().enumerate().filter(|(_, texts)| texts.len() < MAX_TEXTS_PER_COLUMN)
        {
            texts.extend(
                cells.trimmed_text(column).filter(|text| syntax.cell_type(text) == CellKind::Text).map(str::to_owned),
            );
        }
        for (column, first) in scan.first_values.iter_mut().enumerate().filter(|(_, first)| first.is_none()) {
            let (cell, bytes) = cells.get(column);
            *first = match cell {
                CellKind::Text => cells.trimmed_text(column).map(|text| (syntax.cell_type(text), text.to_owned())),
                CellKind::Json => Some((cell, String::from_utf8_lossy(bytes).into_owned())),
                CellKind::Missing => None,
            };
        }
    }
}

fn check_columns(names: &[String]) -> Result<(), Error> {
    if names.len() <= MAX_COLUMNS {
        return Ok(());
    }
    let count = names.len();
    let cause = format!("the table has at least {count} different columns or keys: expected at most {MAX_COLUMNS}");
    Err(Error::in_source(cause))
}
