//! Decides how each column of a table is used.

use std::path::Path;

use super::cells::CellKind;
use crate::error::{Error, Result};
use crate::format::field_for_extension;
use crate::machine::file::is_below;
use crate::model::sample::{MAX_FIELDS, MessageHints};
use crate::options::TableOptions;
use crate::storage::referenced::is_url;
use crate::values::record::parse_integer;

/// Default names of the image column, in order of preference.
const IMAGE_NAMES: [&str; 6] = ["path", "file", "image", "filename", "file_name", "img"];

/// Default names of the label column, in order of preference.
const LABEL_NAMES: [&str; 4] = ["label", "class", "cls", "category"];

#[derive(Debug)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    pub(super) image: Option<usize>,
    pub(super) label: Option<usize>,
    /// The columns that contain paths, each with the stem of its field name.
    pub(super) path_columns: Vec<(usize, String)>,
    /// The path columns that no option names. Their paths must stay inside the root folder.
    pub(super) detected_paths: Vec<usize>,
    pub(super) fields: Vec<Field>,
    /// The name of each vector field, and the columns that it combines.
    pub(super) gathered: Vec<(String, Vec<usize>)>,
    /// Text for the error messages about samples without an image or a label.
    pub(super) hints: MessageHints,
}

/// A column that becomes a field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) column: usize,
    /// Field name for cells that contain text.
    pub(super) text_name: String,
    /// Field name for cells that contain JSON.
    pub(super) json_name: String,
    /// Whether the column's first value is JSON. All values of such a column in a CSV file are read
    /// as JSON.
    pub(super) is_json: bool,
}

struct Header<'a>(&'a [String]);

impl Header<'_> {
    fn check_unique(&self) -> Result<()> {
        for (column, name) in self.0.iter().enumerate() {
            if let Some(first) = self.0[..column].iter().position(|other| other == name) {
                return Err(Error::config(format!(
                    "columns {first} and {column} have the same name {name:?}: rename one of them"
                )));
            }
        }
        Ok(())
    }

    fn column(&self, name: &String) -> Result<usize> {
        let index = self.0.iter().position(|have| have == name);
        index.ok_or_else(|| Error::config(format!("no column {name:?}: the table has {}", list_names(self.0))))
    }

    fn columns(&self, names: &[String]) -> Result<Vec<usize>> {
        names.iter().map(|name| self.column(name)).collect()
    }

    /// Returns the index of the column that has the earliest of `names`, ignoring case.
    fn find_any(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|want| self.0.iter().position(|have| have.eq_ignore_ascii_case(want)))
    }

    /// Returns a warning if further columns that satisfy `is_candidate` have one of `names`. `chosen`
    /// is the column that was found by its name, and `option` chooses a different one.
    fn ambiguity(
        &self,
        chosen: Option<usize>,
        names: &[&str],
        is_candidate: impl Fn(usize) -> bool,
        option: &str,
    ) -> Option<String> {
        let chosen = chosen?;
        let is_named = |name: &String| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        let is_other = |column: usize| column != chosen && is_candidate(column) && is_named(&self.0[column]);
        let others: Vec<&String> =
            self.0.iter().enumerate().filter(|(column, _)| is_other(*column)).map(|(_, name)| name).collect();
        (!others.is_empty()).then(|| {
            format!(
                "column {:?} is the {option}, although the name of {others:?} also fits: choose the column with \
                 TableOptions::{option}",
                self.0[chosen]
            )
        })
    }

    fn image_column(&self, options: &TableOptions) -> Result<Option<usize>> {
        let named_column = options.image.as_ref().map(|name| self.column(name)).transpose()?;
        let image = named_column.or_else(|| self.find_any(&IMAGE_NAMES));
        if image.is_none()
            && !options.headerless
            && let Some(path) = self.0.iter().find(|name| is_image_file(name))
        {
            return Err(Error::config(format!(
                "the columns {} include no image column, and the name {path:?} looks like a value. If the table has no \
                 header line, set TableOptions::headerless; otherwise, choose the column with TableOptions::image",
                list_names(self.0)
            )));
        }
        Ok(image)
    }

    fn label_column(&self, options: &TableOptions, image: Option<usize>) -> Result<Option<usize>> {
        match (&options.label, options.without_label) {
            (Some(_), true) => Err(Error::config("label and without_label cannot be combined")),
            (Some(name), false) => self.column(name).map(Some),
            (None, true) => Ok(None),
            (None, false) => Ok(self.find_any(&LABEL_NAMES).filter(|&column| Some(column) != image)),
        }
    }
}

/// Returns whether the column `name` contains paths: all of its first values `texts` must look like
/// paths, and at least one must exist in the root folder. Logs a warning if all of them look like
/// image paths but none exists.
fn contains_paths(name: &str, texts: &[String], is_file: impl Fn(&str) -> Result<bool>) -> Result<bool> {
    let may_be_path = |value: &String| Path::new(value).extension().is_some() && value.parse::<f64>().is_err();
    if texts.is_empty() || !texts.iter().all(may_be_path) {
        return Ok(false);
    }
    for path in texts {
        if is_below(path) && is_file(path)? {
            return Ok(true);
        }
    }
    if texts.iter().all(|path| is_image_file(path) && !is_url(path)) {
        tracing::warn!(
            "column {name:?} seems to contain image paths (such as {:?}), but none of the first {} exists in the root \
             folder, so the column is read as text; set the root folder of the files, or name the column with \
             TableOptions::file({name:?})",
            texts[0],
            texts.len(),
        );
    }
    Ok(false)
}

impl Columns {
    /// `first_values[i]` is the first value of column `i`, and `first_texts[i]` contains its first
    /// few texts. `is_file` returns whether a path relative to the root folder is a file.
    pub(super) fn new(
        names: Vec<String>,
        first_values: &[Option<(CellKind, String)>],
        first_texts: &[Vec<String>],
        is_file: impl Fn(&str) -> Result<bool>,
        options: &TableOptions,
    ) -> Result<Self> {
        let header = Header(&names);
        header.check_unique()?;
        let image = header.image_column(options)?;
        let label = header.label_column(options, image)?;
        let mut detected_paths: Vec<usize> = image.filter(|_| options.image.is_none()).into_iter().collect();
        let mut used_columns: Vec<usize> = image.into_iter().chain(label).collect();
        let mut gathered = Vec::new();
        for (name, columns) in &options.gathered {
            let columns: Vec<usize> = header.columns(columns)?;
            used_columns.extend(&columns);
            gathered.push((format!("{}.txt", stem(name)), columns));
        }
        let mut path_columns = Vec::new();
        for name in &options.files {
            let column = header.column(name)?;
            used_columns.push(column);
            path_columns.push((column, stem(name)));
        }
        let selected = options.columns.as_ref().map(|names| header.columns(names)).transpose()?;
        let mut fields = Vec::new();
        for (column, name) in names.iter().enumerate() {
            if used_columns.contains(&column) || selected.as_ref().is_some_and(|selected| !selected.contains(&column)) {
                continue;
            }
            let value = first_values.get(column).and_then(Option::as_ref);
            let texts = first_texts.get(column).filter(|_| value.is_some_and(|(cell, _)| *cell == CellKind::Text));
            if contains_paths(name, texts.map_or(&[], Vec::as_slice), &is_file)? {
                path_columns.push((column, stem(name)));
                detected_paths.push(column);
                continue;
            }
            fields.push(field(column, name, value));
        }
        let is_integer = |field: &&Field| {
            let value = first_values.get(field.column).and_then(Option::as_ref);
            label.is_none() && !options.without_label && value.is_some_and(|(_, value)| parse_integer(value).is_some())
        };
        let integers: Vec<&str> = fields.iter().filter(is_integer).map(|field| &*names[field.column]).collect();
        let hints = MessageHints { label: MessageHints::label_hint(&integers), ..MessageHints::default() };
        let columns = Columns { names, image, label, path_columns, detected_paths, fields, gathered, hints };
        columns.check()?;
        Ok(columns)
    }

    /// Returns a warning for the image and for the label, if several columns have one of the
    /// [`IMAGE_NAMES`] or [`LABEL_NAMES`] and no option chooses. `first_values` and `first_texts` are
    /// as in [`Columns::new`].
    pub(super) fn ambiguities(
        &self,
        first_values: &[Option<(CellKind, String)>],
        first_texts: &[Vec<String>],
        options: &TableOptions,
    ) -> Vec<String> {
        let header = Header(&self.names);
        // A column that an option uses is not a candidate.
        let gathered = options.gathered.iter().flat_map(|(_, names)| names);
        let used: Vec<&String> = options.files.iter().chain(gathered).collect();
        let is_unused = |column: usize| !used.contains(&&self.names[column]);
        let is_number = |text: &String| text.parse::<f64>().is_ok();
        let has_text = |column: usize| first_texts.get(column).is_some_and(|texts| !texts.iter().all(is_number));
        let has_value = |column: usize| first_values.get(column).is_some_and(Option::is_some);
        let is_image = |column| is_unused(column) && has_text(column) && Some(column) != self.label;
        let is_label = |column| is_unused(column) && has_value(column) && Some(column) != self.image;
        let image = self.image.filter(|_| options.image.is_none());
        let label = self.label.filter(|_| options.label.is_none());
        let image = header.ambiguity(image, &IMAGE_NAMES, is_image, "image");
        image.into_iter().chain(header.ambiguity(label, &LABEL_NAMES, is_label, "label")).collect()
    }

    /// Iterates over the columns of paths, starting with the image column.
    pub(super) fn paths(&self) -> impl Iterator<Item = usize> + '_ {
        self.image.into_iter().chain(self.path_columns.iter().map(|(column, _)| *column))
    }

    /// Turns the label column into an ordinary field, because its values are not labels.
    pub(super) fn use_label_as_field(&mut self, value: Option<&(CellKind, String)>) -> Result<()> {
        if let Some(column) = self.label.take() {
            self.fields.push(field(column, &self.names[column], value));
        }
        self.check()
    }

    /// Iterates over the names of all fields except the image, without their extensions, which
    /// depend on the row.
    pub(super) fn stems(&self) -> impl Iterator<Item = &str> {
        let stem_len = |name: &'_ str| name.len() - ".txt".len();
        let path_columns = self.path_columns.iter().map(|(_, stem)| &**stem);
        let fields = self.fields.iter().map(|field| &*field.text_name);
        let texts = fields.chain(self.gathered.iter().map(|(name, _)| &**name));
        path_columns.chain(texts.map(move |name| &name[..stem_len(name)]))
    }

    fn check(&self) -> Result<()> {
        let stems: Vec<&str> = self.stems().collect();
        if let Some(duplicate) =
            stems.iter().enumerate().find_map(|(i, stem)| stems[..i].contains(stem).then_some(stem))
        {
            return Err(Error::config(format!("two columns would become the field {duplicate:?}: rename one of them")));
        }
        let (fields, limit) = (stems.len() + usize::from(self.image.is_some()), MAX_FIELDS);
        if fields > limit {
            return Err(Error::config(format!(
                "{fields} columns would become fields, but a sample has at most {limit} fields: select columns with \
                 TableOptions::columns, or combine numbers with TableOptions::gather"
            )));
        }
        Ok(())
    }
}

fn field(column: usize, name: &str, value: Option<&(CellKind, String)>) -> Field {
    let stem = stem(name);
    let is_json = value.is_some_and(|(cell, _)| *cell == CellKind::Json);
    Field { column, text_name: format!("{stem}.txt"), json_name: format!("{stem}.json"), is_json }
}

/// Field names are in lower case, as in WebDataset.
fn stem(column: &str) -> String {
    column.to_lowercase().replace(['/', '\0'], "_")
}

fn is_image_file(name: &str) -> bool {
    Path::new(name).extension().and_then(|end| end.to_str()).is_some_and(|end| field_for_extension(end, &[]).is_some())
}

fn list_names(names: &[String]) -> String {
    let quoted_names: Vec<String> = names.iter().take(20).map(|name| format!("{name:?}")).collect();
    let more = names.len() - quoted_names.len();
    format!("{}{}", quoted_names.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

#[cfg(test)]
mod tests {
    use crate::formats::Table;
    use crate::options::TableOptions;
    use crate::warnings::Warnings;

    #[test]
    fn several_columns_that_could_be_the_image_or_the_label_cause_a_warning() {
        let root = tempfile::tempdir().unwrap();
        let warned = |options: TableOptions, text: &str| {
            let (path, warnings) = (root.path().join("t.csv"), Warnings::default());
            std::fs::write(&path, text).unwrap();
            let opened: Result<Table, _> = tracing::subscriber::with_default(warnings.clone(), || options.open(&path));
            opened.unwrap();
            let warnings = warnings.0.lock().unwrap().join("\n");
            warnings.replace(path.to_str().unwrap(), "t.csv")
        };
        let text = "image,path,class,label\na,b.jpg,3,cat\n";
        let image = "t.csv: column \"path\" is the image, although the name of [\"image\"] also fits: choose the column \
                     with TableOptions::image";
        let label = "t.csv: column \"label\" is the label, although the name of [\"class\"] also fits: choose the column \
                     with TableOptions::label";
        assert_eq!(warned(TableOptions::new(), text), format!("{image}\n{label}"));
        assert_eq!(warned(TableOptions::new().image("path").label("label"), text), "");
        assert_eq!(warned(TableOptions::new().label("class").file("image"), text), "");
        // Numbers are not paths.
        assert_eq!(warned(TableOptions::new(), "image,path\n7,b.jpg\n"), "");
    }
}
