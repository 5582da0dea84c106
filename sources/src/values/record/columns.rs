//! [`Columns`]: decides which column of a dataset becomes the image, the label, or a field.
//! [`Columns::new`] documents the rules.

use std::io::Write;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::cells::Cell;
use super::column_value::ColumnValue;
use super::labels::{LabelLearner, Labels};
use crate::error::{Error, Result, counted};
use crate::format::{self, FORMATS};
use crate::model::sample::{MAX_FIELDS, MessageHints, are_same_field};
use crate::model::{Classes, Sample};
use crate::options::{ColumnChoice, Options};

/// Common names of the image column, in order of preference. They matter only if there are several
/// image columns.
const IMAGE_NAMES: [&str; 6] = ["image", "img", "picture", "jpg", "jpeg", "png"];

/// Common names of the label column, in order of preference.
const LABEL_NAMES: [&str; 6] = ["label", "labels", "class", "cls", "category", "target"];

pub(crate) fn is_label(name: &str) -> bool {
    LABEL_NAMES.iter().any(|label| name.eq_ignore_ascii_case(label))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Images,
    /// Bytes that are not images, or that have an unknown type.
    Bytes,
    Text,
    /// One integer per row.
    Integers,
    /// One floating-point number per row, or an array of numbers.
    Numbers,
    /// JSON text, for nested values.
    Json,
    /// Unsupported values, described for messages. The column is skipped, but selecting it makes
    /// opening fail.
    Unsupported(&'static str),
}

impl ColumnType {
    /// Guesses the type of a column of bytes from `first`, its first value.
    pub(crate) fn from_bytes(first: &[u8]) -> Self {
        if format::detect(first).is_some() { ColumnType::Images } else { ColumnType::Bytes }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            ColumnType::Images => "images",
            ColumnType::Bytes => "bytes",
            ColumnType::Text => "text",
            ColumnType::Integers => "integers",
            ColumnType::Numbers => "numbers",
            ColumnType::Json => "JSON",
            ColumnType::Unsupported(what) => what,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) column_type: ColumnType,
}

impl Column {
    pub(crate) fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Column { name: name.into(), column_type }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    image: Option<usize>,
    label: Option<usize>,
    labels: Option<Arc<Labels>>,
    pub(super) fields: Vec<Field>,
    hints: MessageHints,
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) column: usize,
    pub(super) name: String,
    /// The field name for each of [`FORMATS`], such as `mask.png`. Empty unless the column contains
    /// images.
    pub(super) images: Vec<String>,
}

struct AllColumns<'a>(&'a [Column]);

impl AllColumns<'_> {
    fn find(&self, name: &str) -> Result<usize> {
        let mut matches = (0..self.0.len()).filter(|&column| self.0[column].name == *name);
        match (matches.next(), matches.next()) {
            (Some(column), None) => Ok(column),
            (Some(_), Some(_)) => Err(Error::config(format!("two columns are called {name:?}; rename one"))),
            (None, _) => Err(Error::config(format!("no column {name:?} among {}", describe_columns(self.0)))),
        }
    }

    /// Returns the column with one of `names` and a type that `fits`. Earlier names take
    /// precedence.
    fn find_preferred(&self, names: &[&str], fits: fn(ColumnType) -> bool) -> Option<usize> {
        let matches = |column: &Column, name: &str| fits(column.column_type) && column.name.eq_ignore_ascii_case(name);
        names.iter().find_map(|name| self.0.iter().position(|column| matches(column, name)))
    }

    /// Warns about columns of unsupported types, or fails if the user has selected one of them.
    fn check_supported(&self, selected: Option<&[usize]>) -> Result<()> {
        for (column, Column { name, column_type }) in self.0.iter().enumerate() {
            let ColumnType::Unsupported(what) = column_type else { continue };
            match selected {
                Some(selected) if selected.contains(&column) => {
                    return Err(Error::config(format!("column {name:?} holds {what}, which are not supported")));
                }
                Some(_) => {}
                None => tracing::warn!("skipping column {name:?}: it holds {what}, which are not supported"),
            }
        }
        Ok(())
    }

    fn image(&self, choice: &ColumnChoice) -> Result<Option<usize>> {
        let is_image = |column_type| column_type == ColumnType::Images;
        let Some(name) = &choice.image else {
            let first_image_column = || self.0.iter().position(|column| is_image(column.column_type));
            return Ok(self.find_preferred(&IMAGE_NAMES, is_image).or_else(first_image_column));
        };
        let column = self.find(name)?;
        if self.0[column].column_type == ColumnType::Text {
            return Err(Error::config(format!(
                "column {name:?} does not contain images but text; only tables may contain the paths of images: write \
                 the table as CSV or JSON lines"
            )));
        }
        if !matches!(self.0[column].column_type, ColumnType::Images | ColumnType::Bytes) {
            return Err(Error::config(format!(
                "column {name:?} does not contain images; the columns are {}",
                describe_columns(self.0)
            )));
        }
        Ok(Some(column))
    }

    fn label(&self, choice: &ColumnChoice) -> Result<Option<usize>> {
        let is_label = |column_type| matches!(column_type, ColumnType::Integers | ColumnType::Text);
        let name = match (&choice.label, choice.without_label) {
            (Some(_), true) => return Err(Error::config("label and without_label cannot be combined")),
            (Some(name), false) => name,
            (None, true) => return Ok(None),
            (None, false) => return Ok(self.find_preferred(&LABEL_NAMES, is_label)),
        };
        let column = self.find(name)?;
        if !is_label(self.0[column].column_type) {
            let cause = format!(
                "column {name:?} does not contain labels (integers or text); the columns are {}",
                describe_columns(self.0)
            );
            return Err(Error::config(cause));
        }
        Ok(Some(column))
    }
}

impl Columns {
    /// Decides how samples use each column.
    ///
    /// | column | in the sample |
    /// |---|---|
    /// | the first image column, preferably named `image` | the image: `jpg`, `png`, … |
    /// | integers or text called `label`, `class`, … | the label |
    /// | other image columns, such as masks | `<column>.png` or a different extension |
    /// | text | `<column>.txt` |
    /// | numbers and arrays | `<column>.npy` |
    /// | nested values | `<column>.json` |
    /// | other bytes | `<column>.bin` |
    ///
    /// Fails if a selected column is missing or has the wrong type, if two columns would become the
    /// same field, or if there are more columns than a sample can have fields.
    pub(crate) fn new(columns: &[Column], choice: &ColumnChoice) -> Result<Self> {
        let all_columns = AllColumns(columns);
        let names = choice.columns.as_ref();
        let selected: Option<Vec<usize>> =
            names.map(|names| names.iter().map(|name| all_columns.find(name)).collect::<Result<_>>()).transpose()?;
        all_columns.check_supported(selected.as_deref())?;
        let (image, label) = (all_columns.image(choice)?, all_columns.label(choice)?);
        let is_field = |index: &usize| {
            Some(*index) != image
                && Some(*index) != label
                && !matches!(columns[*index].column_type, ColumnType::Unsupported(_))
                && selected.as_ref().is_none_or(|selected| selected.contains(index))
        };
        let fields = (0..columns.len()).filter(is_field).map(|index| Field::new(index, &columns[index])).collect();
        let integers = columns.iter().enumerate().filter(|(index, column)| {
            column.column_type == ColumnType::Integers && is_field(index) && label.is_none() && !choice.without_label
        });
        let integers: Vec<&str> = integers.map(|(_, column)| &*column.name).collect();
        let hints = MessageHints {
            image: image.map(|index| columns[index].name.clone()),
            label: MessageHints::label_hint(&integers),
            ..MessageHints::default()
        };
        let columns = Columns { image, label, labels: label.map(|_| Arc::new(Labels::Integers)), fields, hints };
        columns.check()?;
        Ok(columns)
    }

    /// Uses the columns at `indices`, for a caller that reads columns by index. The result cannot
    /// build samples.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(crate) fn of_indices(indices: impl IntoIterator<Item = usize>) -> Self {
        let field = |column| Field { column, name: String::new(), images: Vec::new() };
        Columns { fields: indices.into_iter().map(field).collect(), ..Columns::default() }
    }

    fn check(&self) -> Result<()> {
        let names: Vec<&str> = self.fields.iter().map(|field| &*field.name).collect();
        if let Some(duplicate) =
            names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name))
        {
            return Err(Error::config(format!("two columns would become the field {duplicate:?}; rename one")));
        }
        let (fields, max_fields) = (names.len() + usize::from(self.image.is_some()), MAX_FIELDS);
        if fields > max_fields {
            return Err(Error::config(format!(
                "{fields} columns would become fields, but a sample has at most {max_fields}: choose some with \
                 TableOptions::columns"
            )));
        }
        Ok(())
    }

    /// Returns a copy with only the fields in `names`, which may omit the extension, and their
    /// companions. For example, `mask.first_class` is a companion of `mask`. The image and the
    /// label are not affected.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(crate) fn select_fields(&self, names: &[String]) -> Self {
        let mut limited = self.clone();
        let omitted = limited.fields.extract_if(.., |field| {
            let belongs_to =
                |name: &str| field.display_name().strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            !names.iter().any(|name| are_same_field(field.display_name(), name) || belongs_to(name))
        });
        limited.hints.omitted_fields.extend(omitted.map(|field| field.display_name().to_owned()));
        limited
    }

    pub(crate) fn uses(&self, column: usize) -> bool {
        self.used_columns().any(|other| other == column)
    }

    pub(crate) fn used_columns(&self) -> impl Iterator<Item = usize> {
        self.image.into_iter().chain(self.fields.iter().map(|field| field.column)).chain(self.label)
    }

    pub(crate) fn image(&self) -> Option<usize> {
        self.image
    }

    pub(crate) fn label(&self) -> Option<usize> {
        self.label
    }

    /// Sets the class names. For a text label column, these are the distinct values, or the user's
    /// class list. For a column of integers, they are `names`, if present. `read_value(row, column,
    /// scratch)` returns a value.
    pub(crate) fn with_learned_labels<'a>(
        mut self,
        columns: &[Column],
        names: Option<Vec<String>>,
        options: &Options,
        rows: usize,
        read_value: impl Fn(usize, usize, &mut Vec<u8>) -> Result<ColumnValue<'a>>,
    ) -> Result<Self> {
        let Some(label) = self.label else { return Ok(self) };
        if let Some(names) = names {
            self.labels = Some(Arc::new(Labels::NamedIntegers(names)));
        }
        if columns[label].column_type == ColumnType::Text {
            self.learn_labels(options.classes.as_ref(), options.defer_unknown_classes, |visit| {
                let mut scratch = Vec::new();
                (0..rows).try_for_each(|row| {
                    scratch.clear();
                    if let Cell::Text(text) = read_value(row, label, &mut scratch)?.cell(&scratch)? {
                        visit(row, text);
                    }
                    Ok(())
                })
            })?;
        }
        Ok(self)
    }

    /// Assigns class indices to text labels. `visit_rows` must call its argument with the index and
    /// the label of each row. `classes` is the user's class list. If `defer_unknown_classes` is
    /// true, a class outside the list is an error only when one of its samples is read.
    pub(crate) fn learn_labels(
        &mut self,
        classes: Option<&Classes>,
        defer_unknown_classes: bool,
        visit_rows: impl FnOnce(&mut dyn FnMut(usize, &str)) -> Result<()>,
    ) -> Result<()> {
        if self.label.is_none() {
            return Ok(());
        }
        let mut learner = LabelLearner::for_class_names();
        visit_rows(&mut |row, text| learner.add_value(row, text))?;
        let (labels, unknown) = learner.into_labels(classes, |_, _| {});
        if let Some(unknown) = unknown.filter(|_| !defer_unknown_classes) {
            return Err(Error::config(format!("row {}: {}", unknown.row, unknown.cause(classes))));
        }
        self.labels = labels.map(Arc::new);
        Ok(())
    }

    pub(crate) fn classes(&self) -> &[String] {
        match self.labels.as_deref() {
            Some(Labels::ClassNames { classes, .. } | Labels::NamedIntegers(classes)) => classes,
            _ => &[],
        }
    }

    /// Returns the names of the fields other than the image. The names of other image columns have
    /// no extension, because it depends on the format of each image.
    pub(crate) fn field_names(&self) -> Vec<String> {
        self.fields.iter().map(|field| field.display_name().to_owned()).collect()
    }

    pub(crate) fn label_of(&self, cell: Cell<'_>) -> Result<Option<i64>> {
        let labels = self.labels.as_deref().expect("there is a label column");
        match cell {
            Cell::Null => Ok(None),
            Cell::Text(text) => labels.label_of(text).map(Some).map_err(Error::in_source),
            cell => {
                let label = cell.integer().ok_or_else(|| Error::in_source("the label is not an integer"))?;
                match labels {
                    // Libraries that store class names write missing labels as negative numbers.
                    Labels::NamedIntegers(_) if label < 0 => Ok(None),
                    Labels::NamedIntegers(names) if label as usize >= names.len() => Err(Error::in_source(format!(
                        "label {label} has no name: the dataset names {}",
                        counted(names.len(), "class", "classes")
                    ))),
                    _ => Ok(Some(label)),
                }
            }
        }
    }

    /// Reads the sample of a row, with the row index as its key. `read_value` returns the value of
    /// a column in the row.
    pub(crate) fn read<'a>(
        &'a self,
        row: usize,
        scratch: &'a mut Vec<u8>,
        mut read_value: impl FnMut(usize, &mut Vec<u8>) -> Result<ColumnValue<'a>>,
    ) -> Result<Sample<'a>> {
        scratch.clear();
        write!(scratch, "{row}").expect("writing to a Vec cannot fail");
        let key = scratch.len();
        let mut contents = ArrayVec::<(usize, ColumnValue<'a>), { MAX_FIELDS + 1 }>::new();
        for column in self.used_columns() {
            contents.push((column, read_value(column, scratch)?));
        }
        let scratch: &'a [u8] = scratch;
        let key = std::str::from_utf8(&scratch[..key]).expect("written above");
        self.sample(key, |column| {
            let (_, content) = contents.iter().find(|(other, _)| *other == column).expect("found above");
            content.cell(scratch)
        })
    }

    /// Builds the sample of a row. `cell` returns the value of a column in the row.
    pub(crate) fn sample<'a>(
        &'a self,
        key: &'a str,
        mut cell: impl FnMut(usize) -> Result<Cell<'a>>,
    ) -> Result<Sample<'a>> {
        let mut sample = Sample::new(key).with_hints(&self.hints);
        if let Some(column) = self.image
            && let Some(bytes) = cell(column)?.bytes()
        {
            sample.push(format::detect(bytes).map_or("img", |format| format.field), bytes)?;
        }
        for field in &self.fields {
            let cell = cell(field.column)?;
            if let Some(value) = cell.value() {
                sample.push(field.name_of(cell), value)?;
            }
        }
        let label = self.label.map(|column| self.label_of(cell(column)?)).transpose()?.flatten();
        Ok(match label {
            Some(label) => sample.with_label(label),
            None => sample,
        })
    }
}

impl Field {
    fn new(column: usize, Column { name, column_type }: &Column) -> Self {
        let stem = name.to_lowercase().replace(['/', '\0'], "_");
        let extension = match column_type {
            ColumnType::Images => "img",
            ColumnType::Bytes => "bin",
            ColumnType::Text => "txt",
            ColumnType::Integers | ColumnType::Numbers => "npy",
            ColumnType::Json => "json",
            ColumnType::Unsupported(_) => unreachable!("not a field"),
        };
        let images = match column_type {
            ColumnType::Images => FORMATS.iter().map(|format| format!("{stem}.{}", format.field)).collect(),
            _ => Vec::new(),
        };
        Field { column, name: format!("{stem}.{extension}"), images }
    }

    /// Returns the field name for messages. For a column of images, the name has no extension,
    /// because the extension depends on the row.
    fn display_name(&self) -> &str {
        match self.images.is_empty() {
            true => &self.name,
            false => self.name.trim_end_matches(".img"),
        }
    }

    /// Returns the field name for a cell. If the column contains images, the name depends on the
    /// format of the image.
    fn name_of(&self, cell: Cell<'_>) -> &str {
        let format = cell
            .bytes()
            .filter(|_| !self.images.is_empty())
            .and_then(|bytes| FORMATS.iter().position(|format| (format.matches)(bytes)));
        format.map_or(&self.name, |format| &self.images[format])
    }
}

fn describe_columns(columns: &[Column]) -> String {
    let describe = |column: &Column| format!("{:?} ({})", column.name, column.column_type.description());
    let descriptions: Vec<String> = columns.iter().take(20).map(describe).collect();
    let omitted = columns.len() - descriptions.len();
    format!("{}{}", descriptions.join(", "), if omitted > 0 { format!(" and {omitted} more") } else { String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Numbers;

    fn columns(list: &[(&str, ColumnType)]) -> Vec<Column> {
        list.iter().map(|(name, column_type)| Column::new(*name, *column_type)).collect()
    }

    #[test]
    fn types_and_names_determine_the_use_of_a_column() {
        let list = columns(&[
            ("Mask", ColumnType::Images),
            ("image", ColumnType::Images),
            ("label", ColumnType::Integers),
            ("age", ColumnType::Numbers),
            ("caption", ColumnType::Text),
        ]);
        let uses = Columns::new(&list, &ColumnChoice::default()).unwrap();
        let (class, age) = ([3_i64], [1.5_f32]);
        let cells = [
            Cell::Bytes(b"\x89PNG"),
            Cell::Bytes(b"\xff\xd8\xff"),
            Cell::Numbers(Numbers::new(&class, &[]).unwrap()),
            Cell::Numbers(Numbers::new(&age, &[]).unwrap()),
            Cell::Null,
        ];
        let sample = uses.sample("7", |column| Ok(cells[column])).unwrap();
        assert_eq!(sample.names(), ["jpg", "mask.png", "age.npy"]);
        assert_eq!((sample.label().unwrap(), sample.image()), (Some(3), Some(("jpg", &b"\xff\xd8\xff"[..]))));
    }

    #[test]
    fn selecting_a_name_that_two_columns_have_is_refused() {
        let list = columns(&[("ints", ColumnType::Numbers), ("ints", ColumnType::Integers), ("a", ColumnType::Text)]);
        let choice = |name: &str| ColumnChoice { columns: Some(vec![name.to_owned()]), ..ColumnChoice::default() };
        let e = Columns::new(&list, &choice("ints")).unwrap_err().to_string();
        assert!(e.contains("two columns are called \"ints\"; rename one"), "{e}");
        assert!(Columns::new(&list, &choice("a")).is_ok());
    }

    #[test]
    fn a_selected_column_of_the_wrong_type_is_refused() {
        let list = columns(&[("image", ColumnType::Images), ("caption", ColumnType::Text)]);
        let choice = |image: &str| ColumnChoice { image: Some(image.to_owned()), ..ColumnChoice::default() };
        let cause = |image| Columns::new(&list, &choice(image)).unwrap_err().to_string();
        assert!(cause("caption").contains("column \"caption\" does not contain images"), "{}", cause("caption"));
        let listed = "no column \"photo\" among \"image\" (images), \"caption\" (text)";
        assert!(cause("photo").contains(listed), "{}", cause("photo"));
    }

    #[test]
    fn a_text_column_of_image_paths_leads_to_a_table() {
        let list = columns(&[("path", ColumnType::Text), ("label", ColumnType::Integers)]);
        let choice = |image: &str| ColumnChoice { image: Some(image.to_owned()), ..ColumnChoice::default() };
        let e = Columns::new(&list, &choice("path")).unwrap_err();
        assert!(e.cause().ends_with("the paths of images: write the table as CSV or JSON lines"), "{e}");
        let e = Columns::new(&list, &choice("label")).unwrap_err();
        assert!(e.cause().contains("the columns are \"path\" (text), \"label\" (integers)"), "{e}");
    }

    #[test]
    fn text_labels_are_numbered_by_name_or_by_the_class_list() {
        let list = columns(&[("label", ColumnType::Text)]);
        let texts = ["dog", "cat", "7"];
        let learned = |classes: Option<&Classes>| {
            let mut uses = Columns::new(&list, &ColumnChoice::default()).unwrap();
            uses.learn_labels(classes, false, |see| {
                texts.iter().enumerate().for_each(|(row, text)| see(row, text));
                Ok(())
            })?;
            let label = |text: &&'static str| uses.label_of(Cell::Text(text)).map(Option::unwrap);
            texts.iter().map(label).collect::<Result<Vec<_>>>()
        };
        assert_eq!(learned(None).unwrap(), [2, 1, 0]);
        assert_eq!(learned(Some(&Classes::new(["dog", "7", "cat"]).unwrap())).unwrap(), [0, 2, 1]);
        let e = learned(Some(&Classes::new(["dog", "7"]).unwrap())).unwrap_err();
        assert!(e.to_string().contains("row 1: class \"cat\""), "{e}");
    }
}
