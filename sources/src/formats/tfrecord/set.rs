use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::detect::is_records_name;
use super::example;
use super::shard::Places;
use crate::error::{Error, Result, copied};
use crate::machine::file;
use crate::medium::download::Companions;
use crate::medium::splits;
use crate::medium::{At, Files, Medium, Part, of_files};
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::options::Options;
use crate::values::record::{Found, Holds, Named, Rows, Survey};

/// Records of `tf.train.Example`, in one TFRecord file or a folder of shards.
///
/// Each feature is a column, with its name in lower case and `_` for `/`. `image/encoded` is the
/// image and `image/class/label` the label, if it is one integer or text; other names follow the
/// rules of all formats with typed columns. Bytes that are readable text are text. A feature that
/// has more than one value in a sample that opening looks at is an array, or a list in JSON. A
/// feature may be missing in some records. ImageNet's labels in this form count from 1.
///
/// **Shards.** A folder holds files such as `train-00000-of-01024`, or with the extension
/// `.tfrecord`, `.tfrecords` or `.tfrec`. A shard that is missing is an error. If there are several
/// splits, the path of one is that of the folder, then its name: `imagenet/train`.
///
/// **The index.** Opening reads the length of each record. For a file of 16 MiB or more the result
/// is stored in `NAME.warpfeed-index` next to it, if the folder is writable. It is rebuilt when the
/// size or the modification time of the file changes. A file of a store is read by ranges if its
/// index is next to it.
///
/// **Checksums** of lengths are checked on opening, and those of records when they are read. Files
/// that are compressed with gzip are refused.
pub struct TfRecord {
    shards: Arc<Files<Places>>,
    /// Name of each shard, for keys.
    names: Vec<String>,
    lists: BTreeSet<String>,
    rows: Rows,
}

/// Maximum number of records that opening looks at to find the columns.
const SURVEYED: usize = 64;

impl TfRecord {
    /// Opens the TFRecord file at `path`, or the shards in a folder.
    ///
    /// # Errors
    /// If a file is damaged, compressed or missing, or its records are not of `tf.train.Example`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(&At::here(path.as_ref()), &Options::default())
    }

    pub(crate) fn with(at: &At, options: &Options) -> Result<Self> {
        let (path, medium) = (&*at.path, at.medium.clone());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_folder = if medium.is_store() { !is_records_name(&name) } else { file::is_folder(path)? };
        let medium = if is_folder { medium.listed(path) } else { medium };
        let paths = match is_folder {
            true => shards_in(&medium, path, at.part.as_deref())?,
            false => vec![path.to_owned()],
        };
        let opened = medium.in_parallel(&paths, |path| Places::open(&medium, path))?;
        let bring = || Self::with(&at.brought(&Companions::NONE, options.mapped)?, options);
        let Some(opened) = opened.into_iter().collect::<Option<Vec<_>>>() else { return bring() };
        let shards = Arc::new(Files::new(opened, Places::len)?);
        if shards.len() == 0 {
            return Err(Error::in_source("no records").at_path(path));
        }
        let mut set = TfRecord { shards, names: names_of(&paths), lists: BTreeSet::new(), rows: Rows::default() };
        match set.survey(&medium, options).map_err(|e| e.at_path(path))? {
            true => Ok(set),
            false => bring(),
        }
    }

    /// Finds the columns. Returns whether all that is needed could be read: the classes of labels of
    /// text are in all records of a store.
    fn survey(&mut self, medium: &Medium, options: &Options) -> Result<bool> {
        let all = self.len();
        let count = all.min(SURVEYED);
        // The first and the last, and others between them.
        let places: Vec<usize> = (0..count).map(|place| place * (all - 1) / (count - 1).max(1)).collect();
        let mut lists = BTreeSet::new();
        let records = medium.in_parallel(&places, |&place| {
            let mut scratch = Vec::new();
            Ok(self.record(place, &mut scratch).and_then(|part| copied(part.of(&scratch))))
        })?;
        for (number, record) in records.iter().enumerate() {
            match record.as_ref().map_err(Error::clone).and_then(|record| example::find_lists(record, &mut lists)) {
                Err(e) if number == 0 => return Err(e),
                // An error of this sample, when it is read.
                _ => {}
            }
        }
        let (mut survey, mut page) = (Survey::with_text_in_bytes(), Vec::new());
        for record in records.iter().flatten() {
            page.clear();
            if let Ok(row) = example::row(record, &lists, &mut page) {
                survey.see(&row, &page)?;
            }
        }
        // The order of the features in a record means nothing.
        survey.sort();
        let mut wanted = options.wanted();
        let has = |name: &str, types: &[Holds]| survey.holds_of(name).is_some_and(|holds| types.contains(&holds));
        if wanted.image.is_none() && has("image/encoded", &[Holds::Images, Holds::Bytes]) {
            wanted.image = Some("image/encoded".to_owned());
        }
        // Several labels of a sample are a field.
        let labels = [Holds::Integers, Holds::Text];
        if wanted.label.is_none() && !wanted.without_label && has("image/class/label", &labels) {
            wanted.label = Some("image/class/label".to_owned());
        }
        let mut rows = survey.finish(&wanted)?;
        let mut whole = true;
        rows.learn(options.classes.as_ref(), options.lenient, |label, see| {
            whole = !medium.is_store();
            if !whole {
                return Ok(());
            }
            self.each_text(label, &lists, see)
        })?;
        (self.rows, self.lists) = (rows, lists);
        Ok(whole)
    }

    /// Calls `see` with the number of each record whose feature `name` is a text, and that text.
    fn each_text(&self, name: &str, lists: &BTreeSet<String>, see: &mut dyn FnMut(usize, &str)) -> Result<()> {
        let (mut scratch, mut page) = (Vec::new(), Vec::new());
        for number in 0..self.len() {
            scratch.clear();
            page.clear();
            // A damaged record is an error of its sample.
            let Ok(part) = self.record(number, &mut scratch) else { continue };
            let Ok(row) = example::row(part.of(&scratch), lists, &mut page) else { continue };
            for Named { name: found, content } in row {
                if let (true, Found::Bytes(part)) = (found == name, content)
                    && let Ok(text) = std::str::from_utf8(part.of(&page))
                {
                    see(number, text);
                }
            }
        }
        Ok(())
    }

    fn record<'a>(&'a self, index: usize, page: &mut Vec<u8>) -> Result<Part<'a>> {
        let (file, places, number) = self.shards.open(index)?;
        places.record(file, number, index, page).map_err(|e| e.at_path(&file.path))
    }
}

/// The names of files in keys: `train-00000-of-00002` for `train.tfrecord-00000-of-00002`. Whole
/// names if two would be the same.
fn names_of(paths: &[PathBuf]) -> Vec<String> {
    let whole = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short = |path: &PathBuf| {
        let name = whole(path);
        let Some((stem, end)) = name.rsplit_once(".tf") else { return name };
        let number = end.find('-').map_or("", |at| &end[at..]);
        format!("{stem}{number}")
    };
    let names: Vec<String> = paths.iter().map(short).collect();
    match names.iter().collect::<BTreeSet<_>>().len() == names.len() {
        true => names,
        false => paths.iter().map(whole).collect(),
    }
}

/// The files in `folder` of the only split, or of the split `wanted`, all of which must exist.
fn shards_in(medium: &Medium, folder: &Path, wanted: Option<&str>) -> Result<Vec<PathBuf>> {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let paths = splits::choose(folder, splits::group(medium.files_in(folder, is_records_name)?, false, name), wanted)?;
    splits::complete(folder, &paths.iter().map(name).collect::<Vec<_>>())?;
    Ok(paths)
}

impl Source for TfRecord {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (shard, number) = self.shards.number(index);
        scratch.clear();
        write!(scratch, "{}/{number}", self.names[shard]).expect("a Vec takes everything");
        let key = Part::Page(0..scratch.len());
        let path = self.shards.path(index);
        let named = |e: Error| Error::in_source(format!("record {number}: {}", e.cause())).at_path(path);
        let row = match self.record(index, scratch)? {
            Part::Borrowed(record) => example::row(record, &self.lists, scratch).map_err(named)?,
            Part::Page(place) => {
                // The cells borrow from the record, so it must not move while others are written.
                let record = copied(&scratch[place.clone()])?;
                let row = example::row(&record, &self.lists, scratch).map_err(named)?;
                row.into_iter().map(|cell| cell.moved(&record, place.start)).collect()
            }
        };
        self.rows.sample(key, row, scratch).map_err(named)
    }

    fn follow(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        self.shards.follow(order, Places::range)
    }

    of_files!(shards);

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.rows.field_names())
    }

    fn classes(&self) -> &[String] {
        self.rows.classes()
    }

    fn kind(&self) -> &'static str {
        "tfrecord"
    }
}

impl fmt::Debug for TfRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TfRecord")
            .field("shards", &self.shards.each().len())
            .field("len", &self.len())
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_its_own_name_in_keys() {
        let names = |files: &[&str]| names_of(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(
            names(&["a/mnist-train.tfrecord-00000-of-00002", "a/mnist-train.tfrecord-00001-of-00002"]),
            ["mnist-train-00000-of-00002", "mnist-train-00001-of-00002"]
        );
        assert_eq!(names(&["train-00000-of-00002", "x.tfrec"]), ["train-00000-of-00002", "x"]);
        assert_eq!(names(&["x.tfrec", "x.tfrecord"]), ["x.tfrec", "x.tfrecord"]);
    }

    /// A field of a message.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    /// A file of records, each with these integers as its labels.
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
    fn several_labels_of_a_record_are_a_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tfrecord");
        std::fs::write(&path, file(&[&[7], &[8]])).unwrap();
        let (source, mut scratch) = (TfRecord::open(&path).unwrap(), Vec::new());
        assert_eq!(source.read(1, &mut scratch).unwrap().label().unwrap(), Some(8));
        // Windows does not overwrite a mapped file.
        drop(source);
        std::fs::write(&path, file(&[&[7], &[8, 9], &[]])).unwrap();
        let source = TfRecord::open(&path).unwrap();
        for (index, labels) in [&[7][..], &[8, 9], &[]].into_iter().enumerate() {
            let sample = source.read(index, &mut scratch).unwrap();
            let Some(crate::model::Value::Numbers(found)) = sample.value("image_class_label.npy") else { panic!() };
            assert_eq!(found.iter::<i64>().unwrap().collect::<Vec<_>>(), labels);
            assert_eq!(sample.label().unwrap(), None);
        }
    }
}
