//! [`TableOptions`]: describes the columns of a table.

use std::path::{Path, PathBuf};

use crate::options::ColumnChoice;

/// Describes the columns of a table.
///
/// ```no_run
/// use warpfeed_sources::{Options, TableOptions};
///
/// let columns = TableOptions::new()
///     .image("image_id") // a column of paths
///     .root("images") // the folder of these paths
///     .label("species")
///     .gather("attributes", ["age", "weight", "height"]); // a vector of three
/// let source = Options::new().table(columns).open("train.csv")?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
/// By default, the image paths are in the column called `path`, `file`, `image`, `filename`,
/// `file_name` or `img`, and are relative to the table's folder. The labels are in the column
/// called `label`, `class`, `cls` or `category`. These names are not case-sensitive. Every other
/// column becomes a field; [`Table`](crate::Table) lists the field names.
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
    /// Creates options with the default column names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the column with the image paths. These paths may point anywhere, whereas the paths of a
    /// detected column must stay inside the [`root`](TableOptions::root) folder.
    #[must_use]
    pub fn image(mut self, column: impl Into<String>) -> Self {
        self.image = Some(column.into());
        self
    }

    /// Sets the folder to which paths are relative. The default is the table's folder.
    #[must_use]
    pub fn root(mut self, folder: impl AsRef<Path>) -> Self {
        self.root = Some(folder.as_ref().to_owned());
        self
    }

    /// Sets the column with the labels, which are integers or class names.
    #[must_use]
    pub fn label(mut self, column: impl Into<String>) -> Self {
        self.label = Some(column.into());
        self
    }

    /// Opens the table without labels. A column called `label` becomes an ordinary field. For
    /// several labels per image, see `MultiHot`.
    #[must_use]
    pub fn without_label(mut self) -> Self {
        self.without_label = true;
        self
    }

    /// Selects the columns that become fields; all columns by default. The image, the label, and
    /// the columns that are passed to [`file`](TableOptions::file) and
    /// [`gather`](TableOptions::gather) need not be listed.
    #[must_use]
    pub fn columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Declares a column that contains the paths of files, such as masks. The content of the file
    /// becomes the sample's `<column>.<extension>` field, such as `mask.png`. Undeclared columns
    /// are treated the same way if their first 32 values look like paths with an extension, and at
    /// least one of those files exists in the [`root`](TableOptions::root) folder.
    #[must_use]
    pub fn file(mut self, column: impl Into<String>) -> Self {
        self.files.push(column.into());
        self
    }

    /// Combines the numbers in several columns into a vector, the field `name`. This is useful for
    /// tables with many columns, because a sample has at most 16 fields.
    #[must_use]
    pub fn gather(mut self, name: impl Into<String>, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.gathered.push((name.into(), columns.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the delimiter between cells, such as `b';'`. The default is a tab in `.tsv` and `.tab`
    /// files. In other files, it is a comma, or a semicolon or a tab if the header line contains no
    /// comma.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = Some(delimiter);
        self
    }

    /// Treats the first line as data instead of column names. The columns are called `0`, `1`, `2`,
    /// and so on.
    #[must_use]
    pub fn headerless(mut self) -> Self {
        self.headerless = true;
        self
    }

    /// Returns the name of an option that is set and applies only to text tables, if there is any.
    pub(crate) fn find_table_only_option(&self) -> Option<&'static str> {
        let set = [
            ("root", self.root.is_some()),
            ("file", !self.files.is_empty()),
            ("gather", !self.gathered.is_empty()),
            ("delimiter", self.delimiter.is_some()),
            ("headerless", self.headerless),
        ];
        set.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    pub(crate) fn column_choice(&self) -> ColumnChoice {
        ColumnChoice {
            image: self.image.clone(),
            label: self.label.clone(),
            without_label: self.without_label,
            columns: self.columns.clone(),
        }
    }
}
