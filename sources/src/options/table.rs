use std::path::{Path, PathBuf};

use crate::options::Wanted;

/// Meaning of the columns of a table.
///
/// ```no_run
/// use warpfeed_sources::{Options, TableOptions};
///
/// let columns = TableOptions::new()
///     .image("image_id") // a column of paths
///     .root("images") // that they are relative to
///     .label("species")
///     .gather("attributes", ["age", "weight", "height"]); // a vector of three
/// let source = Options::new().table(columns).open("train.csv")?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
/// By default, the column `path`, `file`, `image`, `filename`, `file_name` or `img` holds the paths
/// of the images, relative to the table's folder, and `label`, `class`, `cls` or `category` holds
/// the labels. The case of these names is ignored. Every other column is a field;
/// [`Table`](crate::Table) lists its name.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    pub(crate) image: Option<String>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) label: Option<String>,
    pub(crate) without_label: bool,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) files: Vec<String>,
    pub(crate) gathered: Vec<(String, Vec<String>)>,
    pub(crate) delimiter: Option<u8>,
    pub(crate) headerless: bool,
}

impl TableOptions {
    /// Creates options with the default names of columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the column with the paths of the images. These paths may lead anywhere; paths in a
    /// column with a default name must stay below the folder.
    #[must_use]
    pub fn image(mut self, column: impl Into<String>) -> Self {
        self.image = Some(column.into());
        self
    }

    /// Sets the folder that paths are relative to; the table's folder by default.
    #[must_use]
    pub fn root(mut self, folder: impl AsRef<Path>) -> Self {
        self.root = Some(folder.as_ref().to_owned());
        self
    }

    /// Sets the column with the labels: integers or class names.
    #[must_use]
    pub fn label(mut self, column: impl Into<String>) -> Self {
        self.label = Some(column.into());
        self
    }

    /// Reads no labels: a column named `label` is a field like any other. For several labels per
    /// image see `MultiHot`.
    #[must_use]
    pub fn without_label(mut self) -> Self {
        self.without_label = true;
        self
    }

    /// Limits the fields to these columns, the image, the label, and the columns of
    /// [`file`](TableOptions::file) and [`gather`](TableOptions::gather). All columns by default.
    #[must_use]
    pub fn columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a column with the paths of further files, such as masks. A sample gets the file's bytes
    /// as the field `<column>.<extension>`: `mask.png`. Other columns hold such paths if their
    /// first 32 values are paths with an extension, and at least one is that of a file below the
    /// folder.
    #[must_use]
    pub fn file(mut self, column: impl Into<String>) -> Self {
        self.files.push(column.into());
        self
    }

    /// Joins the numbers of several columns into the vector field `name`. This makes room for more
    /// columns: a sample has at most 16 fields.
    #[must_use]
    pub fn gather(mut self, name: impl Into<String>, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.gathered.push((name.into(), columns.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the delimiter of the cells, such as `b';'`. By default it is a tab in `.tsv` and `.tab`
    /// files, otherwise a comma, or the semicolon or tab of a header without commas.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = Some(delimiter);
        self
    }

    /// Reads the first line as a row. The columns are called `0`, `1`, `2`, ….
    #[must_use]
    pub fn headerless(mut self) -> Self {
        self.headerless = true;
        self
    }

    /// The first option that only describes tables, if one is set.
    pub(crate) fn of_tables_only(&self) -> Option<&'static str> {
        let set = [
            ("root", self.root.is_some()),
            ("file", !self.files.is_empty()),
            ("gather", !self.gathered.is_empty()),
            ("delimiter", self.delimiter.is_some()),
            ("headerless", self.headerless),
        ];
        set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// The uses of columns, for formats whose columns have types.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            image: self.image.clone(),
            label: self.label.clone(),
            without_label: self.without_label,
            columns: self.columns.clone(),
        }
    }
}
