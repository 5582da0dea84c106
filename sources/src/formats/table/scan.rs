//! Scans all rows of a table to find the columns and the malformed rows.

use super::cells::{Cell, Cells};
use super::syntax::Syntax;
use crate::error::{Error, push};

/// Maximum number of columns. In JSON Lines, every key in any row is a column.
const MAX_COLUMNS: usize = 4096;

/// Maximum number of texts per column that decide whether the column contains paths.
pub(super) const MAX_TEXTS: usize = 32;

pub(super) struct Scan {
    pub(super) names: Vec<String>,
    pub(super) starts: Vec<usize>,
    pub(super) first: Vec<Option<(Cell, String)>>,
    pub(super) texts: Vec<Vec<String>>,
    /// Index of the first malformed row, and the cause.
    pub(super) first_malformed: Option<(usize, String)>,
    pub(super) bad_rows: usize,
}

/// Fails, with the offset in the text and the cause, if a quote is malformed or unterminated,
/// because it would merge the rows that follow. Also fails if there are more than `MAX_COLUMNS`
/// columns, because every column slows down every row.
pub(super) fn scan(text: &str, syntax: &Syntax, headerless: bool) -> Result<Scan, (usize, Error)> {
    let (names, starts, first, texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut scan = Scan { names, starts, first, texts, first_malformed: None, bad_rows: 0 };
    let (mut cells, mut start) = (Cells::default(), 0);
    let mut header = matches!(syntax, Syntax::Csv(_));
    loop {
        let names = &mut scan.names;
        let mut column_of = |key: &str| {
            names.iter().position(|name| name == key).unwrap_or_else(|| {
                names.push(key.to_owned());
                names.len() - 1
            })
        };
        let (end, parsed) = syntax.row(text, start, &mut column_of, &mut cells);
        let Some(end) = end else { return Ok(scan) };
        syntax.check_quotes(text, start..end).map_err(|(offset, cause)| (offset, Error::in_source(cause)))?;
        if std::mem::take(&mut header) {
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
        let row = scan.starts.len();
        push(&mut scan.starts, start).map_err(|e| (start, e))?;
        start = end;
        if let Err(cause) = parsed.and_then(|()| syntax.complete(&cells, scan.names.len())) {
            scan.first_malformed.get_or_insert((row, cause));
            scan.bad_rows += 1;
            continue;
        }
        scan.first.resize(scan.names.len(), None);
        scan.texts.resize(scan.names.len(), Vec::new());
        for (column, texts) in scan.texts.iter_mut().enumerate().filter(|(_, texts)| texts.len() < MAX_TEXTS) {
            texts.extend(
                cells.trimmed_text(column).filter(|text| syntax.cell_type(text) == Cell::Text).map(str::to_owned),
            );
        }
        for (column, first) in scan.first.iter_mut().enumerate().filter(|(_, first)| first.is_none()) {
            let (cell, bytes) = cells.get(column);
            *first = match cell {
                Cell::Text => cells.trimmed_text(column).map(|text| (syntax.cell_type(text), text.to_owned())),
                Cell::Json => Some((cell, String::from_utf8_lossy(bytes).into_owned())),
                Cell::Missing => None,
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
