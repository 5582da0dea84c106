use std::borrow::Cow;

use super::cells::Cell;
use super::column_value::Found;
use super::columns::{Column, Columns, Holds};
use crate::error::{Error, Result};
use crate::medium::Part;
use crate::model::value::Element;
use crate::model::{Classes, Sample};
use crate::options::Wanted;
use crate::values::pixels::{self, Candidate, Channels, Colors};

/// A cell of a row that names its own cells, such as a dict.
#[derive(Debug, Clone)]
pub(crate) struct Named<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) content: Found<'a>,
}

impl Named<'_> {
    /// The cell of a row that was read from `record`, which has moved to byte `start` of the page.
    pub(crate) fn moved<'b>(self, record: &[u8], start: usize) -> Named<'b> {
        let content = self.content.map(|part| part.moved(record, start, 0));
        Named { name: Cow::Owned(self.name.into_owned()), content }
    }
}

/// Finds the columns of rows that name their own cells.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    columns: Vec<Column>,
    /// For each column of numbers: their type, and the shape in its first row.
    shapes: Vec<Option<(Element, Vec<usize>)>>,
    /// Whether bytes of readable text are text.
    text_in_bytes: bool,
    rows: usize,
}

impl Survey {
    /// A survey of rows whose format stores text as bytes.
    pub(crate) fn with_text_in_bytes() -> Self {
        Survey { text_in_bytes: true, ..Survey::default() }
    }

    /// Sees the cells of a row.
    ///
    /// # Errors
    /// If a column has another type in this row than in the rows before.
    pub(crate) fn see(&mut self, row: &[Named<'_>], page: &[u8]) -> Result<()> {
        self.rows += 1;
        for Named { name, content } in row {
            let Some(holds) = self.holds(content, page) else { continue };
            let shape = match content {
                Found::Numbers { element, shape, .. } => Some((*element, shape.to_vec())),
                _ => None,
            };
            let Some(place) = self.columns.iter().position(|column| column.name == **name) else {
                self.columns.push(Column::new(name.clone(), holds));
                self.shapes.push(shape);
                continue;
            };
            let before = self.columns[place].holds;
            self.columns[place].holds = match (before, holds) {
                (before, holds) if before == holds => holds,
                (Holds::Integers | Holds::Numbers, Holds::Integers | Holds::Numbers) => Holds::Numbers,
                (Holds::Images | Holds::Bytes, Holds::Images | Holds::Bytes) => Holds::Images,
                (Holds::Text | Holds::Bytes, Holds::Text | Holds::Bytes) if self.text_in_bytes => Holds::Bytes,
                (Holds::Text | Holds::Images, Holds::Text | Holds::Images) if self.text_in_bytes => Holds::Images,
                (before, holds) => {
                    let cause = format!("{name:?} has values of two types: {before:?} and {holds:?}").to_lowercase();
                    return Err(Error::in_source(cause));
                }
            };
        }
        Ok(())
    }

    /// Type of a cell. `None` if the cell does not tell.
    fn holds(&self, content: &Found<'_>, page: &[u8]) -> Option<Holds> {
        Some(match content {
            Found::Null => return None,
            Found::Bytes(part) | Found::Path(part) => match part.of(page) {
                [] => return None,
                bytes if self.text_in_bytes && is_text(bytes) => Holds::Text,
                bytes => Holds::of_bytes(bytes),
            },
            Found::Text(_) => Holds::Text,
            Found::Json(_) => Holds::Json,
            Found::Numbers { element, shape, .. } => {
                let single = shape.iter().product::<usize>() == 1;
                let float = matches!(element, Element::F32 | Element::F64);
                if single && !float { Holds::Integers } else { Holds::Numbers }
            }
            Found::TooManyAxes(_) => Holds::Numbers,
        })
    }

    /// Type of the column called `name`.
    pub(crate) fn holds_of(&self, name: &str) -> Option<Holds> {
        self.columns.iter().find(|column| column.name == name).map(|column| column.holds)
    }

    /// Sorts the columns by name, for formats without an order of their own.
    pub(crate) fn sort(&mut self) {
        let mut both: Vec<_> = self.columns.drain(..).zip(self.shapes.drain(..)).collect();
        both.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        (self.columns, self.shapes) = both.into_iter().unzip();
    }

    /// Decides the use of each column.
    ///
    /// # Errors
    /// Those of [`Columns::new`], and for arrays of pixels whose layout is unclear.
    pub(crate) fn finish(mut self, wanted: &Wanted) -> Result<Rows> {
        let encoded = self.columns.iter().any(|column| column.holds == Holds::Images);
        let candidates = self.columns.iter().zip(&self.shapes).enumerate();
        let candidates: Vec<_> = candidates
            .filter_map(|(column, (Column { name, .. }, shape))| {
                let (element, shape) = shape.clone()?;
                Some(Candidate { column, name: name.clone(), element, shape })
            })
            .collect();
        let pixels = match (encoded, wanted.image.as_deref()) {
            (true, None) => None,
            (_, wanted) => pixels::choose(&candidates, wanted)?,
        };
        if let Some((column, _)) = pixels {
            self.columns[column].holds = Holds::Images;
        }
        let uses = Columns::new(&self.columns, wanted)?;
        let limited = wanted.columns.is_some();
        Ok(Rows { columns: self.columns, uses, pixels, colors: Colors::Rgb, limited, surveyed: self.rows })
    }
}

/// Whether bytes are readable text.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()))
}

/// Rows that name their own cells, as samples.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    columns: Vec<Column>,
    uses: Columns,
    /// Column of arrays of pixels that is the image.
    pixels: Option<(usize, Channels)>,
    colors: Colors,
    /// Whether the user chose the columns.
    limited: bool,
    surveyed: usize,
}

impl Rows {
    /// Numbers labels that are text, as [`Columns::learn`].
    ///
    /// # Errors
    /// Those of [`Columns::learn`].
    pub(crate) fn learn(
        &mut self,
        classes: Option<&Classes>,
        lenient: bool,
        each: impl FnOnce(&str, &mut dyn FnMut(usize, &str)) -> Result<()>,
    ) -> Result<()> {
        let Some(column) = self.uses.label().map(|place| &self.columns[place]) else { return Ok(()) };
        if column.holds != Holds::Text {
            return Ok(());
        }
        self.uses.learn(classes, lenient, |see| each(&column.name, see))
    }

    /// Sets the order of the colors in arrays of pixels. Returns whether the images are such
    /// arrays.
    #[cfg_attr(not(feature = "lmdb"), allow(dead_code))]
    pub(crate) fn set_colors(&mut self, colors: Colors) -> bool {
        self.colors = colors;
        self.pixels.is_some()
    }

    /// Name of the column of labels.
    pub(crate) fn label(&self) -> Option<&str> {
        self.uses.label().map(|place| &*self.columns[place].name)
    }

    /// Names of the fields, as [`Columns::field_names`].
    pub(crate) fn field_names(&self) -> Vec<String> {
        self.uses.field_names()
    }

    /// Names of the classes, if the labels are text.
    pub(crate) fn classes(&self) -> &[String] {
        self.uses.classes()
    }

    /// Builds the sample of `row` under `key`. `page` holds the parts of the row that are not
    /// borrowed.
    ///
    /// # Errors
    /// If a cell has another type than its column, or a name that no row of the survey has.
    pub(crate) fn sample<'a>(
        &'a self,
        key: Part<'a>,
        mut row: Vec<Named<'a>>,
        page: &'a mut Vec<u8>,
    ) -> Result<Sample<'a>> {
        let mut found = vec![None; self.columns.len()];
        for (cell, Named { name, content }) in row.iter().enumerate() {
            match self.columns.iter().position(|column| column.name == **name) {
                Some(place) if found[place].replace(cell).is_some() => {
                    return Err(Error::in_source(format!("{name:?} occurs twice")));
                }
                Some(_) => {}
                None if self.limited || matches!(content, Found::Null) => {}
                None => {
                    let surveyed = self.surveyed;
                    return Err(Error::in_source(format!(
                        "{name:?} is in none of the {surveyed} samples that opening looked at; list the columns with \
                         TableOptions::columns"
                    )));
                }
            }
        }
        if let Some((column, channels)) = self.pixels
            && let Some(cell) = found[column]
        {
            let named = |e: Error| Error::in_source(format!("{:?}: {}", self.columns[column].name, e.cause()));
            let content = std::mem::replace(&mut row[cell].content, Found::Null);
            row[cell].content = content.image(channels, self.colors, page).map_err(named)?;
        }
        let page: &'a [u8] = page;
        let cell = |place: usize| {
            let Some(cell) = found[place] else { return Ok(Cell::Null) };
            let Named { name, content } = &row[cell];
            let holds = self.columns[place].holds;
            let cell = match (holds, content) {
                (Holds::Images | Holds::Bytes, Found::Bytes(part)) if part.of(page).is_empty() => Ok(Cell::Null),
                (Holds::Text, Found::Bytes(part)) => Found::Text(part.clone()).cell(page),
                (_, Found::Null)
                | (Holds::Images | Holds::Bytes, Found::Bytes(_))
                | (Holds::Text, Found::Text(_))
                | (Holds::Json, Found::Json(_))
                | (Holds::Integers | Holds::Numbers, Found::Numbers { .. } | Found::TooManyAxes(_)) => {
                    content.cell(page)
                }
                (holds, content) => {
                    let cause = format!("{}, where other samples have {holds:?}", content.kind());
                    Err(Error::in_source(cause.to_lowercase()))
                }
            };
            cell.map_err(|e| Error::new(e.kind(), format!("{name:?} is {}", e.cause())))
        };
        let key = std::str::from_utf8(key.of(page)).map_err(|_| Error::in_source("a key that is not UTF-8"))?;
        self.uses.sample(key, cell)
    }
}
