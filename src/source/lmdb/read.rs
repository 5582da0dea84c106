//! A database as a source: its keys, and the sample at each.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lmdb::{Cursor, Transaction};

use super::layout::{self, MsgPack, ValueFormat};
use super::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::source::identity::Identity;
use crate::source::pages::{Map, fetch};
use crate::source::{Sample, Source};

/// Key of the class names, a MessagePack array of texts. It may be missing.
pub(crate) const CLASSES_KEY: &str = "__classes__";

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
/// **Values.** [`MsgPack`] or [`Bare`](crate::source::Bare), depending on the first sample, or any
/// [`ValueFormat`] of your own.
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
    layout: Box<dyn ValueFormat>,
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

/// Minimum growth of an open database for a warning, in bytes.
const WORTH_A_WARNING: u64 = 64 << 20;

enum Keys {
    /// Zero-padded decimal, 0 to `len` - 1.
    Decimal { width: usize, len: usize },
    /// All keys, concatenated, and their ends.
    Listed { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Lmdb {
    /// Opens a database whose values are MessagePack maps or encoded pictures. `path` is a folder
    /// with `data.mdb`, or a single file.
    ///
    /// # Errors
    /// If the database does not exist, is not an LMDB database, is truncated, or holds no samples,
    /// or if the first value is of neither kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(path.as_ref(), None)
    }

    /// Opens a database with values in the format `layout`.
    ///
    /// # Errors
    /// As [`open`](Lmdb::open), but values are not checked.
    pub fn with_layout(path: impl AsRef<Path>, layout: impl ValueFormat + 'static) -> Result<Self> {
        Self::new(path.as_ref(), Some(Box::new(layout)))
    }

    fn new(path: &Path, layout: Option<Box<dyn ValueFormat>>) -> Result<Self> {
        let folder = path.join("data.mdb");
        let data = if folder.exists() { folder } else { path.to_owned() };
        let identity = Identity::of(&std::fs::metadata(&data).map_err(|e| Error::io(&data, &e))?);
        let snapshot = Snapshot::open(path)?;
        let commit = snapshot.last_commit()?;
        let keys = match snapshot.with_transaction(decimal_keys)? {
            Some(keys) => keys,
            None => snapshot.with_transaction(listed_keys)?,
        };
        if keys.len() == 0 {
            return Err(Error::in_source("lmdb database holds no samples").at_path(path));
        }
        let classes = match snapshot.get(CLASSES_KEY.as_bytes())? {
            Some(value) => layout::classes(value).map_err(|e| at_key(e, CLASSES_KEY).at_path(path))?,
            None => Vec::new(),
        };
        let mut source = Lmdb {
            snapshot,
            layout: Box::new(MsgPack),
            keys,
            classes,
            path: path.to_owned(),
            data,
            identity,
            commit,
            growth_limit: None,
            warned: AtomicU64::new(0),
        };
        source.layout = match layout {
            Some(layout) => layout,
            None => {
                let mut scratch = Vec::new();
                let (key, value) = source.record(0, &mut scratch)?;
                layout::detect(value).map_err(|e| at_key(e, key).at_path(path))?
            }
        };
        Ok(source)
    }

    /// Limits the growth of the file while it is open to `bytes`. No limit by default.
    ///
    /// For a long-lived loader while another process writes: freed pages cannot be reused before
    /// the loader is dropped, so the file grows (see [`Lmdb`]). If it has grown by more than
    /// `bytes`, the next epoch fails with [`ErrorKind::Source`](crate::ErrorKind::Source). To
    /// release the pages, drop the loader and open another one that continues at its checkpoint
    /// ([`Loader::resume`](crate::Loader::resume)).
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

    /// Key and value of sample `index`. A key that is not text is given in hexadecimal.
    fn record<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a str, &'a [u8])> {
        scratch.clear();
        let (key, value) = match &self.keys {
            Keys::Decimal { width, .. } => {
                write!(scratch, "{index:0width$}").expect("a Vec takes everything");
                let value = self.snapshot.get(scratch)?;
                (std::str::from_utf8(scratch).expect("digits"), value)
            }
            Keys::Listed { bytes, ends } => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                let key = &bytes[start..ends[index]];
                let value = self.snapshot.get(key)?;
                let text = match std::str::from_utf8(key) {
                    Ok(text) if !text.contains(char::is_control) => text,
                    _ => {
                        key.iter().for_each(|byte| write!(scratch, "{byte:02x}").expect("a Vec takes everything"));
                        std::str::from_utf8(scratch).expect("digits")
                    }
                };
                (text, value)
            }
        };
        match value {
            Some(value) => Ok((key, value)),
            None => Err(at_key(Error::in_source("missing"), key).at_path(&self.path)),
        }
    }
}

impl Source for Lmdb {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (key, value) = self.record(index, scratch)?;
        fetch(value, Map::Random)
            .and_then(|()| self.layout.sample(key, value))
            .map_err(|e| at_key(e, key).at_path(&self.path))
    }

    fn check(&self) -> Result<()> {
        match self.identity.check(&self.data, true)? {
            Some(len) => self.check_growth(len),
            // The open file still exists, but has no name, so no process writes to it.
            None => Ok(()),
        }
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

impl Keys {
    fn len(&self) -> usize {
        match self {
            Keys::Decimal { len, .. } => *len,
            Keys::Listed { ends, .. } => ends.len(),
        }
    }
}

/// Maximum number of pages with keys for a check of all keys: 16 MiB in pages of 4 KiB, some
/// 600,000 keys if values have their own pages.
const FEW_PAGES: usize = 4096;
/// Number of places that are checked in a larger database.
const PLACES: usize = 1000;

/// Returns the keys if they are zero-padded decimals without a gap.
///
/// All keys are checked if they lie in a few pages. Otherwise the check uses the first key, the
/// last key, the number of keys, and a thousand places between them. It can overlook a missing key
/// and a foreign key that lie far from all places. Reading the missing sample then fails. An epoch
/// of all samples without an error proves the keys correct: `len` different keys of a database of
/// `len` keys are all of them.
fn decimal_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database) -> lmdb::Result<Option<Keys>> {
    let entries = txn.stat(database)?.entries();
    let mut cursor = txn.open_ro_cursor(database)?;
    let Some((first, _)) = cursor.iter_start().next().transpose()? else { return Ok(None) };
    let width = first.len();
    if first.iter().any(|&byte| byte != b'0') {
        return Ok(None);
    }
    // All keys after the digits must be metadata. Only a few are counted.
    let mut metadata = 0;
    for record in cursor.iter_from([b'9' + 1]).take(64) {
        if !is_metadata(record?.0) {
            return Ok(None);
        }
        metadata += 1;
    }
    let len = entries - metadata;
    let last = format!("{:0width$}", len - 1);
    let mut tail = cursor.iter_from(&last).take(2);
    let at_last = tail.next().transpose()?.is_some_and(|(key, _)| key == last.as_bytes());
    let then_none = tail.next().transpose()?.is_none_or(|(key, _)| is_metadata(key));
    if !at_last || !then_none {
        return Ok(None);
    }
    let stat = txn.stat(database)?;
    let sound = if stat.leaf_pages() <= FEW_PAGES {
        // Keys are not decoded: each is compared with the expected one.
        is_counted(cursor.iter_start().take(len), 0, width)?
    } else {
        let mut sound = true;
        for place in 0..PLACES {
            let index = len / PLACES * place;
            sound = sound && is_counted(cursor.iter_from(format!("{index:0width$}")).take(2), index, width)?;
        }
        sound
    };
    Ok(sound.then_some(Keys::Decimal { width, len }))
}

/// Whether the keys of `records` are the numbers from `first` on, each of `width` digits.
fn is_counted<'txn>(
    records: impl Iterator<Item = lmdb::Result<(&'txn [u8], &'txn [u8])>>,
    first: usize,
    width: usize,
) -> lmdb::Result<bool> {
    let mut expected = Vec::new();
    for (index, record) in (first..).zip(records) {
        expected.clear();
        write!(expected, "{index:0width$}").expect("a Vec takes everything");
        if record?.0 != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

fn listed_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database) -> lmdb::Result<Keys> {
    let mut keys = Vec::new();
    for record in txn.open_ro_cursor(database)?.iter_start() {
        let (key, _) = record?;
        if !is_metadata(key) {
            keys.push(key);
        }
    }
    if keys.iter().all(|key| key.iter().all(u8::is_ascii_digit)) {
        // The database puts "10" before "9", but such keys are meant as numbers.
        keys.sort_by_key(|key| (key.len(), *key));
    }
    let mut bytes = Vec::new();
    let ends = keys.iter().map(|key| {
        bytes.extend_from_slice(key);
        bytes.len()
    });
    Ok(Keys::Listed { ends: ends.collect(), bytes })
}

fn is_metadata(key: &[u8]) -> bool {
    key.len() > 4 && key.starts_with(b"__") && key.ends_with(b"__")
}

fn at_key(error: Error, key: &str) -> Error {
    Error::new(error.kind(), format!("key {key:?}: {}", error.cause()))
}
