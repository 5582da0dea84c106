//! A database as a source: its keys, and the sample at each.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::datum::Datum;
use super::keys::{Keys, label_key};
use super::layout::{self, Detected, RawValues, ValueFormat};
use super::pickled::{self, Pickled, SURVEYED};
use super::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::machine::file;
use crate::machine::hash::Hash;
use crate::machine::identity::Identity;
use crate::machine::pages::{Map, fetch};
use crate::medium::{At, Part};
use crate::model::{Classes, Sample, Source};
use crate::options::{Options, Wanted};
use crate::values::pixels::Colors;

/// Key of the class names, a MessagePack array of texts. It may be missing.
pub const CLASSES_KEY: &str = "__classes__";

/// Samples in an LMDB database, read without copies: fields borrow from the memory map.
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
/// **Keys.** Decimal keys of one width, zero-padded, from `0` to `n - 1` without a gap, are the
/// indices of the samples. Opening checks all keys of a small database. In a large one, with more
/// than 16 MiB of pages that hold keys, it checks the first key, the last key and a thousand places
/// between them. A gap that this check overlooks is an error of its sample. Other keys are listed
/// once on opening, in the order of the database; decimal keys without padding are sorted as
/// numbers. Keys of the form `__name__` are not samples; `__classes__` holds the class names as a
/// MessagePack array of texts.
///
/// **Values.** The first sample decides:
///
/// | value | sample |
/// |---|---|
/// | [`MsgPack`](crate::MsgPack) map | its fields |
/// | an encoded image ([`RawValues`]) | the image |
/// | a pickled dict | each entry is a column, with the uses of typed columns |
/// | a pickled tuple or list | its only image, its only integer as the label, and other columns by number |
/// | Caffe's `Datum` | the encoded image, or raw pixels, and the label |
/// | images at `image-000000001`, text at `label-000000001`, and `num-samples` | the image, the text as the field `label.txt`, and as the label if all texts are integers |
///
/// Other values need a [`ValueFormat`] of your own.
///
/// **Pickles** hold plain data: numbers, text, bytes, tuples, lists, dicts, and NumPy arrays of
/// numbers. Any other object is refused by name. No code of a pickle is ever run. The columns are
/// those of 64 samples, which opening reads. A dict with another key is an error of its sample.
/// `uint8` arrays of pixels are images, if no value is an encoded one; their colors are RGB
/// unless [`bgr`](Lmdb::bgr) says otherwise. If labels are text and there is no list of classes,
/// opening reads all values.
///
/// **Named databases.** `all.lmdb/train` is the database `train` in a file. A file that only holds
/// one named database needs no name.
///
/// **Other processes** may write meanwhile, and may enlarge the database: the source keeps the
/// state in which it was opened. To see a newer state, open the database again, which reads only a
/// few pages. LMDB records its readers in a lock file next to the data. If the lock file cannot be
/// written (on a read-only file system), the database is opened without it, and must then not be
/// written. Overwriting or truncating an open file is undefined, as for every memory-mapped file. A
/// process may open one database several times, but not with another LMDB library.
///
/// **Cost for a writer.** The source holds read transactions from its opening to its drop, and a
/// loader keeps its source. Until then writers cannot reuse pages that were freed after the
/// opening. So the file grows by every page that is written: each commit adds its new values and
/// the pages of the tree above them, usually 3 or 4 pages of 4 KiB, even if the values replace
/// others. Appending 1,000 samples in one commit takes little more than their bytes; replacing the
/// same 1,000 a hundred times takes a hundred times their bytes. The first commits after the drop
/// reuse the freed pages, but the file never shrinks. A growth of 64 MiB, and each doubling of it,
/// is a warning when an epoch begins; [`growth_limit`](Lmdb::growth_limit) makes it an error.
pub struct Lmdb {
    snapshot: Snapshot,
    layout: Layout,
    keys: Keys,
    classes: Vec<String>,
    path: PathBuf,
    /// `path`, or the data file in it.
    data: PathBuf,
    identity: Identity,
    /// Number of the newest commit that the source sees.
    commit: usize,
    growth_limit: Option<u64>,
    /// Growth at the last warning.
    warned: AtomicU64,
}

/// Layout of the values.
enum Layout {
    Custom(Box<dyn ValueFormat>),
    Pickled(Box<Pickled>),
    Datum(Option<Colors>),
    /// Images whose labels have keys of their own. The labels are classes if all are integers.
    Pairs {
        integers: bool,
    },
}

/// Options for opening a database.
#[derive(Default)]
pub(crate) struct LmdbOptions<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) wanted: Wanted,
    pub(crate) classes: Option<&'a Classes>,
    /// Whether a class that is not in the list is an error of its samples only.
    pub(crate) lenient: bool,
}

/// Minimum growth of an open database for a warning, in bytes.
const WORTH_A_WARNING: u64 = 64 << 20;

impl Lmdb {
    /// Opens a database whose values have one of the layouts above. `path` is a folder with
    /// `data.mdb`, or a single file.
    ///
    /// # Errors
    /// If the database does not exist, is not an LMDB database, is truncated, or holds no samples,
    /// if the first value has none of the layouts, or if the file holds several named databases.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_options(path.as_ref(), &LmdbOptions::default())
    }

    /// Opens the database called `name` in the file at `path`.
    ///
    /// [`open`](crate::open()) takes the name after the path: `all.lmdb/train`. A file with
    /// one named database and no samples outside it needs no name.
    ///
    /// # Errors
    /// As [`open`](Lmdb::open). Also if there is no such database; the message lists the names.
    pub fn open_named(path: impl AsRef<Path>, name: &str) -> Result<Self> {
        Self::with_options(path.as_ref(), &LmdbOptions { name: Some(name), ..LmdbOptions::default() })
    }

    /// Opens a database with values in the format `layout`.
    ///
    /// # Errors
    /// As [`open`](Lmdb::open), but values are not checked.
    pub fn with_layout(path: impl AsRef<Path>, layout: impl ValueFormat + 'static) -> Result<Self> {
        let mut source = Self::new(path.as_ref(), None)?;
        source.layout = Layout::Custom(Box::new(layout));
        Ok(source)
    }

    pub(crate) fn with_options(path: &Path, options: &LmdbOptions<'_>) -> Result<Self> {
        let mut source = Self::new(path, options.name)?;
        source.layout = source.detect(options).map_err(|e| e.at_path(path))?;
        if let (true, Layout::Pickled(pickled)) = (source.classes.is_empty(), &source.layout) {
            source.classes = pickled.classes().to_vec();
        }
        Ok(source)
    }

    fn new(path: &Path, name: Option<&str>) -> Result<Self> {
        let folder = path.join("data.mdb");
        let data = if file::exists(&folder)? { folder } else { path.to_owned() };
        let identity = Identity::of(&std::fs::metadata(&data).map_err(|e| Error::io(&data, &e))?);
        let snapshot = Snapshot::open(path, name)?;
        let commit = snapshot.last_commit()?;
        let keys = Keys::of(&snapshot).map_err(|e| e.at_path(path))?;
        if keys.len() == 0 {
            return Err(Error::in_source("lmdb database holds no samples").at_path(path));
        }
        let classes = match snapshot.get(CLASSES_KEY.as_bytes())? {
            Some(value) => match pickled::classes(value) {
                Some(classes) => classes,
                None => layout::classes(value).map_err(|e| at_key(e, CLASSES_KEY).at_path(path))?,
            },
            None => Vec::new(),
        };
        Ok(Lmdb {
            snapshot,
            layout: Layout::Datum(None),
            keys,
            classes,
            path: path.to_owned(),
            data,
            identity,
            commit,
            growth_limit: None,
            warned: AtomicU64::new(0),
        })
    }

    /// Determines the layout of the values.
    fn detect(&self, options: &LmdbOptions<'_>) -> Result<Layout> {
        if let Keys::Pairs { .. } = self.keys {
            return Ok(Layout::Pairs { integers: self.labels_are_integers()? });
        }
        let value = |index| self.record(index, &mut Vec::new()).map(|(_, value)| value);
        let named = |e: Error| match self.record(0, &mut Vec::new()) {
            Ok(_) => at_key(e, &self.key(0)),
            Err(e) => e,
        };
        Ok(match layout::detect(value(0)?).map_err(named)? {
            Detected::Plain(layout) => Layout::Custom(layout),
            Detected::Datum => Layout::Datum(None),
            Detected::Pickled => {
                let len = self.len();
                let count = len.min(SURVEYED);
                // The first and the last, and others between them.
                let places = (0..count).map(|place| place * (len - 1) / (count - 1).max(1));
                let mut pickled = Pickled::new(places.map(value), &options.wanted).map_err(named)?;
                pickled.learn((0..len).map(value), options.classes, options.lenient)?;
                Layout::Pickled(Box::new(pickled))
            }
        })
    }

    /// Whether all labels of a text recognition set are integers.
    fn labels_are_integers(&self) -> Result<bool> {
        for index in 0..self.len() {
            if let Some(label) = self.label_text(&self.key(index))?
                && integer(label).is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The label of the image under `key` in a text recognition set.
    fn label_text(&self, key: &str) -> Result<Option<&str>> {
        let Some(value) = label_key(key).map(|key| self.snapshot.get(key.as_bytes())).transpose()?.flatten() else {
            return Ok(None);
        };
        fetch(value, Map::Random)?;
        let text = std::str::from_utf8(value).map_err(|_| Error::in_source("the label is not UTF-8"))?;
        Ok(Some(text))
    }

    /// Says that raw pixels are RGB. Those of Caffe's `Datum` may be either, and pickled arrays are
    /// RGB unless [`bgr`](Lmdb::bgr) says otherwise.
    ///
    /// # Errors
    /// As [`bgr`](Lmdb::bgr).
    pub fn rgb(self) -> Result<Self> {
        self.colored(Colors::Rgb, "rgb")
    }

    /// Says that raw pixels of Caffe's `Datum` or of pickled arrays are BGR, as Caffe's
    /// `convert_imageset` writes them, and as OpenCV decodes images. Encoded images have an
    /// order of their own.
    ///
    /// # Errors
    /// If the values of the database are of another layout, or pickled without arrays of pixels. No
    /// `Datum` is looked at: a database of them may hold raw and encoded images.
    pub fn bgr(self) -> Result<Self> {
        self.colored(Colors::Bgr, "bgr")
    }

    fn colored(mut self, colors: Colors, method: &str) -> Result<Self> {
        let has_pixels = match &mut self.layout {
            Layout::Datum(known) => {
                *known = Some(colors);
                true
            }
            Layout::Pickled(pickled) => pickled.set_colors(colors),
            Layout::Custom(_) | Layout::Pairs { .. } => false,
        };
        if !has_pixels {
            let cause = format!(
                "Lmdb::{method} is for raw pixels, in a Caffe datum or a pickled array; this database has none"
            );
            return Err(Error::config(cause).at_path(&self.path));
        }
        Ok(self)
    }

    /// Limits the growth of the file while it is open to `bytes`. No limit by default.
    ///
    /// For a long-lived loader while another process writes: freed pages cannot be reused before
    /// the loader is dropped, so the file grows (see [`Lmdb`]). If it has grown by more than
    /// `bytes`, the next epoch fails with [`ErrorKind::Source`](crate::ErrorKind::Source). To
    /// release the pages, drop the loader and open another one that continues at its checkpoint
    /// (`Loader::resume`).
    #[must_use]
    pub fn growth_limit(mut self, bytes: u64) -> Self {
        self.growth_limit = Some(bytes);
        self
    }

    /// Reports the growth of the file since it was opened, given its length `len` now.
    fn check_growth(&self, len: u64) -> Result<()> {
        let grown = len.saturating_sub(self.identity.len());
        let held = || {
            let commits = self.snapshot.last_commit().map_or(0, |last| last.saturating_sub(self.commit));
            format!(
                "the file has grown by {grown} bytes in {commits} commits since it was opened, and while it is open its \
                 writer cannot use freed pages again"
            )
        };
        if let Some(limit) = self.growth_limit
            && grown > limit
        {
            let cause = format!("{}; growth_limit is {limit}: drop this loader and open another one", held());
            return Err(Error::in_source(cause).at_path(&self.path));
        }
        let warned = self.warned.load(Ordering::Relaxed);
        if grown >= WORTH_A_WARNING.max(warned.saturating_mul(2)) {
            self.warned.store(grown, Ordering::Relaxed);
            tracing::warn!("{}: {}", self.path.display(), held());
        }
        Ok(())
    }

    /// Key and value of sample `index`. `scratch` takes the key if it is not stored as text.
    fn record<'a>(&'a self, index: usize, scratch: &mut Vec<u8>) -> Result<(Part<'a>, &'a [u8])> {
        match self.keys.record(&self.snapshot, index, scratch)? {
            (key, Some(value)) => Ok((key, value)),
            (..) => Err(at_key(Error::in_source("missing"), &self.key(index)).at_path(&self.path)),
        }
    }

    /// The key of sample `index`, for messages.
    fn key(&self, index: usize) -> String {
        let mut scratch = Vec::new();
        let key = self.keys.text(index, &mut scratch);
        String::from_utf8_lossy(key.of(&scratch)).into_owned()
    }

    fn sample<'a>(&'a self, key: Part<'a>, value: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        fetch(value, Map::Random)?;
        match &self.layout {
            Layout::Pickled(pickled) => return pickled.sample(key, value, scratch),
            Layout::Datum(colors) => return Datum::read(value)?.sample(key, *colors, scratch),
            Layout::Custom(_) | Layout::Pairs { .. } => {}
        }
        let key = std::str::from_utf8(key.of(scratch)).expect("keys are text");
        match &self.layout {
            Layout::Custom(layout) => layout.sample(key, value),
            _ => self.paired(key, value),
        }
    }

    /// An image and its label.
    fn paired<'a>(&'a self, key: &'a str, value: &'a [u8]) -> Result<Sample<'a>> {
        let mut sample = RawValues.sample(key, value)?;
        let Some(text) = self.label_text(key)? else { return Ok(sample) };
        sample.push("label.txt", text)?;
        let label = match self.layout {
            Layout::Pairs { integers: true } => integer(text),
            _ => None,
        };
        Ok(label.map_or(sample, |label| sample.with_label(label)))
    }
}

fn integer(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

/// Opens the database.
pub(super) fn open(at: &At, options: &Options) -> Result<Lmdb> {
    let (wanted, classes, lenient) = (options.wanted(), options.classes.as_ref(), options.lenient);
    let options = LmdbOptions { name: at.part.as_deref(), wanted, classes, lenient };
    Lmdb::with_options(&at.path, &options)
}

impl Source for Lmdb {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (key, value) = self.record(index, scratch)?;
        self.sample(key, value, scratch).map_err(|e| at_key(e, &self.key(index)).at_path(&self.path))
    }

    fn check(&self) -> Result<()> {
        match self.identity.check(&self.data, true)? {
            Some(len) => self.check_growth(len),
            // The open file still exists, but has no name, so no process writes to it.
            None => Ok(()),
        }
    }

    /// Each commit has its own number, which copies of the file share.
    fn fingerprint(&self) -> Option<u64> {
        Some(Hash::default().number(self.len() as u64).number(self.commit as u64).end())
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

fn at_key(error: Error, key: &str) -> Error {
    Error::new(error.kind(), format!("key {key:?}: {}", error.cause()))
}
