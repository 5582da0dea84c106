//! Rows that contain the names of their cells, such as dicts. A [`Survey`] of some rows finds the
//! columns, and [`RowConverter`] converts rows to samples.

use std::borrow::Cow;

use super::cells::Cell;
use super::column_value::ColumnValue;
use super::columns::{Column, ColumnType, Columns};
use crate::error::{Error, Result};
use crate::model::value::Element;
use crate::model::{Classes, Sample};
use crate::options::ColumnChoice;
use crate::storage::RowBytes;
use crate::values::pixels::{self, Candidate, Channels, Colors};

/// A cell with its name, such as an entry of a dict.
#[derive(Debug, Clone)]
pub(crate) struct NamedCell<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) content: ColumnValue<'a>,
}

impl NamedCell<'_> {
    /// `record`, from which the cell may borrow, was copied to offset `start` of the page.
    pub(crate) fn rebase<'b>(self, record: &[u8], start: usize) -> NamedCell<'b> {
        let content = self.content.map(|bytes| bytes.rebase(record, start, 0));
        NamedCell { name: Cow::Owned(self.name.into_owned()), content }
    }
}

/// Finds the columns of a dataset by examining some of its rows.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    columns: Vec<Column>,
    /// For each column of numbers, the element type and the shape in its first row.
    shapes: Vec<Option<(Element, Vec<usize>)>>,
    /// Whether bytes that are readable text are treated as text.
    text_in_bytes: bool,
    rows: usize,
}

impl Survey {
    /// Creates a survey for a format that stores text as bytes.
    pub(crate) fn with_text_in_bytes() -> Self {
        Survey { text_in_bytes: true, ..Survey::default() }
    }

    /// Examines a row. Fails if a column has incompatible types in this row and in earlier rows.
    pub(crate) fn add_row(&mut self, row: &[NamedCell<'_>], page: &[u8]) -> Result<()> {
        self.rows += 1;
        for NamedCell { name, content } in row {
            let Some(column_type) = self.column_type(content, page) else { continue };
            let shape = match content {
                ColumnValue::Numbers { element, shape, .. } => Some((*element, shape.to_vec())),
                _ => None,
            };
            let Some(column) = self.columns.iter().position(|column| column.name == **name) else {
                self.columns.push(Column::new(name.clone(), column_type));
                self.shapes.push(shape);
                continue;
            };
            let earlier_type = self.columns[column].column_type;
            self.columns[column].column_type = match (earlier_type, column_type) {
                (earlier_type, column_type) if earlier_type == column_type => column_type,
                (ColumnType::Integers | ColumnType::Numbers, ColumnType::Integers | ColumnType::Numbers) => {
                    ColumnType::Numbers
                }
                (ColumnType::Images | ColumnType::Bytes, ColumnType::Images | ColumnType::Bytes) => ColumnType::Images,
                (ColumnType::Text | ColumnType::Bytes, ColumnType::Text | ColumnType::Bytes) if self.text_in_bytes => {
                    ColumnType::Bytes
                }
                (ColumnType::Text | ColumnType::Images, ColumnType::Text | ColumnType::Images)
                    if self.text_in_bytes =>
                {
                    ColumnType::Images
                }
                (earlier_type, column_type) => {
                    let cause = format!("{name:?} has values of two types: {earlier_type:?} and {column_type:?}")
                        .to_lowercase();
                    return Err(Error::in_source(cause));
                }
            };
        }
        Ok(())
    }

    /// Returns the type of a column with the value `content`, or `None` if the cell is empty.
    fn column_type(&self, content: &ColumnValue<'_>, page: &[u8]) -> Option<ColumnType> {
        Some(match content {
            ColumnValue::Null => return None,
            ColumnValue::Bytes(bytes) | ColumnValue::Path(bytes) => match bytes.resolve(page) {
                [] => return None,
                bytes if self.text_in_bytes && is_text(bytes) => ColumnType::Text,
                bytes => ColumnType::from_bytes(bytes),
            },
            ColumnValue::Text(_) => ColumnType::Text,
            ColumnValue::Json(_) => ColumnType::Json,
            ColumnValue::Numbers { element, shape, .. } => {
                let is_single = shape.iter().product::<usize>() == 1;
                let is_float = matches!(element, Element::F32 | Element::F64);
                if is_single && !is_float { ColumnType::Integers } else { ColumnType::Numbers }
            }
            ColumnValue::TooManyAxes(_) => ColumnType::Numbers,
        })
    }

    pub(crate) fn column_type_of(&self, name: &str) -> Option<ColumnType> {
        self.columns.iter().find(|column| column.name == name).map(|column| column.column_type)
    }

    pub(crate) fn sort(&mut self) {
        let mut both: Vec<_> = self.columns.drain(..).zip(self.shapes.drain(..)).collect();
        both.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        (self.columns, self.shapes) = both.into_iter().unzip();
    }

    /// Decides how samples use each column. Fails if the image column or its layout is ambiguous,
    /// or if [`Columns::new`] fails.
    pub(crate) fn finish(mut self, choice: &ColumnChoice) -> Result<RowConverter> {
        let has_encoded_images = self.columns.iter().any(|column| column.column_type == ColumnType::Images);
        let candidates = self.columns.iter().zip(&self.shapes).enumerate();
        let candidates: Vec<_> = candidates
            .filter_map(|(column, (Column { name, .. }, shape))| {
                let (element, shape) = shape.clone()?;
                Some(Candidate { column, name: name.clone(), element, shape })
            })
            .collect();
        let pixels = match (has_encoded_images, choice.image.as_deref()) {
            (true, None) => None,
            (_, requested) => pixels::choose_image(&candidates, requested)?,
        };
        if let Some((column, _)) = pixels {
            self.columns[column].column_type = ColumnType::Images;
        }
        let column_uses = Columns::new(&self.columns, choice)?;
        let has_column_choice = choice.columns.is_some();
        Ok(RowConverter {
            columns: self.columns,
            column_uses,
            pixels,
            colors: Colors::Rgb,
            has_column_choice,
            surveyed_rows: self.rows,
        })
    }
}

/// Returns whether `bytes` is UTF-8 text without control characters other than white space.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()))
}

#[derive(Debug, Default)]
pub(crate) struct RowConverter {
    columns: Vec<Column>,
    column_uses: Columns,
    /// The image column, if it contains pixel arrays rather than encoded images.
    pixels: Option<(usize, Channels)>,
    colors: Colors,
    has_column_choice: bool,
    surveyed_rows: usize,
}

impl RowConverter {
    /// Like [`Columns::learn_labels`], but also passes the name of the label column to
    /// `visit_rows`.
    pub(crate) fn learn_labels(
        &mut self,
        classes: Option<&Classes>,
        defer_unknown_classes: bool,
        visit_rows: impl FnOnce(&str, &mut dyn FnMut(usize, &str)) -> Result<()>,
    ) -> Result<()> {
        let Some(column) = self.column_uses.label().map(|label| &self.columns[label]) else { return Ok(()) };
        if column.column_type != ColumnType::Text {
            return Ok(());
        }
        self.column_uses.learn_labels(classes, defer_unknown_classes, |see| visit_rows(&column.name, see))
    }

    /// Sets the color order of pixel arrays. Returns whether the image is a pixel array.
    #[cfg_attr(not(feature = "lmdb"), allow(dead_code))]
    pub(crate) fn set_colors(&mut self, colors: Colors) -> bool {
        self.colors = colors;
        self.pixels.is_some()
    }

    pub(crate) fn label(&self) -> Option<&str> {
        self.column_uses.label().map(|label| &*self.columns[label].name)
    }

    pub(crate) fn field_names(&self) -> Vec<String> {
        self.column_uses.field_names()
    }

    pub(crate) fn classes(&self) -> &[String] {
        self.column_uses.classes()
    }

    /// Converts a row to a sample. `page` contains the parts of the row that are not borrowed.
    /// Fails if a cell does not match the type of its column. Also fails if the survey did not find
    /// the name of a cell that is not null, unless the user has selected columns.
    pub(crate) fn sample<'a>(
        &'a self,
        key: RowBytes<'a>,
        mut row: Vec<NamedCell<'a>>,
        page: &'a mut Vec<u8>,
    ) -> Result<Sample<'a>> {
        let mut cells = vec![None; self.columns.len()];
        for (cell, NamedCell { name, content }) in row.iter().enumerate() {
            match self.columns.iter().position(|column| column.name == **name) {
                Some(column) if cells[column].replace(cell).is_some() => {
                    return Err(Error::in_source(format!("{name:?} occurs twice")));
                }
                Some(_) => {}
                None if self.has_column_choice || matches!(content, ColumnValue::Null) => {}
                None => {
                    let rows = self.surveyed_rows;
                    return Err(Error::in_source(format!(
                        "{name:?} is in none of the {rows} samples that were examined when the dataset was opened; \
                         list the columns with TableOptions::columns"
                    )));
                }
            }
        }
        if let Some((column, channels)) = self.pixels
            && let Some(cell) = cells[column]
        {
            let named = |e: Error| Error::in_source(format!("{:?}: {}", self.columns[column].name, e.cause()));
            let content = std::mem::replace(&mut row[cell].content, ColumnValue::Null);
            row[cell].content = content.into_image(channels, self.colors, page).map_err(named)?;
        }
        let page: &'a [u8] = page;
        let cell = |column: usize| {
            let Some(cell) = cells[column] else { return Ok(Cell::Null) };
            let NamedCell { name, content } = &row[cell];
            let column_type = self.columns[column].column_type;
            let cell = match (column_type, content) {
                (ColumnType::Images | ColumnType::Bytes, ColumnValue::Bytes(bytes))
                    if bytes.resolve(page).is_empty() =>
                {
                    Ok(Cell::Null)
                }
                (ColumnType::Text, ColumnValue::Bytes(bytes)) => ColumnValue::Text(bytes.clone()).cell(page),
                (_, ColumnValue::Null)
                | (ColumnType::Images | ColumnType::Bytes, ColumnValue::Bytes(_))
                | (ColumnType::Text, ColumnValue::Text(_))
                | (ColumnType::Json, ColumnValue::Json(_))
                | (
                    ColumnType::Integers | ColumnType::Numbers,
                    ColumnValue::Numbers { .. } | ColumnValue::TooManyAxes(_),
                ) => content.cell(page),
                (column_type, content) => {
                    let cause = format!("{}, but other samples have {}", content.kind(), column_type.description());
                    Err(Error::in_source(cause))
                }
            };
            cell.map_err(|e| Error::new(e.kind(), format!("{name:?} is {}", e.cause())))
        };
        let key = std::str::from_utf8(key.resolve(page)).map_err(|_| Error::in_source("the key is not UTF-8"))?;
        self.column_uses.sample(key, cell)
    }
}
