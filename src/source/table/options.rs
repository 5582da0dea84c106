use std::path::{Path, PathBuf};

/// Meaning of the columns of a table.
///
/// ```no_run
/// use warpfeed::Loader;
/// use warpfeed::source::TableOptions;
///
/// let columns = TableOptions::new()
///     .picture("image_id") // a column of paths
///     .root("images") // that they are relative to
///     .label("species")
///     .gather("attributes", ["age", "weight", "height"]); // a vector of three
/// let loader = Loader::new("train.csv").table(columns);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// By default, the column `path`, `file`, `image`, `filename`, `file_name` or `img` has the paths of the
/// pictures, relative to the table's folder, and `label`, `class`, `cls` or `category` the labels.
/// Capitals do not matter here. Every other column is a field. [`Table`](super::Table) says which.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    pub(super) picture: Option<String>,
    pub(super) root: Option<PathBuf>,
    pub(super) label: Option<String>,
    pub(super) without_label: bool,
    pub(super) columns: Option<Vec<String>>,
    pub(super) files: Vec<String>,
    pub(super) gathered: Vec<(String, Vec<String>)>,
    pub(super) delimiter: Option<u8>,
    pub(super) headerless: bool,
}

impl TableOptions {
    /// Columns by their default names.
    pub fn new() -> Self {
        Self::default()
    }

    /// The column with the paths of the pictures. They may lead anywhere; those of a column that is
    /// chosen by its name stay below the folder.
    #[must_use]
    pub fn picture(mut self, column: impl Into<String>) -> Self {
        self.picture = Some(column.into());
        self
    }

    /// The folder that paths are relative to; that of the table by default.
    #[must_use]
    pub fn root(mut self, folder: impl AsRef<Path>) -> Self {
        self.root = Some(folder.as_ref().to_owned());
        self
    }

    /// The column with the labels: integers, or names of classes.
    #[must_use]
    pub fn label(mut self, column: impl Into<String>) -> Self {
        self.label = Some(column.into());
        self
    }

    /// No column has labels: one named `label` is a field, as any other. For several labels a
    /// picture; see [`MultiHot`](crate::field::MultiHot).
    #[must_use]
    pub fn without_label(mut self) -> Self {
        self.without_label = true;
        self
    }

    /// Takes these columns alone as fields, besides the picture, the label, and those that
    /// [`file`](TableOptions::file) and [`gather`](TableOptions::gather) name. All by default.
    #[must_use]
    pub fn columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// A column with the paths of further files, such as masks. A sample gets the file's bytes as
    /// the field `<column>.<extension>`: `mask.png`. Without it, a column is taken for such paths
    /// if its first value is the path of a file below the folder.
    #[must_use]
    pub fn file(mut self, column: impl Into<String>) -> Self {
        self.files.push(column.into());
        self
    }

    /// Joins the numbers of several columns into the vector field `name`. A sample has at most 16
    /// fields; so tables with more columns fit.
    #[must_use]
    pub fn gather(mut self, name: impl Into<String>, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.gathered.push((name.into(), columns.into_iter().map(Into::into).collect()));
        self
    }

    /// Delimiter of the cells, such as `b';'`. By default a tab in `.tsv` and `.tab` files,
    /// else a comma, or the semicolon or tab of a header without commas.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = Some(delimiter);
        self
    }

    /// The first line is a row. The columns are called `0`, `1`, `2`, ….
    #[must_use]
    pub fn headerless(mut self) -> Self {
        self.headerless = true;
        self
    }
}
