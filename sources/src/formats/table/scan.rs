use super::cells::{Cell, Cells};
use super::syntax::Syntax;
use crate::error::{Error, push};

/// Maximum number of columns of a table. In JSON lines, the distinct keys of all rows are columns.
const MOST_COLUMNS: usize = 4096;

/// Number of values that decide whether a column has paths.
pub(super) const LOOKED_AT: usize = 32;

/// Result of one pass over the text.
pub(super) struct Scan {
    pub(super) names: Vec<String>,
    /// Start of each row in the text.
    pub(super) starts: Vec<usize>,
    /// The first value of each column.
    pub(super) first: Vec<Option<(Cell, String)>>,
    /// The first texts of each column, at most [`LOOKED_AT`].
    pub(super) texts: Vec<Vec<String>>,
    /// The first bad row, and its error.
    pub(super) bad: Option<(usize, String)>,
    pub(super) bad_rows: usize,
}

/// Scans all rows of `text` once.
///
/// # Errors
/// An error that makes the whole table unusable, with its position in the text. A quote that is
/// closed in the wrong place, or never, swallows the rows up to there. An unbounded number of
/// columns makes each row slower than the last.
pub(super) fn scan(text: &str, syntax: &Syntax, headerless: bool) -> Result<Scan, (usize, Error)> {
    let (names, starts, first, texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut scan = Scan { names, starts, first, texts, bad: None, bad_rows: 0 };
    let (mut cells, mut start) = (Cells::default(), 0);
    let mut header = matches!(syntax, Syntax::Csv(_));
    loop {
        let names = &mut scan.names;
        let mut place = |key: &str| {
            names.iter().position(|name| name == key).unwrap_or_else(|| {
                names.push(key.to_owned());
                names.len() - 1
            })
        };
        let (end, parsed) = syntax.row(text, start, &mut place, &mut cells);
        let Some(end) = end else { return Ok(scan) };
        syntax.check_quotes(text, start..end).map_err(|(at, cause)| (at, Error::in_source(cause)))?;
        if std::mem::take(&mut header) {
            let named = |(number, column): (usize, &str)| match column.trim() {
                "" => number.to_string(),
                _ if headerless => number.to_string(),
                name => name.to_owned(),
            };
            let columns = (0..cells.len()).map(|column| std::str::from_utf8(cells.get(column).1).unwrap_or(""));
            scan.names = columns.enumerate().map(named).collect();
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
            scan.bad.get_or_insert((row, cause));
            scan.bad_rows += 1;
            continue;
        }
        scan.first.resize(scan.names.len(), None);
        scan.texts.resize(scan.names.len(), Vec::new());
        for (column, texts) in scan.texts.iter_mut().enumerate().filter(|(_, texts)| texts.len() < LOOKED_AT) {
            texts.extend(cells.filled(column).filter(|text| syntax.is_list(text) == Cell::Text).map(str::to_owned));
        }
        for (column, first) in scan.first.iter_mut().enumerate().filter(|(_, first)| first.is_none()) {
            let (cell, bytes) = cells.get(column);
            *first = match cell {
                Cell::Text => cells.filled(column).map(|text| (syntax.is_list(text), text.to_owned())),
                Cell::Json => Some((cell, String::from_utf8_lossy(bytes).into_owned())),
                Cell::Missing => None,
            };
        }
    }
}

fn check_columns(names: &[String]) -> Result<(), Error> {
    if names.len() <= MOST_COLUMNS {
        return Ok(());
    }
    let count = names.len();
    let cause = format!("{count} different columns or keys up to here; a table has at most {MOST_COLUMNS}");
    Err(Error::in_source(cause))
}
