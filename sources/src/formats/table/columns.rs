use std::path::Path;

use super::cells::Cell;
use crate::error::{Error, Result};
use crate::format::field_of_file;
use crate::machine::file::is_below;
use crate::medium::stored::is_url;
use crate::model::sample::{Lacks, MAX_FIELDS};
use crate::options::TableOptions;
use crate::values::record::whole;

/// Default names of the column of images. The first one in this list that a table has is used.
const IMAGES: [&str; 6] = ["path", "file", "image", "filename", "file_name", "img"];

/// Default names of the column of labels.
const LABELS: [&str; 4] = ["label", "class", "cls", "category"];

/// Use of each column in a sample.
#[derive(Debug)]
pub(super) struct Columns {
    /// The columns' names, for messages.
    pub(super) names: Vec<String>,
    pub(super) image: Option<usize>,
    pub(super) label: Option<usize>,
    /// Columns with the paths of further files, and the stems of their fields.
    pub(super) files: Vec<(usize, String)>,
    /// Columns of paths that no option names. Their paths must stay below the table's folder.
    pub(super) guessed: Vec<usize>,
    pub(super) fields: Vec<Field>,
    /// Vector fields: the name, and the columns that are joined.
    pub(super) gathered: Vec<(String, Vec<usize>)>,
    pub(super) lacks: Lacks,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) column: usize,
    /// Names of the field, for a cell with text and for a cell with JSON.
    pub(super) text: String,
    pub(super) json: String,
    /// Whether the first value is a list. In a CSV, all values are JSON then.
    pub(super) all_json: bool,
}

/// The names of all columns.
struct Header<'a>(&'a [String]);

impl Header<'_> {
    fn check_unique(&self) -> Result<()> {
        for (place, name) in self.0.iter().enumerate() {
            if let Some(before) = self.0[..place].iter().position(|other| other == name) {
                return Err(Error::config(format!("columns {before} and {place} are both called {name:?}")));
            }
        }
        Ok(())
    }

    fn named(&self, name: &String) -> Result<usize> {
        let found = self.0.iter().position(|have| have == name);
        found.ok_or_else(|| Error::config(format!("no column {name:?} among {}", shown(self.0))))
    }

    fn all(&self, names: &[String]) -> Result<Vec<usize>> {
        names.iter().map(|name| self.named(name)).collect()
    }

    fn default(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|want| self.0.iter().position(|have| have.eq_ignore_ascii_case(want)))
    }

    fn image(&self, options: &TableOptions) -> Result<Option<usize>> {
        let chosen = options.image.as_ref().map(|name| self.named(name)).transpose()?;
        let image = chosen.or_else(|| self.default(&IMAGES));
        if image.is_none()
            && !options.headerless
            && let Some(path) = self.0.iter().find(|name| is_image_file(name))
        {
            return Err(Error::config(format!(
                "no column of images among {}: {path:?} looks like a value. Does the table lack a line with the names of \
                 its columns? Choose TableOptions::headerless then, or the column with TableOptions::image",
                shown(self.0)
            )));
        }
        Ok(image)
    }

    fn label(&self, options: &TableOptions, image: Option<usize>) -> Result<Option<usize>> {
        match (&options.label, options.without_label) {
            (Some(_), true) => Err(Error::config("label and without_label exclude each other")),
            (Some(name), false) => self.named(name).map(Some),
            (None, true) => Ok(None),
            (None, false) => Ok(self.default(&LABELS).filter(|&column| Some(column) != image)),
        }
    }
}

/// Whether the first values of the column `name`, which are `texts`, are paths, and one of them is
/// that of a file below the folder. Warns of names of images that are not.
///
/// # Errors
/// The errors of `is_file`.
fn are_files(name: &str, texts: &[String], is_file: impl Fn(&str) -> Result<bool>) -> Result<bool> {
    let may_be = |value: &String| Path::new(value).extension().is_some() && value.parse::<f64>().is_err();
    if texts.is_empty() || !texts.iter().all(may_be) {
        return Ok(false);
    }
    for path in texts {
        if is_below(path) && is_file(path)? {
            return Ok(true);
        }
    }
    if texts.iter().all(|path| is_image_file(path) && !is_url(path)) {
        tracing::warn!(
            "column {name:?} has names of images, such as {:?}, but none of the first {} is a file below the folder of \
             the table: it is read as text; TableOptions can name the folder of the files, or the column",
            texts[0],
            texts.len(),
        );
    }
    Ok(false)
}

impl Columns {
    /// Decides the use of each column of `names`. `first` holds the first value of each column, if
    /// any, and `texts` the first texts. `is_file` says whether a path is that of a file.
    ///
    /// # Errors
    /// If the table lacks a column that the options name, if two columns have one name, or if there
    /// are more columns than a sample can have fields. The errors of `is_file`.
    pub(super) fn new(
        names: Vec<String>,
        first: &[Option<(Cell, String)>],
        texts: &[Vec<String>],
        is_file: impl Fn(&str) -> Result<bool>,
        options: &TableOptions,
    ) -> Result<Self> {
        let header = Header(&names);
        header.check_unique()?;
        let image = header.image(options)?;
        let label = header.label(options, image)?;
        let mut guessed: Vec<usize> = image.filter(|_| options.image.is_none()).into_iter().collect();
        let mut used: Vec<usize> = image.into_iter().chain(label).collect();
        let mut gathered = Vec::new();
        for (name, columns) in &options.gathered {
            let columns: Vec<usize> = header.all(columns)?;
            used.extend(&columns);
            gathered.push((format!("{}.txt", stem(name)), columns));
        }
        let mut files = Vec::new();
        for name in &options.files {
            let column = header.named(name)?;
            used.push(column);
            files.push((column, stem(name)));
        }
        let taken = options.columns.as_ref().map(|names| header.all(names)).transpose()?;
        let mut fields = Vec::new();
        for (column, name) in names.iter().enumerate() {
            if used.contains(&column) || taken.as_ref().is_some_and(|taken| !taken.contains(&column)) {
                continue;
            }
            let value = first.get(column).and_then(Option::as_ref);
            let texts = texts.get(column).filter(|_| value.is_some_and(|(cell, _)| *cell == Cell::Text));
            if are_files(name, texts.map_or(&[], Vec::as_slice), &is_file)? {
                files.push((column, stem(name)));
                guessed.push(column);
                continue;
            }
            fields.push(field(column, name, value));
        }
        let is_integer = |field: &&Field| {
            let value = first.get(field.column).and_then(Option::as_ref);
            label.is_none() && !options.without_label && value.is_some_and(|(_, value)| whole(value).is_some())
        };
        let integers: Vec<&str> = fields.iter().filter(is_integer).map(|field| &*names[field.column]).collect();
        let lacks = Lacks { image: None, label: Lacks::label_of(&integers) };
        let columns = Columns { names, image, label, files, guessed, fields, gathered, lacks };
        columns.check()?;
        Ok(columns)
    }

    /// The columns of paths: the image, then further files.
    pub(super) fn paths(&self) -> impl Iterator<Item = usize> + '_ {
        self.image.into_iter().chain(self.files.iter().map(|(column, _)| *column))
    }

    /// Makes the column of labels a field, because its values are not labels.
    pub(super) fn label_is_a_field(&mut self, value: Option<&(Cell, String)>) -> Result<()> {
        if let Some(column) = self.label.take() {
            self.fields.push(field(column, &self.names[column], value));
        }
        self.check()
    }

    /// Names of the fields besides the image, without the endings, which depend on the row.
    pub(super) fn stems(&self) -> impl Iterator<Item = &str> {
        let without_end = |name: &'_ str| name.len() - ".txt".len();
        let files = self.files.iter().map(|(_, stem)| &**stem);
        let fields = self.fields.iter().map(|field| &*field.text);
        let texts = fields.chain(self.gathered.iter().map(|(name, _)| &**name));
        files.chain(texts.map(move |name| &name[..without_end(name)]))
    }

    fn check(&self) -> Result<()> {
        let stems: Vec<&str> = self.stems().collect();
        if let Some(twice) = stems.iter().enumerate().find_map(|(i, stem)| stems[..i].contains(stem).then_some(stem)) {
            return Err(Error::config(format!("two columns would become the field {twice:?}")));
        }
        let (fields, most) = (stems.len() + usize::from(self.image.is_some()), MAX_FIELDS);
        if fields > most {
            return Err(Error::config(format!(
                "{fields} columns would be fields, a sample has at most {most}; choose with TableOptions::columns, or join \
                 numbers with TableOptions::gather"
            )));
        }
        Ok(())
    }
}

fn field(column: usize, name: &str, value: Option<&(Cell, String)>) -> Field {
    let stem = stem(name);
    let all_json = value.is_some_and(|(cell, _)| *cell == Cell::Json);
    Field { column, text: format!("{stem}.txt"), json: format!("{stem}.json"), all_json }
}

/// Stem of the field's name: in lower case, like a file extension in WebDataset.
fn stem(column: &str) -> String {
    column.to_lowercase().replace(['/', '\0'], "_")
}

/// Whether a column's name is the path of an image.
fn is_image_file(name: &str) -> bool {
    Path::new(name).extension().and_then(|end| end.to_str()).is_some_and(|end| field_of_file(end, &[]).is_some())
}

/// The names of columns for a message.
fn shown(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(20).map(|name| format!("{name:?}")).collect();
    let more = names.len() - shown.len();
    format!("{}{}", shown.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}
