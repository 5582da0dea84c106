//! [`Table`]: a source that reads samples from the rows of a table.

use std::cell::Cell as Slot;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::cells::{CellKind, Cells};
use super::columns::Columns;
use super::csv::Csv;
use super::extension::{find_extension, has_known_extension, split_extension};
use super::sample_buffer::{Name, SampleBuffer, SampleRanges};
use super::scan::{TableScan, scan};
use super::syntax::Syntax;
use super::text::{line_of, read_text};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::machine::file::{self, is_below};
use crate::machine::slashes::normalize_separators;
use crate::model::store::Stores;
use crate::model::{Classes, Sample, Source};
use crate::options::TableOptions;
use crate::storage::referenced::{FolderListing, ReferencedFiles, delegate_to_referenced_files, is_url, url_of};
use crate::values::record::Labels;

/// The samples in a table: a CSV, TSV or JSON Lines file.
///
/// Each row is a sample. How a column is used depends on its name and its content, or on
/// [`TableOptions`]:
///
/// | column | in the sample |
/// |---|---|
/// | `path`, `file`, `image`, `filename`, `file_name` or `img`: a path | the image: `jpg`, `png`, ... |
/// | `label`, `class`, `cls` or `category`: integers | the label |
/// | the same columns with text | the label: the index of the text among all distinct texts of the column in sorted order, or in the list of classes |
/// | the same columns with non-integer numbers, or (in JSON Lines) with lists or objects | a field, as below |
/// | paths of other files, such as masks | the file, as `<column>.<extension>`: `mask.png` |
/// | numbers and text | `<column>.txt` |
/// | lists, and objects in JSON Lines | `<column>.json` |
///
/// A loader refers to a field by the name of its column:
/// `.field("age", NdArray::new(Dtype::F32, []))`. Field names are converted to lower case. The key
/// of a sample is the path of its image without the extension, or the row number, starting at 0, if
/// the table has no images.
///
/// ```no_run
/// // path,label,age
/// // cats/1.jpg,cat,3.5
/// let source = warpfeed_sources::open("train.csv")?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
///
/// The text must be UTF-8, with or without a byte order mark. Empty lines are ignored. An empty
/// cell in the label column means that the sample has no label.
///
/// **Files.** Paths are relative to the folder of the table, or to [`TableOptions::root`]. In a
/// column that is detected by its name or content, paths must stay inside this folder: reading a
/// sample with an absolute path or a `..` fails. In a column that you name with
/// [`TableOptions::image`] or [`TableOptions::file`], paths may point anywhere. Only regular files
/// are read. They may be up to 2 GiB in size.
///
/// **Omitted extensions.** Paths may omit the image extension, as in many tables with the columns
/// `image_id,label`. Opening checks the first 32 paths of each column of paths. If a path has
/// neither an image extension nor `.npy`, and no file with this path exists, opening tries the
/// extensions of all image formats. If files exist for exactly one extension, this extension is
/// appended to all paths of the column that have neither an image extension nor `.npy`. If files
/// exist for several extensions, opening fails.
///
/// **Quotes.** A CSV cell is quoted if its first character is a quote. Quoted cells may contain
/// delimiters, line ends and doubled quotes. A delimiter, a line end or the end of the file must
/// follow the closing quote. If a quote is not closed, or its closing quote is followed by anything
/// else, the cell could swallow the following rows. Opening then fails with an error that states
/// the line in which the cell starts. In unquoted cells, quotes are ordinary characters. Python's
/// `csv` with `strict=True` has the same rules.
///
/// **Columns.** Opening fails if the table has more than 4,096 columns.
///
/// **Invalid rows.** Reading a row fails if it has the wrong number of cells, contains invalid
/// JSON, or refers to a file that does not exist. If there are malformed rows, opening logs a
/// warning with their number and the line of the first one.
///
/// **Object stores.** The table and its files may be in an object store. Paths are then relative to
/// the URL of the table's folder, or to [`TableOptions::root`]. A column that you name with an
/// option may also contain URLs. Opening lists the folder that contains the files, and loaders
/// prefetch the files.
///
/// **Memory.** The text of the table and 8 bytes per row stay in memory. Opening parses the text
/// once, at least once more if there is a label column, and once more if the files are in an object
/// store. Each row is parsed again when it is read.
pub struct Table {
    pub(super) file: PathBuf,
    /// The folder to which paths are relative, with a trailing `/`. Empty for the current folder.
    root: String,
    text: String,
    pub(super) row_starts: Vec<usize>,
    pub(super) syntax: Syntax,
    pub(super) columns: Columns,
    pub(super) labels: Option<Labels>,
    pub(super) formats: Vec<Format>,
    /// The columns in which paths omit their extension, each with the extension and its dot.
    omitted_extensions: Vec<(usize, String)>,
    referenced_files: Option<ReferencedFiles>,
}

impl Table {
    /// Opens the table at `path` with the default options.
    ///
    /// # Errors
    /// See [`TableOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        TableOptions::new().open(path)
    }

    fn new(
        path: &Path,
        options: &TableOptions,
        classes: Option<&Classes>,
        defer_unknown_classes: bool,
        formats: Vec<Format>,
        stores: &Stores,
    ) -> Result<Self> {
        let root = options.root.clone().unwrap_or_else(|| path.parent().unwrap_or(Path::new("")).to_owned());
        let text = read_text(path, stores).map_err(|e| e.at_path(path))?;
        if text.trim().is_empty() {
            return Err(Error::in_source("the table is empty").at_path(path));
        }
        let syntax = detect_syntax(path, &text, options.delimiter);
        let table_scan = scan(&text, &syntax, options.headerless).map_err(|(offset, cause)| {
            let offset = row_start(text.as_bytes(), offset);
            cause.at_line(path, line_of(text.as_bytes(), offset))
        })?;
        let TableScan { names, mut row_starts, first_values, first_texts, first_malformed, malformed_count } =
            table_scan;
        row_starts.shrink_to_fit();
        let line_of_row = |row: usize| line_of(text.as_bytes(), row_start(text.as_bytes(), row_starts[row]));
        if let Some((row, cause)) = first_malformed {
            let (line, path) = (line_of_row(row), path.display());
            match malformed_count {
                1 => tracing::warn!("{path}: 1 malformed row, on line {line}: {cause}; reading it will fail"),
                _ => tracing::warn!(
                    "{path}: {malformed_count} malformed rows, the first on line {line}: {cause}; reading them will fail"
                ),
            }
        }
        let root = path_prefix(&root).map_err(|e| e.at_path(path))?;
        let folder = root.clone();
        let folder_listing = FolderListing::new(&folder);
        let is_file = |cell: &str| match is_url(&root) {
            // A URL outside the folder counts as text instead of a path.
            true => {
                Ok(url_of(&root, cell).starts_with(&root) && folder_listing.contains(&url_of(&root, cell), stores)?)
            }
            false => Ok(!is_url(cell) && file::is_file(Path::new(&root).join(cell))?),
        };
        let columns = Columns::new(names, &first_values, &first_texts, is_file, options);
        let columns = columns.map_err(|e| e.at_path(path))?;
        for ambiguity in columns.ambiguities(&first_values, &first_texts, options) {
            tracing::warn!("{}: {ambiguity}", path.display());
        }
        let mut omitted_extensions = Vec::new();
        for column in columns.paths() {
            let values = first_texts.get(column).map_or(&[][..], Vec::as_slice);
            let extension = find_extension(values, is_file, &formats).map_err(|e| e.at_path(path))?;
            omitted_extensions.extend(extension.map(|extension| (column, extension)));
        }
        let file = path.to_owned();
        let (labels, referenced_files) = (None, None);
        let mut table = Table {
            file,
            root,
            text,
            row_starts,
            syntax,
            columns,
            labels,
            formats,
            omitted_extensions,
            referenced_files,
        };
        table.learn_labels(classes, defer_unknown_classes, &first_values, options.label.is_some())?;
        table.find_files(&first_values, folder_listing, stores).map_err(|e| e.at_path(path))?;
        Ok(table)
    }

    /// Looks up the files that rows refer to, if they are in an object store.
    fn find_files(
        &mut self,
        first_values: &[Option<(CellKind, String)>],
        folder_listing: FolderListing<'_>,
        stores: &Stores,
    ) -> Result<()> {
        let columns: Vec<usize> = self.columns.paths().collect();
        let value = |column: usize| first_values.get(column)?.as_ref().map(|(_, value)| value.as_str());
        let has_url = |&column: &usize| value(column).is_some_and(is_url);
        if let Some(column) =
            columns.iter().copied().filter(has_url).find(|column| self.is_outside(*column, value(*column)))
        {
            let name = &self.columns.names[column];
            let option = if self.columns.image == Some(column) { "image" } else { "file" };
            return Err(Error::config(format!(
                "column {name:?} contains URLs outside {:?}: name the column with TableOptions::{option}({name:?}) \
                 to allow them",
                self.display_root()
            )));
        }
        if columns.is_empty() || !(is_url(&self.root) || columns.iter().any(has_url)) {
            return Ok(());
        }
        let mut urls = Vec::with_capacity(self.row_starts.len() * columns.len());
        let mut cells = Cells::default();
        for row in 0..self.row_starts.len() {
            let parsed = self.parse_row(row, &mut cells).is_ok();
            urls.extend(columns.iter().map(|&column| {
                let cell = cells.trimmed_text(column).filter(|cell| parsed && !self.is_outside(column, Some(cell)))?;
                Some(url_of(&self.root, cell) + self.omitted_extension(column, cell))
            }));
        }
        self.referenced_files = Some(ReferencedFiles::of(&urls, columns.len(), folder_listing, stores)?);
        Ok(())
    }

    /// Returns the root folder for messages. The current folder is shown as `.`.
    fn display_root(&self) -> &str {
        if self.root.is_empty() { "." } else { &self.root }
    }

    /// Returns whether the path in `cell` points outside the root folder. Always returns false for
    /// a column that an option names.
    fn is_outside(&self, column: usize, cell: Option<&str>) -> bool {
        let is_outside = |cell: &str| match is_url(cell) {
            true => !is_url(&self.root) || !cell.strip_prefix(&*self.root).is_some_and(is_below),
            false => !is_below(cell),
        };
        self.columns.detected_paths.contains(&column) && cell.is_some_and(is_outside)
    }

    pub(super) fn line(&self, row: usize) -> usize {
        let text = self.text.as_bytes();
        line_of(text, row_start(text, self.row_starts[row]))
    }

    pub(super) fn error_at(&self, row: usize, cause: impl Into<String>) -> Error {
        Error::in_source(cause).at_line(&self.file, self.line(row))
    }

    pub(super) fn parse_row(&self, row: usize, cells: &mut Cells) -> Result<()> {
        let start = self.row_starts[row];
        let names = &self.columns.names;
        let mut column_of = |key: &str| names.iter().position(|name| name == key).unwrap_or(names.len());
        let (_, parsed) = self.syntax.parse_row(&self.text, start, &mut column_of, cells);
        parsed.and_then(|()| self.syntax.check_complete(cells, names.len())).map_err(|cause| self.error_at(row, cause))
    }

    pub(super) fn read_label(&self, cells: &Cells, row: usize) -> Result<Option<i64>> {
        let (Some(column), Some(labels)) = (self.columns.label, &self.labels) else { return Ok(None) };
        let Some(value) = cells.trimmed_text(column) else { return Ok(None) };
        labels.label_of(value).map(Some).map_err(|cause| self.error_at(row, cause))
    }

    fn append_path(&self, buffer: &mut SampleBuffer<'_>, column: usize, cell: &str) -> Range<usize> {
        let root = if Path::new(cell).is_absolute() { "" } else { &*self.root };
        let start = buffer.push(root.as_bytes()).start;
        buffer.push(cell.as_bytes());
        start..buffer.push(self.omitted_extension(column, cell).as_bytes()).end
    }

    /// Returns the extension that the path `cell` omits, with its dot, or an empty string.
    fn omitted_extension(&self, column: usize, cell: &str) -> &str {
        let extension = self.omitted_extensions.iter().find(|(other, _)| *other == column);
        extension.filter(|_| !has_known_extension(cell, &self.formats)).map_or("", |(_, extension)| extension)
    }

    /// Splits the path in `cell` into the part before the extension, without a leading `./`, and
    /// the extension, without the dot. If the cell omits its extension, returns the extension that
    /// is appended to the column's paths.
    pub(super) fn split_path<'c>(&'c self, column: usize, cell: &'c str) -> (&'c str, &'c str) {
        match self.omitted_extension(column, cell) {
            "" => split_extension(cell),
            extension => (cell.strip_prefix("./").unwrap_or(cell), &extension[1..]),
        }
    }

    pub(super) fn read_path<'c>(&self, cells: &'c Cells, row: usize, column: usize) -> Result<&'c str> {
        let empty = || {
            self.error_at(row, format!("the cell in column {:?} is empty: expected a path", self.columns.names[column]))
        };
        cells.trimmed_text(column).ok_or_else(empty)
    }

    pub(super) fn append_file(
        &self,
        buffer: &mut SampleBuffer<'_>,
        row: usize,
        column: usize,
        cell: &str,
    ) -> Result<Range<usize>> {
        if self.is_outside(column, Some(cell)) {
            let (name, root) = (&self.columns.names[column], self.display_root());
            let option = if self.columns.image == Some(column) { "image" } else { "file" };
            return Err(self.error_at(
                row,
                format!(
                    "{cell:?} must be a relative path inside {root:?}: name the column with \
                     TableOptions::{option}({name:?}) to allow other paths"
                ),
            ));
        }
        if let Some(referenced_files) = &self.referenced_files {
            let path_index =
                self.columns.paths().position(|other| other == column).expect("`column` is a column of paths");
            let (url, mut bytes) = (url_of(&self.root, cell) + self.omitted_extension(column, cell), Vec::new());
            let read = referenced_files.read(row, path_index, &url, &mut bytes);
            return Ok(buffer.push(read.map_err(|e| e.named_in(&self.file, self.line(row)))?));
        }
        let path = self.append_path(buffer, column, cell);
        buffer.read(path.clone()).map_err(|e| self.read_error(buffer.text(path), row, &e))
    }

    fn read_error(&self, path: &str, row: usize, e: &std::io::Error) -> Error {
        Error::io(path, e).named_in(&self.file, self.line(row))
    }
}

/// Returns the offset of the first byte of the row at `start`, after any white space.
fn row_start(text: &[u8], start: usize) -> usize {
    start + text[start..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn detect_syntax(path: &Path, text: &str, delimiter: Option<u8>) -> Syntax {
    if has_any_extension(path, &["jsonl", "ndjson"]) {
        return Syntax::Json;
    }
    let header = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
    let default_delimiter = if has_any_extension(path, &["tsv", "tab"]) { b'\t' } else { Csv::delimiter(header) };
    Syntax::Csv(Csv::new(delimiter.unwrap_or(default_delimiter)))
}

/// Returns the folder as a prefix of paths, which ends in `/`. An empty path remains empty.
fn path_prefix(root: &Path) -> Result<String> {
    let text = root.to_str().ok_or_else(|| Error::config(format!("the folder {} is not UTF-8", root.display())))?;
    let root = if is_url(text) { text.to_owned() } else { normalize_separators(text).into_owned() };
    Ok(if root.is_empty() || root.ends_with('/') { root } else { root + "/" })
}

fn has_any_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|have| extensions.iter().any(|want| have.eq_ignore_ascii_case(want)))
}

impl TableOptions {
    /// Opens the table at `path`.
    ///
    /// # Errors
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be read.
    /// - [`ErrorKind::Source`](crate::ErrorKind::Source) if the text is empty, is not UTF-8 or
    ///   contains a zero byte, if a quote is invalid, or if there are more than 4,096 columns.
    ///   Except for an empty text, the error contains the line.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if the options contradict each other or do
    ///   not fit the table. Examples:
    ///   - The options name a column that the table does not have.
    ///   - Two columns have the same name.
    ///   - The samples would have more than 16 fields.
    ///   - The label column that the options name contains no labels.
    ///   - Two labels, such as `7` and `07`, denote the same integer.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Table> {
        self.open_with(path.as_ref(), None, false, Vec::new(), &Stores::default())
    }

    /// Opens the table at `path` with additional image `formats`, and with a list of `classes` that
    /// assigns indices to labels. If a class is not in the list, opening fails. If
    /// `defer_unknown_classes` is true, reading the samples of that class fails instead.
    pub(crate) fn open_with(
        &self,
        path: &Path,
        classes: Option<&Classes>,
        defer_unknown_classes: bool,
        formats: Vec<Format>,
        stores: &Stores,
    ) -> Result<Table> {
        Table::new(path, self, classes, defer_unknown_classes, formats, stores)
    }
}

thread_local! {
    static CELLS: Slot<Cells> = const { Slot::new(Cells::new()) };
}

impl Source for Table {
    fn len(&self) -> usize {
        self.row_starts.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let mut cells = CELLS.take();
        let parsed = self.parse_row(index, &mut cells);
        let ranges = parsed.and_then(|()| self.assemble(index, &cells, &mut SampleBuffer::new(scratch)));
        CELLS.set(cells);
        let SampleRanges { key, label, fields } = ranges?;
        let buffer: &'a [u8] = scratch;
        let text = |range: Range<usize>| std::str::from_utf8(&buffer[range]).expect("paths and names are UTF-8");
        let mut sample = Sample::new(text(key)).with_hints(&self.columns.hints);
        for (name, bytes) in fields {
            let name = match name {
                Name::Static(name) => name,
                Name::InBuffer(range) => text(range),
            };
            sample.push(name, &buffer[bytes]).map_err(|e| e.at_line(&self.file, self.line(index)))?;
        }
        Ok(match label {
            Some(label) => sample.with_label(label),
            None => sample,
        })
    }

    fn label(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let mut cells = CELLS.take();
        let label = self.parse_row(index, &mut cells).and_then(|()| self.read_label(&cells, index));
        CELLS.set(cells);
        label
    }

    /// Does not check that the image exists, so that the `keys` option of `pack` can exclude
    /// samples whose image is missing.
    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let Some(column) = self.columns.image else { return Ok(index.to_string()) };
        let mut cells = CELLS.take();
        let parsed = self.parse_row(index, &mut cells);
        let key =
            parsed.and_then(|()| Ok(self.split_path(column, self.read_path(&cells, index, column)?).0.to_owned()));
        CELLS.set(cells);
        key
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        let mut cells = Cells::default();
        let column = self.columns.image.filter(|_| self.parse_row(index, &mut cells).is_ok());
        let path = column.and_then(|column| {
            let cell = cells.trimmed_text(column)?;
            Some(format!("{cell}{}", self.omitted_extension(column, cell)))
        });
        Some(match path {
            None => self.file.clone(),
            Some(path) if self.referenced_files.is_some() => url_of(&self.root, &path).into(),
            Some(path) => Path::new(&self.root).join(path),
        })
    }

    delegate_to_referenced_files!();

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.columns.stems().map(str::to_owned).collect())
    }

    fn has_images(&self) -> Option<bool> {
        Some(self.columns.image.is_some())
    }

    fn classes(&self) -> &[String] {
        match &self.labels {
            Some(Labels::ClassNames { classes, .. }) => classes,
            _ => &[],
        }
    }

    fn kind(&self) -> &'static str {
        "table"
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("file", &self.file)
            .field("rows", &self.row_starts.len())
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}
