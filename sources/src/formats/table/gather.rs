//! Assembles the sample of a row from its cells and the files that they refer to.

use std::fmt::Write;
use std::ops::Range;

use arrayvec::{ArrayString, ArrayVec};

use super::cells::{Cell, Cells};
use super::columns::Columns;
use super::page::{Gathered, Name, Page};
use super::syntax::Syntax;
use super::table::Table;
use crate::error::{Error, Result};
use crate::format;

impl Table {
    /// Assembles the sample of `row` in `page`.
    pub(super) fn gather<'t>(&'t self, row: usize, cells: &Cells, page: &mut Page<'_>) -> Result<Gathered<'t>> {
        let Columns { image, files, fields, gathered, .. } = &self.columns;
        let mut made = Gathered { key: 0..0, label: self.label_in(cells, row)?, fields: ArrayVec::new() };
        let path = |column: usize| self.path_in(cells, row, column);
        let shown = image.map(|column| Ok::<_, Error>((path(column)?, column))).transpose()?;
        made.key = match shown {
            Some((path, column)) => page.push(self.split(column, path).0.as_bytes()),
            None => {
                let mut digits = ArrayString::<20>::new();
                write!(digits, "{row}").expect("a number has at most 20 digits");
                page.push(digits.as_bytes())
            }
        };
        for field in fields {
            let (cell, bytes) = cells.get(field.column);
            let name = match cell {
                Cell::Missing => continue,
                Cell::Text if !(field.all_json && matches!(self.syntax, Syntax::Csv(_))) => &field.text,
                _ => &field.json,
            };
            made.fields.push((Name::Known(name), page.push(bytes)));
        }
        for (name, columns) in gathered {
            made.fields.push((Name::Known(name), self.combine(row, cells, page, name, columns)?));
        }
        for (column, stem) in files {
            if cells.get(*column).0 != Cell::Missing {
                let path = path(*column)?;
                let name = self.field_name(page, *column, stem, path);
                let bytes = self.file(page, row, *column, path)?;
                made.fields.push((Name::Made(name), bytes));
            }
        }
        if let Some((path, column)) = shown {
            let name = format::field_of_file(self.split(column, path).1, &self.formats).unwrap_or("img");
            let bytes = self.file(page, row, column, path)?;
            made.fields.insert(0, (Name::Known(name), bytes));
        }
        Ok(made)
    }

    /// Combines the numbers in `columns` into the vector field `name`.
    fn combine(
        &self,
        row: usize,
        cells: &Cells,
        page: &mut Page<'_>,
        name: &str,
        columns: &[usize],
    ) -> Result<Range<usize>> {
        let start = page.len();
        for &column in columns {
            let Some(value) = cells.filled(column).filter(|v| !v.contains([' ', '\t', ',', '\n', '\r'])) else {
                let (found, column) = (String::from_utf8_lossy(cells.get(column).1), &self.columns.names[column]);
                return Err(
                    self.at(row, format!("column {column:?} of field {name:?} is {found:?}: expected a single number"))
                );
            };
            page.push(value.as_bytes());
            page.push(b" ");
        }
        Ok(start..page.len())
    }

    /// Returns the name of the field that contains the file at `path`, which consists of the stem
    /// and the extension in lower case.
    fn field_name(&self, page: &mut Page<'_>, column: usize, stem: &str, path: &str) -> Range<usize> {
        let extension = self.split(column, path).1;
        let start = page.push(stem.as_bytes()).start;
        page.push(b".");
        match format::field_of_file(extension, &self.formats) {
            Some(format) => _ = page.push(format.as_bytes()),
            None => extension.bytes().for_each(|byte| _ = page.push(&[byte.to_ascii_lowercase()])),
        }
        start..page.len()
    }
}
