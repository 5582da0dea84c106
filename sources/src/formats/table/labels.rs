//! Determines the labels and the classes of a table.

use std::ops::Range;

use super::cells::{CellKind, Cells};
use super::source::Table;
use crate::error::{Error, Result, counted};
use crate::model::Classes;
use crate::values::record::{LabelLearner, Labels, is_missing, parse_integer};

impl Table {
    /// Determines the labels and the classes. If the values of the label column are not labels, the
    /// column becomes a field. If the user specified the column (`is_requested`), this case is an
    /// error.
    pub(super) fn learn_labels(
        &mut self,
        classes: Option<&Classes>,
        defer_unknown_classes: bool,
        first_values: &[Option<(CellKind, String)>],
        is_requested: bool,
    ) -> Result<()> {
        let Some(column) = self.columns.label else { return Ok(()) };
        let value = first_values.get(column).and_then(Option::as_ref);
        let mut learner = LabelLearner::default();
        let mut has_json = false;
        let for_each_cell = |rows: Range<usize>, visit: &mut dyn FnMut(usize, (CellKind, &str))| {
            let mut cells = Cells::default();
            for row in rows {
                if self.parse_row(row, &mut cells).is_ok() {
                    let (cell, _) = cells.get(column);
                    visit(row, (cell, cells.trimmed_text(column).unwrap_or("")));
                }
            }
        };
        for_each_cell(0..self.row_starts.len(), &mut |row, (cell, value)| match cell {
            CellKind::Json => has_json = true,
            _ if value.is_empty() => {}
            _ => learner.add_value(row, value),
        });
        let for_each_label = |rows: usize, visit: &mut dyn FnMut(usize, &str)| {
            for_each_cell(0..rows, &mut |row, (_, value)| {
                if !value.is_empty() {
                    visit(row, value)
                }
            });
        };
        if !has_json {
            if classes.is_none() {
                self.warn_mixed(column, &learner);
            }
            if let Some(pair) = learner.find_equal_integers(for_each_label) {
                return Err(self.equal_integers_error(column, pair));
            }
        }
        let (labels, unknown) = if has_json { (None, None) } else { learner.into_labels(classes, for_each_label) };
        if let Some(unknown) = unknown.filter(|_| !defer_unknown_classes) {
            let cause = unknown.cause(classes);
            return Err(Error::config(cause).at_line(&self.file, self.line(unknown.row)));
        }
        if classes.is_none() {
            self.warn_doubtful(column, labels.as_ref());
        }
        self.labels = labels;
        if self.labels.is_none() {
            let cause = self.no_labels_error(column, has_json);
            if is_requested {
                return Err(cause);
            }
            // This error matters only if the loader requests labels.
            self.columns.hints.label = Some(format!("{}: {}", self.file.display(), cause.cause()).into());
            self.columns.use_label_as_field(value).map_err(|e| e.at_path(&self.file))?;
        }
        Ok(())
    }

    fn warn_mixed(&self, column: usize, learner: &LabelLearner) {
        let Some((integers, texts, row)) = learner.find_mixed() else { return };
        let mut cells = Cells::default();
        let value = self.parse_row(row, &mut cells).ok().and_then(|()| cells.trimmed_text(column)).unwrap_or_default();
        tracing::warn!(
            "{}: column {:?}: {} and {} (first {value:?} on line {}): all are used as class names, in the order of \
             their bytes",
            self.file.display(),
            self.columns.names[column],
            counted(integers, "label is an integer", "labels are integers"),
            counted(texts, "is text", "are text"),
            self.line(row),
        );
    }

    fn warn_doubtful(&self, column: usize, labels: Option<&Labels>) {
        if let Some(name) = labels.and_then(Labels::doubtful_name) {
            let (file, column) = (self.file.display(), &self.columns.names[column]);
            tracing::warn!(
                "{file}: column {column:?}: {name:?} is used as a class name; if it means that the label is missing, \
                 leave the cell empty"
            );
        }
    }

    /// Returns the error for two labels that are written differently but denote the same integer.
    fn equal_integers_error(&self, column: usize, [first, other]: [(usize, String); 2]) -> Error {
        Error::config(format!(
            "column {:?}: {:?} and {:?} on line {} denote the same integer: use one spelling for each class, or write \
             distinct classes as text, such as \"c007\"",
            self.columns.names[column],
            first.1,
            other.1,
            self.line(other.0),
        ))
        .at_line(&self.file, self.line(first.0))
    }

    /// Returns the error for a label column whose values are not labels. `has_json` is true if any
    /// value is a JSON list or object. If it is false, at least one value is a number that is not
    /// an integer.
    fn no_labels_error(&self, column: usize, has_json: bool) -> Error {
        let mut cells = Cells::default();
        let mut invalid_value = |row: usize| {
            self.parse_row(row, &mut cells).ok()?;
            let (cell, bytes) = cells.get(column);
            let value = String::from_utf8_lossy(bytes).trim().to_owned();
            let is_fraction = || parse_integer(&value).is_none() && !is_missing(&value);
            let is_invalid = if has_json { cell == CellKind::Json } else { !value.is_empty() && is_fraction() };
            is_invalid.then_some((row, value))
        };
        let name = &self.columns.names[column];
        let (row, value) = (0..self.row_starts.len()).find_map(&mut invalid_value).unwrap_or_default();
        let kind = match value.as_bytes().first() {
            Some(b'{') => "Text",
            Some(b'[') => "MultiHot",
            _ => "NdArray",
        };
        Error::config(format!(
            "column {name:?} has no labels: {value:?} is neither an integer nor a class name; read the column as a \
             field of type {kind}"
        ))
        .at_line(&self.file, self.line(row))
    }
}
