//! [`Arrow`], a source that opens Arrow files and maps their columns to samples.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::cells::{BlockCache, CellReader, Form};
use super::schema::{Field, Kind, Schema};
use super::stream::{Batch, Stream};
use crate::error::{Error, Result, push};
use crate::machine::file::{self, is_below};
use crate::machine::parallel::in_parallel;
use crate::model::value::Element;
use crate::model::{Sample, Source};
use crate::options::Options;
use crate::storage::splits;
use crate::storage::tree::Tree;
use crate::storage::{DatasetLocation, Files, OpenFile, delegate_to_files};
use crate::values::features::{Features, FileFeatures};
use crate::values::record::{Column, ColumnType, ColumnValue, Columns, columns_error, guess_type};

const MAX_STATE_BYTES: u64 = 64 << 20;
/// File name of the list of data files. `datasets.save_to_disk` writes it after the data files.
const STATE_FILE: &str = "state.json";
const SPLITS_FILE: &str = "dataset_dict.json";

/// A dataset in Arrow files, written by `datasets.save_to_disk` or taken from the cache of the
/// `datasets` library.
///
/// Each row is a sample, and its key is the row number. Columns become fields:
///
/// | column | in the sample |
/// |---|---|
/// | images (the `Image` feature, or bytes in a supported format), preferably `image` | the image: `jpg`, `png`, ... |
/// | `label`, `labels`, `class`, ...: integers or text | the label; the names of a `ClassLabel` are the class names |
/// | other images, such as masks | `<column>.png` or a different format |
/// | numbers, dates and times, lists of numbers | `<column>.npy` |
/// | text | `<column>.txt` |
/// | other lists | `<column>.json` |
/// | a struct, or a list of structs | a separate column for each of its fields: `objects.bbox` |
/// | other bytes | `<column>.bin` |
///
/// A sample lacks a field or label with a null value. With class names, a negative label also means
/// that the sample has no label, as in `datasets`. If a row contains the path of an image instead
/// of its bytes, the path is relative to the folder of the Arrow file, and must not point outside
/// it unless [`TableOptions::image`] names the column.
///
/// **Zero-copy.** If the file is memory-mapped, most fields borrow from the map. Four kinds of
/// fields are copied: 16-bit floats become `f32`, booleans become `u8`, some nested values become
/// JSON, and images that are stored as paths are read from their files.
///
/// **Not supported**: dictionaries, decimals, unions, intervals, run-length encoded values, list
/// views, columns of the type null, and bytes inside nested values. By default, columns of these
/// types are ignored with a warning. Selecting one of them explicitly is an error. Opening also
/// fails if a file contains binary or string views, or compressed batches, as in most Feather
/// files.
///
/// [`TableOptions::image`]: crate::TableOptions::image
pub struct Arrow {
    kind: &'static str,
    files: Files<Batches>,
    /// All columns. Structs other than files are split into one column per field.
    fields: Vec<Field>,
    forms: Vec<Option<Form>>,
    columns: Columns,
    allows_outside_paths: bool,
}

struct Batches {
    batches: Vec<Batch>,
    /// Index of the first row of each batch, followed by the total number of rows.
    batch_starts: Vec<usize>,
}

impl Batches {
    fn new(mut batches: Vec<Batch>) -> Result<Self> {
        batches.retain(|batch| batch.rows > 0);
        let mut batch_starts = vec![0_usize];
        for batch in &batches {
            let end = batch_starts[batch_starts.len() - 1].checked_add(batch.rows);
            push(
                &mut batch_starts,
                end.ok_or_else(|| Error::in_source("the batches claim more rows than this machine can address"))?,
            )?;
        }
        Ok(Batches { batches, batch_starts })
    }

    fn len(&self) -> usize {
        self.batch_starts[self.batches.len()]
    }

    /// Returns the batch that contains `row`, and the index of the row in this batch.
    fn locate(&self, row: usize) -> (&Batch, u64) {
        let index = self.batch_starts.partition_point(|&start| start <= row) - 1;
        (&self.batches[index], (row - self.batch_starts[index]) as u64)
    }
}

impl Arrow {
    pub(crate) fn is_saved(folder: Tree<'_>) -> Result<bool> {
        Ok(folder.has_file(STATE_FILE)? || folder.has_file(SPLITS_FILE)?)
    }

    /// Opens an `.arrow` file, a folder written by `datasets.save_to_disk`, or a folder of `.arrow`
    /// files.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged or is not supported, if there are no files or no rows,
    /// if the files have different columns, or if a folder contains several splits.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_at(&DatasetLocation::local(path.as_ref()), &Options::new())
    }

    pub(crate) fn open_at(location: &DatasetLocation, options: &Options) -> Result<Self> {
        let path = &*location.path;
        let opened = in_parallel(&list_files(path, location.split.as_deref())?, |path| {
            let (file, _) = OpenFile::open(path, options.mapped)?;
            let range = 0..file.len();
            Ok((file, range, None))
        })?;
        Self::open_embedded("arrow", path, opened, options)
    }

    /// Opens Arrow data that is embedded in other files. For each file, `files` contains the byte
    /// range of the data and, if available, the expected number of rows. `kind` is the format of
    /// the dataset at `path`.
    pub(crate) fn open_embedded(
        kind: &'static str,
        path: &Path,
        files: Vec<(OpenFile, Range<u64>, Option<u64>)>,
        options: &Options,
    ) -> Result<Self> {
        let folder = if file::is_folder(path)? { path } else { path.parent().unwrap_or(Path::new("")) };
        let streams = in_parallel(&files, |(file, byte_range, rows)| {
            let read = Stream::read(file, byte_range.clone());
            read.and_then(|stream| stream.check_row_count(*rows)).map_err(|e| e.at_path(&file.path))
        })?;
        let first_path = files.first().map(|(file, ..)| file.path.clone()).unwrap_or_default();
        let mut schema: Option<Schema> = None;
        let mut features_json = Vec::new();
        let mut files_with_batches = Vec::new();
        for ((file, ..), stream) in files.into_iter().zip(streams) {
            let first = schema.get_or_insert_with(|| stream.schema.clone());
            if first.fields != stream.schema.fields {
                let names = |fields: &[Field]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
                let (expected, actual) = (&first.fields, &stream.schema.fields);
                let error = columns_error(&first_path, &names(expected), &names(actual), |column| {
                    expected[column].kind == actual[column].kind && expected[column].children == actual[column].children
                });
                return Err(error.at_path(&file.path));
            }
            features_json.extend(stream.schema.features.clone().map(|json| (file.path.clone(), json)));
            let batches = Batches::new(stream.batches).map_err(|e| e.at_path(&file.path))?;
            push(&mut files_with_batches, (file, batches))?;
        }
        let files = Files::new(files_with_batches, Batches::len)?;
        let schema = schema.ok_or_else(|| Error::in_source("the folder contains no .arrow files").at_path(path))?;
        if files.len() == 0 {
            return Err(Error::in_source("the files contain no rows").at_path(path));
        }
        let fields: Vec<Field> = schema.fields.iter().flat_map(Field::columns).collect();
        let forms = fields.iter().map(|field| Form::for_field(field).ok()).collect();
        let choice = options.column_choice();
        let mut arrow = Arrow {
            kind,
            files,
            fields,
            forms,
            columns: Columns::default(),
            allows_outside_paths: choice.image.is_some(),
        };
        let features = FileFeatures::new(Features::in_folder(folder)?, &features_json);
        let columns: Vec<Column> = (0..arrow.fields.len())
            .map(|column| {
                Ok(Column::new(arrow.fields[column].name.clone(), arrow.column_type(column, features.all())?))
            })
            .collect::<Result<_>>()?;
        let untyped_columns = Columns::new(&columns, &choice).map_err(|e| e.at_path(path))?;
        let read_value = |row, column, scratch: &mut Vec<u8>| arrow.read_value(row, column, scratch);
        let columns = features.learn_labels(untyped_columns, &columns, options, arrow.len(), read_value);
        arrow.columns = columns.map_err(|e| e.at_path(path))?;
        Ok(arrow)
    }

    fn column_type(&self, column: usize, features: &Features) -> Result<ColumnType> {
        let field = &self.fields[column];
        let form = match Form::for_field(field) {
            Ok(form) => form,
            Err(what) => return Ok(ColumnType::Unsupported(what)),
        };
        let kind = field.value().kind;
        let is_bytes = matches!(kind, Kind::Bytes { .. } | Kind::FixedBytes(_));
        Ok(match (form, kind) {
            (Form::File { .. }, _) => match features.file_column_type(&field.name) {
                Some(column_type) => column_type,
                None => self.sniff(column)?,
            },
            (Form::Plain, _) if is_bytes => self.sniff(column)?,
            (Form::Plain, Kind::Text { .. }) => ColumnType::Text,
            (Form::Plain, Kind::Number(Element::F32 | Element::F64) | Kind::Half) => ColumnType::Numbers,
            (Form::Plain, Kind::Null) => ColumnType::Unsupported("only nulls"),
            (Form::Plain, _) => ColumnType::Integers,
            (Form::Numbers, _) => ColumnType::Numbers,
            (Form::Json, _) => ColumnType::Json,
        })
    }

    fn sniff(&self, column: usize) -> Result<ColumnType> {
        guess_type(self.len(), |row, scratch| self.read_value(row, column, scratch))
    }

    fn read_value<'a>(&'a self, row: usize, column: usize, scratch: &mut Vec<u8>) -> Result<ColumnValue<'a>> {
        let (file, batches, row) = self.files.locate(row);
        let (batch, row_in_batch) = batches.locate(row);
        let (field, form): (&Field, _) = (&self.fields[column], self.forms[column]);
        let form = form.expect("`Columns` uses only supported columns");
        let reader = CellReader { column: &field.name, file, batch, blocks: &BlockCache::default() };
        reader.read_cell(field, form, row_in_batch, scratch).map_err(|e| e.at_path(&file.path))
    }
}

/// Returns the data files of the dataset at `path`, or of one of its splits.
fn list_files(path: &Path, split: Option<&str>) -> Result<Vec<PathBuf>> {
    let without_splits = |files| match split {
        Some(split) => {
            let cause = format!("no such file or folder, and the Arrow dataset {} has no splits", path.display());
            Err(Error::no_such_path(path.join(split), cause))
        }
        None => Ok(files),
    };
    if !file::is_folder(path)? {
        return without_splits(vec![path.to_owned()]);
    }
    let read = |name: &str| {
        let path = path.join(name);
        let text = file::read_text(&path, MAX_STATE_BYTES).map_err(|e| Error::io(&path, &e))?;
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| Error::in_source(format!("not valid JSON: {e}")).at_path(&path))?;
        Ok::<_, Error>((path, json))
    };
    if file::is_file(path.join(SPLITS_FILE))? {
        let (file, json) = read(SPLITS_FILE)?;
        let names = json["splits"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|name| name.as_str().filter(|name| is_below(name))).collect();
        if names.is_empty() {
            return Err(Error::in_source("the file lists no splits").at_path(file));
        }
        let folders = names.iter().map(|name| (Some((*name).to_owned()), vec![path.join(name)])).collect();
        let folder = splits::choose_split(path, folders, split)?.remove(0);
        return list_files(&folder, None);
    }
    if !file::is_file(path.join(STATE_FILE))? {
        let files = splits::files_in(path, "arrow")?;
        // Skip cached results, which the `map` of `datasets` writes next to the dataset.
        let is_data_file =
            |path: &PathBuf| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cache-"));
        let grouped = splits::group_by_split(files.into_iter().filter(is_data_file).collect(), true, |path| {
            path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        });
        let split_files = splits::choose_split(path, grouped, split)?;
        splits::check_complete(path, &split_files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())?;
        return Ok(split_files);
    }
    let (state, json) = read(STATE_FILE)?;
    let entries = json["_data_files"].as_array().into_iter().flatten();
    let names = entries.map(|entry| entry["filename"].as_str().filter(|name| is_below(name)));
    let names: Vec<&str> = names
        .collect::<Option<_>>()
        .ok_or_else(|| Error::in_source("`_data_files` must list files under the folder").at_path(&state))?;
    let has_row_indices = json["_indices_data_files"].as_array().is_some_and(|files| !files.is_empty())
        || json["_indices_files"].as_array().is_some_and(|files| !files.is_empty());
    if has_row_indices {
        let cause = "an old version of `datasets` saved this dataset with its row indices in a separate file: load \
                     it, and call save_to_disk again";
        return Err(Error::in_source(cause).at_path(state));
    }
    without_splits(names.into_iter().map(|name| path.join(name)).collect())
}

impl Source for Arrow {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (file, _, _) = self.files.open(index)?;
        let root = file.path.parent().unwrap_or(Path::new(""));
        let sample = self.columns.read(index, scratch, |column, scratch| {
            let allows_outside_paths = self.allows_outside_paths && self.columns.image() == Some(column);
            self.read_value(index, column, scratch)?.read_path(root, allows_outside_paths, scratch)
        });
        sample.map_err(|e| e.at_path(&file.path))
    }

    delegate_to_files!(files);

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let Some(column) = self.columns.label() else { return Ok(None) };
        let (file, _, _) = self.files.open(index)?;
        scratch.clear();
        let content = self.read_value(index, column, scratch)?;
        content.cell(scratch).and_then(|cell| self.columns.label_of(cell)).map_err(|e| e.at_path(&file.path))
    }

    fn has_images(&self) -> Option<bool> {
        Some(self.columns.image().is_some())
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.columns.field_names())
    }

    fn classes(&self) -> &[String] {
        self.columns.classes()
    }

    fn kind(&self) -> &'static str {
        self.kind
    }
}

impl std::fmt::Debug for Arrow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrow")
            .field("files", &self.files.entries().len())
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}
