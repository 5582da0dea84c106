//! [`Parquet`]: a source that reads Parquet files, either local or in an object store.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::{Cache, PageLimit};
use super::file::{MAX_CHUNK_BYTES, ParquetFile, Unit, UnitReader, check_chunk_size};
use super::files::{Files, NeededLeaf, RowPerSample, SampleRows};
use super::input::{guarded, read};
use super::pages::check_list_memory;
use super::schema::{Field, Form, Leaf, Levels, ValueType, fields};
use crate::error::{Error, Result};
use crate::machine::bytes::grow_to;
use crate::machine::parallel::in_parallel;
use crate::model::value::Element;
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::prefetch::{MAX_PREFETCH_BYTES, Remote};
use crate::storage::splits;
use crate::storage::{DatasetLocation, are_unchanged};
use crate::values::features::{Features, FileFeatures};
use crate::values::record::{Column, ColumnType, ColumnValue, Columns, guess_type};

/// A source that reads the rows of Parquet files, either local or in an object store.
///
/// Each row is a sample, and its key is the row number. Columns become fields by the same rules as
/// for [`Arrow`](crate::Arrow) files. Columns of unsupported types are skipped with a warning, and
/// opening fails if you select one. These types are maps, decimals, INT96 timestamps, repeated
/// fields outside a list, lists whose elements are bytes, text or files, and lists nested more than
/// four deep.
///
/// **Pages.** Values are usually compressed in pages of about 1 MB, so reading one image means
/// decoding a whole page. Decoded pages are cached within the loader's memory budget, and the least
/// recently used page is evicted first. With `shuffle_window`, each page is decoded once per epoch,
/// provided that a window fits in the cache. With a full shuffle of a dataset that is much larger
/// than the cache, nearly every image requires decoding a page, so pack the dataset or save it as
/// Arrow first.
///
/// **Compression.** Pages may be uncompressed, or compressed with Snappy, Zstandard, LZ4 or gzip.
pub struct Parquet {
    pub(super) files: Arc<Files>,
    pub(super) remote: Option<Arc<Remote>>,
    pub(super) fields: Arc<[Field]>,
    pub(super) columns: Columns,
    /// Whether image paths may point outside the folder of their Parquet file. True only if the
    /// user names the image column, and thus trusts its paths.
    allows_outside_paths: bool,
    pub(super) cache: Arc<Cache>,
    pub(super) page_limit: Arc<PageLimit>,
    /// The largest column chunk that can only be read from the store in one piece.
    largest_unsplit: Option<Chunk>,
    /// The list column chunk that takes the most memory to decode.
    largest_list_chunk: Option<Chunk>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// For `largest_unsplit`, the size in the file, in bytes; for `largest_list_chunk`, the number
    /// of bytes of memory needed for decoding.
    bytes: u64,
    is_list: bool,
    file: u32,
    group: u32,
    column: usize,
}

/// Size of the cache for decoded pages in bytes, in addition to the space for the largest column
/// chunk that must be read in one piece. Without the additional space, the pages would evict the
/// chunk.
const EXTRA_CACHE_BYTES: u64 = 32 << 20;

impl Parquet {
    /// Opens a `.parquet` file, or a folder that contains the files of one split. The files may be
    /// directly in the folder, in its subfolder `data`, in a subfolder named after the split, or in
    /// a single subfolder, as in a Hugging Face dataset with one configuration.
    ///
    /// # Errors
    /// If a file cannot be read or has a damaged footer, if there are no files or no rows, if the
    /// files have different columns, or if their columns cannot be mapped to fields. Also fails if
    /// a folder contains several splits, or if a shard is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_at(DatasetLocation::local(path.as_ref()), &Options::new())
    }

    /// Opens the dataset at `location`. `location.split` selects a split. A folder's own name may
    /// end in `.parquet`, as in Spark output.
    pub(crate) fn open_at(mut location: DatasetLocation, options: &Options) -> Result<Self> {
        let is_folder = match location.split {
            Some(_) => location.list().map(|_| true)?,
            None => location.is_folder()?,
        };
        let path = &*location.path;
        let files = if is_folder {
            let names = splits::select_split(path, location.tree().files("parquet")?, location.split.as_deref())?;
            names.iter().map(|name| location.storage.join(path, name)).collect()
        } else {
            vec![path.to_owned()]
        };
        let parquet_files = in_parallel(&files, |path| ParquetFile::open(location.storage.open(path)?))?;
        let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
        let features = if location.storage.is_store() { None } else { Features::in_folder(folder)? };
        Self::from_files(path, parquet_files, features, options)
    }

    fn from_files(
        path: &Path,
        parquet_files: Vec<ParquetFile>,
        features: Option<Features>,
        options: &Options,
    ) -> Result<Self> {
        let features_json = |parquet_file: &ParquetFile| {
            let metadata = parquet_file.metadata.file_metadata().key_value_metadata()?;
            metadata.iter().find(|entry| entry.key == "huggingface")?.value.clone()
        };
        let named: Vec<_> = parquet_files
            .iter()
            .filter_map(|parquet_file| Some((parquet_file.file.path.clone(), features_json(parquet_file)?)))
            .collect();
        let features = FileFeatures::new(features, &named);
        let choice = options.column_choice();
        let mut dataset = Self::without_columns(path, parquet_files)?;
        dataset.allows_outside_paths = choice.image.is_some();
        let columns: Vec<Column> = (0..dataset.fields.len())
            .map(|column_index| {
                Ok(Column::new(
                    dataset.fields[column_index].name.clone(),
                    dataset.column_type(column_index, features.all())?,
                ))
            })
            .collect::<Result<_>>()?;
        dataset.columns = Columns::new(&columns, &choice).map_err(|e| e.at_path(path))?;
        dataset.prepare()?;
        let untyped_columns = std::mem::take(&mut dataset.columns);
        let append_value = |row, column_index, scratch: &mut Vec<u8>| dataset.append_value(row, column_index, scratch);
        let columns = features.learn_labels(untyped_columns, &columns, options, dataset.len(), append_value);
        dataset.columns = columns.map_err(|e| e.at_path(path))?;
        Ok(dataset)
    }

    /// Creates a source with no columns selected. The caller must select the columns.
    pub(super) fn without_columns(path: &Path, parquet_files: Vec<ParquetFile>) -> Result<Self> {
        let first = parquet_files
            .first()
            .ok_or_else(|| Error::in_source("the folder contains no .parquet files").at_path(path))?;
        let columns = guarded(|| Ok(fields(first.metadata.file_metadata().schema_descr())))?;
        let files = Files::new(parquet_files, &columns)?;
        if files.groups.is_empty() {
            return Err(Error::in_source("the files contain no rows").at_path(path));
        }
        let remote = files.parquet_files[0].file.object().map(|(_, remote)| remote.clone());
        Ok(Parquet {
            files: Arc::new(files),
            remote,
            fields: columns.into(),
            columns: Columns::default(),
            allows_outside_paths: false,
            cache: Arc::new(Cache::new()),
            page_limit: Arc::default(),
            largest_unsplit: None,
            largest_list_chunk: None,
        })
    }

    /// Checks the row counts of the used columns and finds their largest chunks. For files in a
    /// store, also reads the page indexes of these columns.
    pub(super) fn prepare(&mut self) -> Result<()> {
        self.check_row_counts()?;
        if self.remote.is_some() {
            self.files.load_indexes(&self.needed_leaves())?;
        }
        self.find_largest_chunks()
    }

    pub(super) fn with_columns(&self, columns: Columns) -> Result<Self> {
        let mut selection = Parquet {
            files: self.files.clone(),
            remote: self.remote.clone(),
            fields: self.fields.clone(),
            columns,
            allows_outside_paths: self.allows_outside_paths,
            cache: self.cache.clone(),
            page_limit: Arc::default(),
            largest_unsplit: None,
            largest_list_chunk: None,
        };
        selection.find_largest_chunks()?;
        Ok(selection)
    }

    /// Checks that each used column, except list columns, has as many values as rows. Without this
    /// check, a row group that declares too few rows would silently lose rows.
    fn check_row_counts(&self) -> Result<()> {
        for &(file, group) in &self.files.groups {
            let parquet_file = &self.files.parquet_files[file as usize];
            let row_group = parquet_file.metadata.row_group(group as usize);
            for column_index in self.columns.used_columns() {
                let leaves = match self.fields[column_index].form {
                    Form::Flat(leaf) => [Some(leaf), None],
                    Form::File { bytes, path } => [Some(bytes), path],
                    Form::List { .. } | Form::Unsupported(_) => [None, None],
                };
                for leaf in leaves.into_iter().flatten() {
                    let (values, rows) = (row_group.column(leaf.index).num_values(), row_group.num_rows());
                    if values != rows {
                        let cause = format!(
                            "row group {group}, column {:?}: damaged: expected {rows} values, one per row, found \
                             {values}; write the file again",
                            self.fields[column_index].name
                        );
                        return Err(Error::in_source(cause).at_path(&parquet_file.file.path));
                    }
                }
            }
        }
        Ok(())
    }

    fn column_type(&self, column_index: usize, features: &Features) -> Result<ColumnType> {
        let Field { name, form } = &self.fields[column_index];
        Ok(match form {
            Form::Unsupported(what) => ColumnType::Unsupported(what),
            Form::File { .. } => match features.file_column_type(name) {
                Some(column_type) => column_type,
                None => self.sniff(column_index)?,
            },
            Form::Flat(Leaf { value_type: ValueType::Bytes, .. }) => self.sniff(column_index)?,
            Form::List { levels, .. } if levels.is_nested() => ColumnType::Json,
            Form::List { .. } => ColumnType::Numbers,
            Form::Flat(leaf) => match leaf.value_type {
                ValueType::Text => ColumnType::Text,
                ValueType::Number(Element::F32 | Element::F64) | ValueType::Half => ColumnType::Numbers,
                _ => ColumnType::Integers,
            },
        })
    }

    fn sniff(&self, column_index: usize) -> Result<ColumnType> {
        guess_type(self.len(), |row, scratch| self.append_value(row, column_index, scratch))
    }

    /// Returns how many bytes of a loader's memory budget the cache may use. `bytes` is the total
    /// budget. For files in a store, the cache may use half of the budget, and the prefetcher the
    /// other half.
    pub(super) fn cache_share(&self, bytes: usize) -> usize {
        if self.remote.is_some() { bytes - bytes / 2 } else { bytes }
    }

    pub(super) fn file_of(&self, row: usize) -> &ParquetFile {
        &self.files.parquet_files[self.files.groups[self.files.locate(row).0].0 as usize]
    }

    pub(super) fn needed_leaves(&self) -> Vec<NeededLeaf> {
        let used = self.columns.used_columns().map(|column_index| match self.fields[column_index].form {
            Form::Flat(leaf) | Form::File { bytes: leaf, .. } => Some(NeededLeaf { leaf: leaf.index, is_list: false }),
            Form::List { leaf, .. } => Some(NeededLeaf { leaf: leaf.index, is_list: true }),
            Form::Unsupported(_) => None,
        });
        used.flatten().collect()
    }

    /// Iterates over the chunks of the used columns in every row group. For a column of files, the
    /// iterator returns the chunk that contains the file contents, not the chunk that contains the
    /// paths. [`Chunk::bytes`] is not set (0).
    fn chunks(&self) -> impl Iterator<Item = (Chunk, Leaf, Option<Levels>)> {
        let chunk_of = |column_index: usize| match self.fields[column_index].form {
            Form::Flat(leaf) | Form::File { bytes: leaf, .. } => Some((column_index, leaf, None)),
            Form::List { leaf, levels } => Some((column_index, leaf, Some(levels))),
            Form::Unsupported(_) => None,
        };
        let used: Vec<_> = self.columns.used_columns().filter_map(chunk_of).collect();
        self.files.groups.iter().flat_map(move |&(file, group)| {
            used.clone().into_iter().map(move |(column_index, leaf, levels)| {
                (Chunk { bytes: 0, is_list: levels.is_some(), file, group, column: column_index }, leaf, levels)
            })
        })
    }

    fn find_largest_chunks(&mut self) -> Result<()> {
        let (mut largest_unsplit, mut largest_list_chunk) = (None::<Chunk>, None::<Chunk>);
        let update = |largest: &mut Option<Chunk>, chunk: Chunk, bytes: u64| {
            if largest.is_none_or(|largest| largest.bytes < bytes) {
                *largest = Some(Chunk { bytes, ..chunk });
            }
        };
        for (chunk, leaf, levels) in self.chunks() {
            let parquet_file = &self.files.parquet_files[chunk.file as usize];
            if let Some(levels) = levels {
                update(
                    &mut largest_list_chunk,
                    chunk,
                    parquet_file.column_chunk(chunk.group, leaf, Some(levels), &self.page_limit).list_decode_bytes(),
                );
            }
            let len = self
                .remote
                .as_ref()
                .map(|_| parquet_file.unsplit_chunk_len(chunk.group, leaf.index, chunk.is_list))
                .transpose();
            if let Some(len) = len.map_err(|e| self.chunk_error(chunk, &e))?.flatten() {
                update(&mut largest_unsplit, chunk, len);
            }
        }
        (self.largest_unsplit, self.largest_list_chunk) = (largest_unsplit, largest_list_chunk);
        self.page_limit = Arc::new(PageLimit::new(self.cache_share(self.prefetch_bytes())));
        Ok(())
    }

    fn chunk_error(&self, chunk: Chunk, e: &Error) -> Error {
        let cause = format!("row group {}, column {:?}: {}", chunk.group, self.fields[chunk.column].name, e.cause());
        Error::in_source(cause).at_path(&self.files.parquet_files[chunk.file as usize].file.path)
    }

    pub(super) fn append_value(
        &self,
        row: usize,
        column_index: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<ColumnValue<'static>> {
        let field = &self.fields[column_index];
        let append_flat = |leaf, scratch: &mut Vec<u8>| self.append_leaf_value(row, leaf, None, scratch);
        let content = match field.form {
            Form::Flat(leaf) => append_flat(leaf, scratch),
            Form::List { leaf, levels } => self.append_leaf_value(row, leaf, Some(levels), scratch),
            Form::File { bytes, path } => match (append_flat(bytes, scratch), path) {
                (Ok(ColumnValue::Null), Some(path)) => append_flat(path, scratch).map(|content| match content {
                    ColumnValue::Text(path) => ColumnValue::Path(path),
                    other => other,
                }),
                (content, _) => content,
            },
            Form::Unsupported(_) => unreachable!("`Columns` uses only supported columns"),
        };
        content.map_err(|e| match e.path() {
            Some(_) => e,
            None => {
                let (_, group) = self.files.groups[self.files.locate(row).0];
                let cause = format!("row group {group}, column {:?}: {}", field.name, e.cause());
                let error = Error::new(e.kind(), cause).at_path(&self.file_of(row).file.path);
                if e.is_transient() { error.transient() } else { error }
            }
        })
    }

    fn append_leaf_value(
        &self,
        row: usize,
        leaf: Leaf,
        levels: Option<Levels>,
        scratch: &mut Vec<u8>,
    ) -> Result<ColumnValue<'static>> {
        let (group_index, row_in_group) = self.files.locate(row);
        let (file, group) = self.files.groups[group_index];
        let (parquet_file, key) = (&self.files.parquet_files[file as usize], (file, group, leaf.index as u32));
        let number_of = |unit| self.files.unit_number(group_index, leaf.index, unit);
        let read_unit = |unit: Unit, range: Range<u64>| {
            if self.remote.is_none() {
                return read(&parquet_file.file, range.start, range.end - range.start).map(Cow::into_owned);
            }
            let mut bytes = Vec::new();
            parquet_file.file.fill_for(number_of(unit), range.start, grow_to(&mut bytes, range.end - range.start)?)?;
            Ok(bytes)
        };
        let is_planned = |unit| self.remote.as_ref().is_some_and(|remote| remote.is_planned(number_of(unit)));
        let fetch = UnitReader { read: &read_unit, is_planned: &is_planned };
        let block =
            parquet_file.load_block((&self.cache, &self.page_limit), key, (leaf, levels), row_in_group, &fetch)?;
        block.append_value(row_in_group, scratch)
    }

    #[cfg(test)]
    pub(super) fn decoded_pages(&self) -> usize {
        self.cache.decoded_pages()
    }
}

impl Source for Parquet {
    fn len(&self) -> usize {
        self.files.rows()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let file = &self.file_of(index).file;
        file.check_once(self.files.requested_checks.load(Ordering::Relaxed))?;
        let root = file.path.parent().unwrap_or(Path::new(""));
        let is_in_store = file.object().is_some();
        let sample = self.columns.read(index, scratch, |column_index, scratch| {
            let content = self.append_value(index, column_index, scratch)?;
            if is_in_store && matches!(content, ColumnValue::Path(_)) {
                return Err(Error::in_source(
                    "the value refers to a separate file, which is not supported in an object store",
                ));
            }
            let allows_outside_paths = self.allows_outside_paths && self.columns.image() == Some(column_index);
            content.read_path(root, allows_outside_paths, scratch)
        });
        sample.map_err(|e| e.at_path(&file.path))
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        Some(self.row_prefetcher(&order, &(Arc::new(RowPerSample) as Arc<dyn SampleRows>)))
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        self.remote.as_ref().map(|remote| remote.network_stats())
    }

    fn prefetch_bytes(&self) -> usize {
        let decoded_bytes = |(chunk, leaf, levels): (Chunk, Leaf, Option<Levels>)| {
            let parquet_file = &self.files.parquet_files[chunk.file as usize];
            parquet_file.column_chunk(chunk.group, leaf, levels, &self.page_limit).decoded_bytes()
        };
        let bytes = self.chunks().map(decoded_bytes).fold(0, u64::saturating_add);
        let bytes = bytes.clamp(1 << 20, MAX_PREFETCH_BYTES as u64);
        // For a store, the cache uses only half of the bytes. The largest column chunk that is read
        // in one piece must fit in the cache, together with some pages.
        let chunk =
            self.largest_unsplit.map_or(0, |unsplit| 2 * (unsplit.bytes.min(MAX_CHUNK_BYTES) + EXTRA_CACHE_BYTES));
        let lists = self.largest_list_chunk.map_or(0, |lists| lists.bytes);
        let lists = if self.remote.is_some() { lists.saturating_mul(2) } else { lists };
        usize::try_from(bytes.max(chunk).max(lists)).unwrap_or(usize::MAX)
    }

    fn select_fields(&self, fields: &[String]) -> Option<Arc<dyn Source>> {
        // `with_columns` cannot fail here: opening the source has already computed the chunk sizes
        // of every used column, and the selection is a subset of these columns.
        Some(Arc::new(self.with_columns(self.columns.select_fields(fields)).ok()?))
    }

    fn check(&self) -> Result<()> {
        self.files.requested_checks.fetch_add(1, Ordering::Relaxed);
        // Report an oversized column chunk now, at the start of the epoch, rather than when the
        // first sample that uses it is read.
        let limit = self.page_limit.limit();
        if let Some(chunk) = self.largest_unsplit {
            check_chunk_size(chunk.bytes, chunk.is_list, limit).map_err(|e| self.chunk_error(chunk, &e))?;
        }
        if let Some(chunk) = self.largest_list_chunk {
            check_list_memory(chunk.bytes, limit, self.page_limit.max_grant())
                .map_err(|e| self.chunk_error(chunk, &e))?;
        }
        Ok(())
    }

    fn is_unchanged(&self) -> bool {
        are_unchanged(
            self.files.parquet_files.iter().map(|parquet_file| &parquet_file.file),
            self.files.requested_checks.load(Ordering::Relaxed),
        )
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let Some(column_index) = self.columns.label() else { return Ok(None) };
        let file = &self.file_of(index).file;
        file.check_once(self.files.requested_checks.load(Ordering::Relaxed))?;
        scratch.clear();
        let content = self.append_value(index, column_index, scratch)?;
        content.cell(scratch).and_then(|cell| self.columns.label_of(cell)).map_err(|e| e.at_path(&file.path))
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        Some(self.file_of(index).file.path.clone())
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
        "parquet"
    }
}

impl std::fmt::Debug for Parquet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parquet")
            .field("files", &self.files.parquet_files.len())
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::grants::Grant;

    #[test]
    fn pages_within_the_memory_plan_are_decoded_once() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats/parquet/v2.parquet");
        let dataset = Parquet::open(path).unwrap();
        let read = |row| assert!(dataset.read(row, &mut Vec::new()).unwrap().image().is_some());
        let grant = Grant::new(dataset.cache.clone(), 1 << 20);
        (0..dataset.len()).for_each(read);
        let first_decoded_pages = dataset.decoded_pages();
        (0..dataset.len()).rev().for_each(read);
        assert_eq!(dataset.decoded_pages(), first_decoded_pages);
        drop(grant);
        let _grant = Grant::new(dataset.cache.clone(), 0);
        (0..dataset.len()).for_each(read);
        assert!(
            dataset.decoded_pages() >= first_decoded_pages + 2 * dataset.len(),
            "each row decodes an image page and a label page"
        );
    }
}
