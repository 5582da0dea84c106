//! [`TfRecord`]: a source that reads samples from TFRecord files.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::detect::is_records_name;
use super::example;
use super::shard::Offsets;
use crate::error::{Error, Result, try_copy};
use crate::machine::file;
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::storage::download::Companions;
use crate::storage::splits;
use crate::storage::{DatasetLocation, Files, RowBytes, Storage, delegate_to_files};
use crate::values::record::{ColumnType, ColumnValue, NamedCell, RowConverter, Survey};

/// The `tf.train.Example` messages in a TFRecord file or in a folder of shards.
///
/// **Columns.** Each feature is a column. Field names are in lower case, with `_` instead of `/`.
/// By default, `image/encoded` is the image, and `image/class/label` is the label if it is a single
/// integer or text. Other names follow the rules for typed columns. Bytes that are valid text are
/// treated as text. Opening reads up to 64 records. A feature with several values in any of these
/// records becomes an array, or a JSON list if the values are text. Records may lack some features.
/// Labels start at 1 in ImageNet files of this format.
///
/// **Shards.** A folder may contain files such as `train-00000-of-01024`, or files with the
/// `.tfrecord`, `.tfrecords` or `.tfrec` extension. If a shard is missing, opening fails. If the
/// folder contains several splits, append the name of a split to the path: `imagenet/train`.
///
/// **Index.** Without a valid index, opening reads the length of each record of a file to locate
/// the records. For a file of 16 MiB or more, it stores the resulting index next to the file in
/// `NAME.warpfeed-index`, if the folder is writable. The index is rebuilt when the size or the
/// modification time of the file has changed. In an object store, files are read with range
/// requests if every file has an index. Otherwise, all files are downloaded.
///
/// **Labels.** If the labels are text, opening reads all records to find the classes. In an object
/// store, it then downloads the files.
///
/// **Checksums.** Building the index verifies the checksums of the record lengths. Reading a sample
/// verifies both checksums of its record.
///
/// Files compressed with gzip are not supported.
pub struct TfRecord {
    shards: Arc<Files<Offsets>>,
    /// Name of each shard in sample keys.
    names: Vec<String>,
    /// Features with several values in at least one of the records that were read on opening.
    list_features: BTreeSet<String>,
    row_converter: RowConverter,
}

const MAX_SURVEYED_RECORDS: usize = 64;

impl TfRecord {
    /// Opens the TFRecord file at `path`, or the shards in a folder.
    ///
    /// # Errors
    /// If a file cannot be read, is compressed or truncated, if the length of a record is damaged,
    /// if a shard is missing, if there are no records or several splits, or if the first record is
    /// not a `tf.train.Example` message.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_at(&DatasetLocation::local(path.as_ref()), &Options::default())
    }

    pub(crate) fn open_at(location: &DatasetLocation, options: &Options) -> Result<Self> {
        let (path, storage) = (&*location.path, location.storage.clone());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_folder = if storage.is_store() { !is_records_name(&name) } else { file::is_folder(path)? };
        let storage = if is_folder { storage.listed(path) } else { storage };
        let paths = match is_folder {
            true => shards_in(&storage, path, location.split.as_deref())?,
            false => vec![path.to_owned()],
        };
        let opened = storage.in_parallel(&paths, |path| Offsets::open(&storage, path))?;
        let download = || Self::open_at(&location.downloaded(&Companions::NONE, options.mapped)?, options);
        let Some(opened) = opened.into_iter().collect::<Option<Vec<_>>>() else { return download() };
        let shards = Arc::new(Files::new(opened, Offsets::len)?);
        if shards.len() == 0 {
            return Err(Error::in_source("the files contain no records").at_path(path));
        }
        let mut dataset = TfRecord {
            shards,
            names: key_names(&paths),
            list_features: BTreeSet::new(),
            row_converter: RowConverter::default(),
        };
        match dataset.survey(&storage, options).map_err(|e| e.at_path(path))? {
            true => Ok(dataset),
            false => download(),
        }
    }

    /// Reads some records to determine the columns. Returns `false` if the files must be downloaded
    /// first. This is the case if they are in an object store and the labels are text, because
    /// finding the classes requires reading all records.
    fn survey(&mut self, storage: &Storage, options: &Options) -> Result<bool> {
        let len = self.len();
        let count = len.min(MAX_SURVEYED_RECORDS);
        // The records are evenly spaced, and include the first record and, if there are several,
        // the last.
        let survey_indices: Vec<usize> = (0..count).map(|n| n * (len - 1) / (count - 1).max(1)).collect();
        let mut list_features = BTreeSet::new();
        let records = storage.in_parallel(&survey_indices, |&index| {
            let mut scratch = Vec::new();
            Ok(self.read_record(index, &mut scratch).and_then(|row_bytes| try_copy(row_bytes.resolve(&scratch))))
        })?;
        for (position, record) in records.iter().enumerate() {
            match record
                .as_ref()
                .map_err(Error::clone)
                .and_then(|record| example::find_lists(record, &mut list_features))
            {
                Err(e) if position == 0 => return Err(e),
                // Reading the samples of damaged records fails anyway.
                _ => {}
            }
        }
        let (mut survey, mut buffer) = (Survey::with_text_in_bytes(), Vec::new());
        for record in records.iter().flatten() {
            buffer.clear();
            if let Ok(row) = example::read_row(record, &list_features, &mut buffer) {
                survey.add_row(&row, &buffer)?;
            }
        }
        // Sort, because the features of a record are in no particular order.
        survey.sort();
        let mut choice = options.column_choice();
        let has_type = |name: &str, types: &[ColumnType]| {
            survey.column_type_of(name).is_some_and(|column_type| types.contains(&column_type))
        };
        if choice.image.is_none() && has_type("image/encoded", &[ColumnType::Images, ColumnType::Bytes]) {
            choice.image = Some("image/encoded".to_owned());
        }
        // Labels with several values per sample become a field instead of the label.
        let labels = [ColumnType::Integers, ColumnType::Text];
        if choice.label.is_none() && !choice.without_label && has_type("image/class/label", &labels) {
            choice.label = Some("image/class/label".to_owned());
        }
        let mut row_converter = survey.finish(&choice)?;
        let mut is_complete = true;
        row_converter.learn_labels(options.classes.as_ref(), options.defer_unknown_classes, |label, visit| {
            is_complete = !storage.is_store();
            if !is_complete {
                return Ok(());
            }
            self.for_each_text(label, &list_features, visit)
        })?;
        (self.row_converter, self.list_features) = (row_converter, list_features);
        Ok(is_complete)
    }

    fn for_each_text(
        &self,
        name: &str,
        list_features: &BTreeSet<String>,
        visit: &mut dyn FnMut(usize, &str),
    ) -> Result<()> {
        let (mut scratch, mut buffer) = (Vec::new(), Vec::new());
        for index in 0..self.len() {
            scratch.clear();
            buffer.clear();
            // Reading the samples of damaged records fails anyway.
            let Ok(row_bytes) = self.read_record(index, &mut scratch) else { continue };
            let Ok(row) = example::read_row(row_bytes.resolve(&scratch), list_features, &mut buffer) else { continue };
            for NamedCell { name: field_name, content } in row {
                if let (true, ColumnValue::Bytes(value)) = (field_name == name, content)
                    && let Ok(text) = std::str::from_utf8(value.resolve(&buffer))
                {
                    visit(index, text);
                }
            }
        }
        Ok(())
    }

    fn read_record<'a>(&'a self, index: usize, buffer: &mut Vec<u8>) -> Result<RowBytes<'a>> {
        let (file, offsets, record) = self.shards.open(index)?;
        offsets.read_record(file, record, index, buffer).map_err(|e| e.at_path(&file.path))
    }
}

/// Returns the names of the files in sample keys, which omit the extension: `train-00000-of-00002`
/// for `train.tfrecord-00000-of-00002`. Falls back to complete file names if these names would be
/// ambiguous.
fn key_names(paths: &[PathBuf]) -> Vec<String> {
    let full_name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short_name = |path: &PathBuf| {
        let name = full_name(path);
        let Some((stem, end)) = name.rsplit_once(".tf") else { return name };
        let number = end.find('-').map_or("", |offset| &end[offset..]);
        format!("{stem}{number}")
    };
    let names: Vec<String> = paths.iter().map(short_name).collect();
    match names.iter().collect::<BTreeSet<_>>().len() == names.len() {
        true => names,
        false => paths.iter().map(full_name).collect(),
    }
}

/// Returns the shards of the requested or only split, and checks that none is missing.
fn shards_in(storage: &Storage, folder: &Path, requested: Option<&str>) -> Result<Vec<PathBuf>> {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let paths = splits::choose_split(
        folder,
        splits::group_by_split(storage.files_in(folder, is_records_name)?, false, name),
        requested,
    )?;
    splits::check_complete(folder, &paths.iter().map(name).collect::<Vec<_>>())?;
    Ok(paths)
}

impl Source for TfRecord {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (shard, record) = self.shards.file_and_index(index);
        scratch.clear();
        write!(scratch, "{}/{record}", self.names[shard]).expect("writing to a Vec succeeds");
        let key = RowBytes::Page(0..scratch.len());
        let path = self.shards.path(index);
        let record_error = |e: Error| Error::in_source(format!("record {record}: {}", e.cause())).at_path(path);
        let row = match self.read_record(index, scratch)? {
            RowBytes::Borrowed(record) => {
                example::read_row(record, &self.list_features, scratch).map_err(record_error)?
            }
            RowBytes::Page(range) => {
                // The cells borrow from the record while values are appended to `scratch`, so copy
                // the record.
                let record = try_copy(&scratch[range.clone()])?;
                let row = example::read_row(&record, &self.list_features, scratch).map_err(record_error)?;
                row.into_iter().map(|cell| cell.rebase(&record, range.start)).collect()
            }
        };
        self.row_converter.sample(key, row, scratch).map_err(record_error)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        self.shards.prefetcher(order, Offsets::range)
    }

    delegate_to_files!(shards);

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.row_converter.field_names())
    }

    fn classes(&self) -> &[String] {
        self.row_converter.classes()
    }

    fn kind(&self) -> &'static str {
        "tfrecord"
    }
}

impl fmt::Debug for TfRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TfRecord")
            .field("shards", &self.shards.entries().len())
            .field("len", &self.len())
            .field("rows", &self.row_converter)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_its_own_name_in_keys() {
        let names = |files: &[&str]| key_names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(
            names(&["a/mnist-train.tfrecord-00000-of-00002", "a/mnist-train.tfrecord-00001-of-00002"]),
            ["mnist-train-00000-of-00002", "mnist-train-00001-of-00002"]
        );
        assert_eq!(names(&["train-00000-of-00002", "x.tfrec"]), ["train-00000-of-00002", "x"]);
        assert_eq!(names(&["x.tfrec", "x.tfrecord"]), ["x.tfrec", "x.tfrecord"]);
    }

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    /// Returns a TFRecord file. Each item of `records` contains the labels of one record.
    fn file(records: &[&[u8]]) -> Vec<u8> {
        let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
        let record = |labels: &&[u8]| {
            let feature = field(3, &field(1, labels));
            let entry = [field(1, b"image/class/label"), field(2, &feature)].concat();
            let example = field(1, &field(1, &entry));
            let length = (example.len() as u64).to_le_bytes();
            [&length[..], &masked(&length), &example, &masked(&example)].concat()
        };
        records.iter().flat_map(record).collect()
    }

    #[test]
    fn several_labels_of_a_record_become_a_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tfrecord");
        std::fs::write(&path, file(&[&[7], &[8]])).unwrap();
        let (source, mut scratch) = (TfRecord::open(&path).unwrap(), Vec::new());
        assert_eq!(source.read(1, &mut scratch).unwrap().label().unwrap(), Some(8));
        // On Windows, a file cannot be overwritten while it is mapped.
        drop(source);
        std::fs::write(&path, file(&[&[7], &[8, 9], &[]])).unwrap();
        let source = TfRecord::open(&path).unwrap();
        for (index, labels) in [&[7][..], &[8, 9], &[]].into_iter().enumerate() {
            let sample = source.read(index, &mut scratch).unwrap();
            let Some(crate::model::Value::Numbers(numbers)) = sample.value("image_class_label.npy") else { panic!() };
            assert_eq!(numbers.iter::<i64>().unwrap().collect::<Vec<_>>(), labels);
            assert_eq!(sample.label().unwrap(), None);
        }
    }
}
