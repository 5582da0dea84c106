//! [`Lmdb`]: a source that reads samples from an LMDB database.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::datum::Datum;
use super::keys::{Keys, label_key};
use super::layout::{self, DetectedLayout, RawValues, ValueFormat};
use super::pickled::{self, MAX_SURVEYED_SAMPLES, Pickled};
use super::snapshot::Snapshot;
use crate::error::{Error, Result, counted};
use crate::machine::file;
use crate::machine::hash::Hash;
use crate::machine::identity::Identity;
use crate::machine::pages::{MapAccess, load_pages};
use crate::model::{Classes, Sample, Source};
use crate::options::{ColumnChoice, Options};
use crate::storage::{DatasetLocation, RowBytes};
use crate::values::pixels::Colors;

/// The key under which a database may contain the class names, as a MessagePack array or a pickled
/// list of strings.
pub const CLASSES_KEY: &str = "__classes__";

/// The samples in an LMDB database. Bytes and text borrow from the memory map where possible.
///
/// ```python
/// env = lmdb.open("train.lmdb", map_size=1 << 40)                                      # writes what `MsgPack` reads
/// with env.begin(write=True) as txn:
///     txn.put(b"00000000", msgpack.packb({"__key__": "n014/x", "jpg": jpeg_bytes, "cls": 3}))
/// ```
/// ```python
/// env = lmdb.open("train.lmdb", readonly=True, lock=False)                             # reads what `LmdbWriter` writes
/// with env.begin() as txn:
///     sample = msgpack.unpackb(txn.get(b"00000000"))
/// ```
///
/// **Keys.** If the keys are zero-padded decimals of the same width, from `0` to `n - 1` without a
/// gap, they are the indices of the samples. Opening checks all keys if the database has at most
/// 4,096 leaf pages (16 MiB with 4 KiB pages). In larger databases, it checks only the number of
/// keys, the first key, the last key and a thousand positions between them. If this check misses a
/// gap, reading the missing sample fails. Keys of any other form are listed on opening, except the
/// keys of image-text pairs (last row of the table below). Listed samples are in database order,
/// unless all keys are decimals: these are sorted by length and then by their digits, so decimals
/// without padding are in numerical order. Keys of the form `__name__` are not samples. The value
/// of `__classes__`, if present, contains the class names as a MessagePack array or a pickled list
/// of strings.
///
/// **Values.** The first sample determines the layout of all values:
///
/// | value | sample |
/// |---|---|
/// | [`MsgPack`](crate::MsgPack) map | its fields |
/// | an encoded image ([`RawValues`]) | the image |
/// | a pickled dict | each entry is a column, which is used like a typed column of a table |
/// | a pickled tuple or list | the image (the only encoded image, or else the only array with two or more axes, if its elements are `uint8`, or else the only bytes), the label (the only item that is an integer), and a column for each other item, named by its position, which starts at 0 |
/// | pickled bytes or a pickled array | the only column, named `image` |
/// | Caffe's `Datum` | the label, and the encoded image, the raw pixels, or the floats as the `data.npy` field |
/// | images at `image-000000001`, text at `label-000000001`, and `num-samples` | the image, and the text as the `label.txt` field; if all texts are integers, they are also the labels |
///
/// For other values, implement [`ValueFormat`].
///
/// **Pickles** may contain only plain data: `None`, booleans, numbers, text, bytes, tuples, lists,
/// dicts, and NumPy arrays of numbers. If a pickle contains any other object, reading it fails with
/// an error that names the object's class or the opcode that creates the object. Reading a pickle
/// never executes code. Opening reads up to 64 samples to find the columns. If a dict that is read
/// later contains a key that none of these samples has, reading its sample fails, unless the value
/// is `None` or columns are selected. If no column contains encoded images, a column of `uint8`
/// arrays in the shape of an image is used as the image. The color order of these arrays is RGB
/// unless [`bgr`](Lmdb::bgr) is called. If labels are text, opening reads all values.
///
/// **Named databases.** The path `all.lmdb/train` selects the `train` database in `all.lmdb`. The
/// name may be omitted if the file contains a single named database and no samples outside it.
///
/// **Concurrent writers.** Other processes may write to the database and enlarge it. An open source
/// keeps reading the state that the database had on opening. To see newer commits, open the
/// database again. LMDB registers readers in a lock file next to the data. If the lock file cannot
/// be written (for example, on a read-only file system), the database is opened without it, and no
/// process may write to the database while the source exists. If an open file is overwritten or
/// truncated, reads may return garbage, fail or crash the process, as with any memory-mapped file.
/// A process may open a database several times, but only through the same copy of the LMDB library.
///
/// **Growth of the file.** A source holds read transactions until it is dropped, and a loader keeps
/// its source alive. In the meantime, writers can reuse pages that were already free when the
/// source was opened, but not pages that were freed later. Once the reusable pages are used up, the
/// file grows by every page that is written. Each commit writes its new values and the tree pages
/// above them, usually three or four 4 KiB pages, even if the values replace existing ones. For
/// example, appending 1,000 samples in one commit adds little more than their size, whereas
/// replacing the same 1,000 samples a hundred times adds about a hundred times their size. Once the
/// source has been dropped, later commits reuse the freed pages, but the file never shrinks. The
/// size of the file is checked at the start of each epoch. A warning is logged when the file has
/// grown by at least 64 MiB, and again each time the growth has doubled since the last warning. To
/// get an error instead, set [`growth_limit`](Lmdb::growth_limit).
pub struct Lmdb {
    snapshot: Snapshot,
    layout: Layout,
    keys: Keys,
    classes: Vec<String>,
    path: PathBuf,
    /// `path` itself, or `data.mdb` in the folder at `path`.
    data_path: PathBuf,
    identity: Identity,
    growth_limit: Option<u64>,
    /// Growth of the file in bytes when the last warning was logged, or 0 before the first warning.
    warned_growth: AtomicU64,
}

enum Layout {
    Custom(Box<dyn ValueFormat>),
    Pickled(Box<Pickled>),
    Datum(Option<Colors>),
    /// Images and texts under separate keys. If `has_integer_labels` is true, all texts are
    /// integers and serve as labels.
    Pairs {
        has_integer_labels: bool,
    },
}

#[derive(Default)]
pub(crate) struct LmdbOptions<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) choice: ColumnChoice,
    pub(crate) classes: Option<&'a Classes>,
    /// Whether an unknown class is an error when its sample is read, instead of on opening.
    pub(crate) defer_unknown_classes: bool,
}

/// Growth of an open database, in bytes, at which the first warning is logged.
const WARN_GROWTH_BYTES: u64 = 64 << 20;

impl Lmdb {
    /// Opens a database, and detects the layout of its values. `path` is a folder that contains
    /// `data.mdb`, or a database in a single file.
    ///
    /// # Errors
    /// If the database does not exist, cannot be read, is not an LMDB database, is truncated or has
    /// no samples. Also fails if the layout of the first value is not supported, if the columns of
    /// pickled values are ambiguous or have inconsistent types, if class names or `num-samples` are
    /// invalid, or if the file contains several named databases and no samples outside them.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_options(path.as_ref(), &LmdbOptions::default())
    }

    /// Opens the named database `name` in the file at `path`.
    ///
    /// To select a database with [`open`](crate::open()), append its name to the path:
    /// `all.lmdb/train`. The name may be omitted if the file contains a single named database and
    /// no samples outside it.
    ///
    /// # Errors
    /// Fails like [`open`](Lmdb::open), and if there is no database with this name. The message
    /// lists the existing names, if any.
    pub fn open_named(path: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::with_options(path.as_ref(), &LmdbOptions { name: Some(name), ..LmdbOptions::default() })
    }

    /// Opens a database in which values have a custom `layout`.
    ///
    /// # Errors
    /// Fails like [`open`](Lmdb::open), except that opening does not check the values of samples.
    pub fn with_layout(path: impl AsRef<Path>, layout: impl ValueFormat + 'static) -> Result<Self> {
        let mut source = Self::new(path.as_ref(), None)?;
        source.layout = Layout::Custom(Box::new(layout));
        Ok(source)
    }

    pub(crate) fn with_options(path: &Path, options: &LmdbOptions<'_>) -> Result<Self> {
        let mut source = Self::new(path, options.name)?;
        source.layout = source.detect_layout(options).map_err(|e| e.at_path(path))?;
        if let (true, Layout::Pickled(pickled)) = (source.classes.is_empty(), &source.layout) {
            source.classes = pickled.classes().to_vec();
        }
        Ok(source)
    }

    fn new(path: &Path, name: Option<&str>) -> Result<Self> {
        let folder = path.join("data.mdb");
        let data_path = if file::exists(&folder)? { folder } else { path.to_owned() };
        let identity = Identity::of(&std::fs::metadata(&data_path).map_err(|e| Error::io(&data_path, &e))?);
        let snapshot = Snapshot::open(path, name)?;
        let keys = Keys::detect(&snapshot).map_err(|e| e.at_path(path))?;
        if keys.len() == 0 {
            return Err(Error::in_source("lmdb database contains no samples").at_path(path));
        }
        let classes = match snapshot.get(CLASSES_KEY.as_bytes())? {
            Some(value) => match pickled::classes(value) {
                Some(classes) => classes,
                None => layout::classes(value).map_err(|e| with_key(e, CLASSES_KEY).at_path(path))?,
            },
            None => Vec::new(),
        };
        Ok(Lmdb {
            snapshot,
            layout: Layout::Datum(None),
            keys,
            classes,
            path: path.to_owned(),
            data_path,
            identity,
            growth_limit: None,
            warned_growth: AtomicU64::new(0),
        })
    }

    fn detect_layout(&self, options: &LmdbOptions<'_>) -> Result<Layout> {
        if let Keys::Pairs { .. } = self.keys {
            return Ok(Layout::Pairs { has_integer_labels: self.labels_are_integers()? });
        }
        let value = |index| self.find_record(index, &mut Vec::new()).map(|(_, value)| value);
        let with_first_key = |e: Error| match self.find_record(0, &mut Vec::new()) {
            Ok(_) => with_key(e, &self.key(0)),
            Err(e) => e,
        };
        Ok(match layout::detect(value(0)?).map_err(with_first_key)? {
            DetectedLayout::Custom(layout) => Layout::Custom(layout),
            DetectedLayout::Datum => Layout::Datum(None),
            DetectedLayout::Pickled => {
                let len = self.len();
                let count = len.min(MAX_SURVEYED_SAMPLES);
                // Evenly spaced samples, including the first and the last.
                let indices = (0..count).map(|n| n * (len - 1) / (count - 1).max(1));
                let mut pickled = Pickled::new(indices.map(value), &options.choice).map_err(with_first_key)?;
                pickled.learn_labels((0..len).map(value), options.classes, options.defer_unknown_classes)?;
                Layout::Pickled(Box::new(pickled))
            }
        })
    }

    fn labels_are_integers(&self) -> Result<bool> {
        for index in 0..self.len() {
            if let Some(label) = self.label_text(&self.key(index))?
                && parse_integer(label).is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn label_text(&self, key: &str) -> Result<Option<&str>> {
        let Some(value) = label_key(key).map(|key| self.snapshot.get(key.as_bytes())).transpose()?.flatten() else {
            return Ok(None);
        };
        load_pages(value, MapAccess::Random)?;
        let text = std::str::from_utf8(value).map_err(|_| Error::in_source("the label is not UTF-8"))?;
        Ok(Some(text))
    }

    /// Declares that raw pixels are RGB, the default for pickled arrays. Raw pixels with three
    /// channels in a Caffe `Datum` require this call or [`bgr`](Lmdb::bgr).
    ///
    /// # Errors
    /// See [`bgr`](Lmdb::bgr).
    pub fn rgb(self) -> Result<Self> {
        self.with_colors(Colors::Rgb, "rgb")
    }

    /// Declares that raw pixels are BGR, as OpenCV and Caffe's `convert_imageset` write them.
    /// Applies to the pixels in a Caffe `Datum` and in pickled arrays, but not to encoded images,
    /// which define their own color order.
    ///
    /// # Errors
    /// If the values have a different layout, or are pickles without pixel arrays. `Datum` values
    /// are not checked for raw pixels, because a database may mix raw and encoded images.
    pub fn bgr(self) -> Result<Self> {
        self.with_colors(Colors::Bgr, "bgr")
    }

    fn with_colors(mut self, colors: Colors, method: &str) -> Result<Self> {
        let has_pixels = match &mut self.layout {
            Layout::Datum(stored_colors) => {
                *stored_colors = Some(colors);
                true
            }
            Layout::Pickled(pickled) => pickled.set_colors(colors),
            Layout::Custom(_) | Layout::Pairs { .. } => false,
        };
        if !has_pixels {
            let cause = format!(
                "Lmdb::{method} applies only to raw pixels in a Caffe datum or a pickled array, and this database \
                 has neither: remove the call"
            );
            return Err(Error::config(cause).at_path(&self.path));
        }
        Ok(self)
    }

    /// Sets the growth of the file, in bytes, beyond which the next epoch fails with
    /// [`ErrorKind::Source`](crate::ErrorKind::Source). Growth is measured from the opening of this
    /// source. There is no limit by default.
    ///
    /// Set a limit if another process writes to the database while a long-lived loader reads it:
    /// the file grows because writers cannot reuse freed pages until the loader is dropped (see
    /// [`Lmdb`]). The limit does not stop those writers. After the error, drop the loader to
    /// release the pages, and open a new one from its checkpoint (`Loader::resume`).
    #[must_use]
    pub fn growth_limit(mut self, bytes: u64) -> Self {
        self.growth_limit = Some(bytes);
        self
    }

    fn check_growth(&self, len: u64) -> Result<()> {
        let growth = len.saturating_sub(self.identity.len());
        let message = || {
            let commits = self.snapshot.last_commit().map_or(0, |last| last.saturating_sub(self.snapshot.commit()));
            format!(
                "the file has grown by {growth} bytes in {} since it was opened; its writer cannot reuse \
                 freed pages while the file is open",
                counted(commits, "commit", "commits")
            )
        };
        if let Some(limit) = self.growth_limit
            && growth > limit
        {
            let cause = format!(
                "{}; this exceeds the limit, because growth_limit is {limit}: drop this loader and open a new one",
                message()
            );
            return Err(Error::in_source(cause).at_path(&self.path));
        }
        let warned_growth = self.warned_growth.load(Ordering::Relaxed);
        if growth >= WARN_GROWTH_BYTES.max(warned_growth.saturating_mul(2)) {
            self.warned_growth.store(growth, Ordering::Relaxed);
            tracing::warn!("{}: {}", self.path.display(), message());
        }
        Ok(())
    }

    /// Returns the key of sample `index` as text, and its value. Computed and hexadecimal keys are
    /// written to `scratch`. Fails if the database does not contain the key.
    fn find_record<'a>(&'a self, index: usize, scratch: &mut Vec<u8>) -> Result<(RowBytes<'a>, &'a [u8])> {
        match self.keys.find(&self.snapshot, index, scratch)? {
            (key, Some(value)) => Ok((key, value)),
            (..) => Err(with_key(Error::in_source("the key is missing from the database"), &self.key(index))
                .at_path(&self.path)),
        }
    }

    fn key(&self, index: usize) -> String {
        let mut scratch = Vec::new();
        let key = self.keys.text(index, &mut scratch);
        String::from_utf8_lossy(key.resolve(&scratch)).into_owned()
    }

    fn decode_sample<'a>(&'a self, key: RowBytes<'a>, value: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        load_pages(value, MapAccess::Random)?;
        match &self.layout {
            Layout::Pickled(pickled) => return pickled.sample(key, value, scratch),
            Layout::Datum(colors) => return Datum::read(value)?.sample(key, *colors, scratch),
            Layout::Custom(_) | Layout::Pairs { .. } => {}
        }
        let key = std::str::from_utf8(key.resolve(scratch)).expect("keys are text");
        match &self.layout {
            Layout::Custom(layout) => layout.sample(key, value),
            _ => self.join_pair(key, value),
        }
    }

    fn join_pair<'a>(&'a self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>> {
        let mut sample = RawValues.sample(key, value)?;
        let Some(text) = self.label_text(key)? else { return Ok(sample) };
        sample.push("label.txt", text)?;
        let label = match self.layout {
            Layout::Pairs { has_integer_labels: true } => parse_integer(text),
            _ => None,
        };
        Ok(label.map_or(sample, |label| sample.with_label(label)))
    }
}

fn parse_integer(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

pub(super) fn open(location: &DatasetLocation, options: &Options) -> Result<Lmdb> {
    let (choice, classes, defer_unknown_classes) =
        (options.column_choice(), options.classes.as_ref(), options.defer_unknown_classes);
    let options = LmdbOptions { name: location.split.as_deref(), choice, classes, defer_unknown_classes };
    Lmdb::with_options(&location.path, &options)
}

impl Source for Lmdb {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (key, value) = self.find_record(index, scratch)?;
        self.decode_sample(key, value, scratch).map_err(|e| with_key(e, &self.key(index)).at_path(&self.path))
    }

    fn check(&self) -> Result<()> {
        match self.identity.check(&self.data_path, true)? {
            Some(len) => self.check_growth(len),
            // The open file may no longer be at this path, so its growth cannot be determined. The
            // open file can still be read.
            None => Ok(()),
        }
    }

    /// Hashes the number of samples and the number of the last commit, but not the path, so that
    /// copies of a file have equal hashes.
    fn fingerprint(&self) -> Option<u64> {
        Some(Hash::default().number(self.len() as u64).number(self.snapshot.commit() as u64).finish())
    }

    fn path(&self, _index: usize) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn kind(&self) -> &'static str {
        "lmdb"
    }
}

impl std::fmt::Debug for Lmdb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lmdb").field("path", &self.path).field("len", &self.len()).finish_non_exhaustive()
    }
}

fn with_key(error: Error, key: &str) -> Error {
    Error::new(error.kind(), format!("key {key:?}: {}", error.cause()))
}
