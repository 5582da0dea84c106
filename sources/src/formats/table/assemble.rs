//! Assembles the sample of a row from its cells and the files that they refer to.

use std::fmt::Write;
use std::ops::Range;

use arrayvec::{ArrayString, ArrayVec};

use super::cells::{CellKind, Cells};
use super::columns::Columns;
use super::sample_buffer::{Name, SampleBuffer, SampleRanges};
use super::source::Table;
use super::syntax::Syntax;
use crate::error::{Error, Result};
use crate::format;

impl Table {
    pub(super) fn assemble<'t>(
        &'t self,
        row: usize,
        cells: &Cells,
        buffer: &mut SampleBuffer<'_>,
    ) -> Result<SampleRanges<'t>> {
        let Columns { image, path_columns, fields, gathered, .. } = &self.columns;
        let mut ranges = SampleRanges { key: 0..0, label: self.read_label(cells, row)?, fields: ArrayVec::new() };
        let path = |column: usize| self.read_path(cells, row, column);
        let image_path = image.map(|column| Ok::<_, Error>((path(column)?, column))).transpose()?;
        ranges.key = match image_path {
            Some((path, column)) => buffer.push(self.split_path(column, path).0.as_bytes()),
            None => {
                let mut digits = ArrayString::<20>::new();
                write!(digits, "{row}").expect("a number has at most 20 digits");
                buffer.push(digits.as_bytes())
            }
        };
        for field in fields {
            let (cell, bytes) = cells.get(field.column);
            let name = match cell {
                CellKind::Missing => continue,
                CellKind::Text if !(field.is_json && matches!(self.syntax, Syntax::Csv(_))) => &field.text_name,
                _ => &field.json_name,
            };
            ranges.fields.push((Name::Static(name), buffer.push(bytes)));
        }
        for (name, columns) in gathered {
            ranges.fields.push((Name::Static(name), self.append_gathered(row, cells, buffer, name, columns)?));
        }
        for (column, stem) in path_columns {
            if cells.get(*column).0 != CellKind::Missing {
                let path = path(*column)?;
                let name = self.field_name(buffer, *column, stem, path);
                let bytes = self.append_file(buffer, row, *column, path)?;
                ranges.fields.push((Name::InBuffer(name), bytes));
            }
        }
        if let Some((path, column)) = image_path {
            let name = format::field_for_extension(self.split_path(column, path).1, &self.formats).unwrap_or("img");
            let bytes = self.append_file(buffer, row, column, path)?;
            ranges.fields.insert(0, (Name::Static(name), bytes));
        }
        Ok(ranges)
    }

    fn append_gathered(
        &self,
        row: usize,
        cells: &Cells,
        buffer: &mut SampleBuffer<'_>,
        name: &str,
        columns: &[usize],
    ) -> Result<Range<usize>> {
        let start = buffer.len();
        for &column in columns {
            let Some(value) = cells.trimmed_text(column).filter(|v| !v.contains([' ', '\t', ',', '\n', '\r'])) else {
                let (actual, column) = (String::from_utf8_lossy(cells.get(column).1), &self.columns.names[column]);
                return Err(self.error_at(
                    row,
                    format!("column {column:?} of field {name:?} is {actual:?}: expected a single number"),
                ));
            };
            buffer.push(value.as_bytes());
            buffer.push(b" ");
        }
        Ok(start..buffer.len())
    }

    /// Returns the field name for the file at `path`: `stem`, a dot, and the field of the image
    /// format, or the extension in lower case if the file is not an image.
    fn field_name(&self, buffer: &mut SampleBuffer<'_>, column: usize, stem: &str, path: &str) -> Range<usize> {
        let extension = self.split_path(column, path).1;
        let start = buffer.push(stem.as_bytes()).start;
        buffer.push(b".");
        match format::field_for_extension(extension, &self.formats) {
            Some(format) => _ = buffer.push(format.as_bytes()),
            None => extension.bytes().for_each(|byte| _ = buffer.push(&[byte.to_ascii_lowercase()])),
        }
        start..buffer.len()
    }
}
