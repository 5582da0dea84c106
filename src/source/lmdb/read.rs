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

/// The key under which the names of the classes stand, a MessagePack array of texts. A database
/// without it is fine.
pub(crate) const CLASSES_KEY: &str = "__classes__";

/// Samples in an LMDB database, without copying: fields borrow from the memory map.
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
/// **Keys.** Decimal keys of one width, zero-padded, `0` to `n - 1` without a gap, give the
/// sample's index. Opening looks at all keys of a small database, and at the first, the last and a
/// thousand places between them of a large one (one with more than 16 MiB of pages that hold keys).
/// Should a large one have a gap all the same, that sample is an error when it is read. Any other
/// keys are listed once on opening, in the order of the database; decimal keys without padding are
/// put in the order of their numbers. Keys of the form `__name__` are not samples; `__classes__`
/// holds the names of the classes as a MessagePack array of texts.
///
/// **Values.** [`MsgPack`] or [`Bare`](crate::source::Bare), told apart by the first sample, or any
/// [`ValueFormat`] of your own.
///
/// **Other processes** may write meanwhile, and make the database larger: the source goes on seeing
/// the state it was opened in. To see a newer one, open it again, which costs a few pages of
/// reading. LMDB keeps track of that in a lock file next to the data; where that cannot be written
/// (a read-only file system) the database is opened without, and must then not be written. Copying
/// a new file over one that is open, or cutting it short, is undefined, as for every memory-mapped
/// file. Within a process, opening one database several times is fine; another LMDB library on the
/// same file is not.
///
/// **What that costs a writer.** The source holds read transactions from its opening to its drop, a
/// loader's as long as the loader lives. Until then no writer can use pages again that were freed
/// after the opening. So the file grows by every page that is written: for each commit the new
/// values and the pages of the tree above them, 3 or 4 pages of 4 KiB as a rule, even if the values
/// only replace others. Appending 1,000 samples in one commit costs little more than their
/// bytes; replacing the same 1,000 a hundred times costs a hundred times their bytes. The first
/// commits after the drop use the freed pages again; the file itself never gets smaller. A growth
/// of 64 MiB, and each doubling of it, is a warning when an epoch begins;
/// [`growth_limit`](Lmdb::growth_limit) makes it an error.
pub struct Lmdb {
    snapshot: Snapshot,
    layout: Box<dyn ValueFormat>,
    keys: Keys,
    classes: Vec<String>,
    path: PathBuf,
    /// `path`, or the file in it.
    data: PathBuf,
    identity: Identity,
    /// The newest state that this one can see.
    commit: usize,
    growth_limit: Option<u64>,
    /// The growth of which the last warning was given.
    warned: AtomicU64,
}

/// Growth of an open database that is worth a warning, in bytes.
const WORTH_A_WARNING: u64 = 64 << 20;

enum Keys {
    /// Zero-padded decimal, 0 to `len` - 1.
    Decimal { width: usize, len: usize },
    /// All keys one after the other, and where each ends.
    Listed { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Lmdb {
    /// Opens a database, a folder with `data.mdb` or a single file, whose values are MessagePack
    /// maps or encoded pictures.
    ///
    /// # Errors
    /// If it does not exist, is no LMDB database, is cut short, holds no samples, or the first
    /// value is of neither kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(path.as_ref(), None)
    }

    /// Opens a database whose values are read by `layout`.
    ///
    /// # Errors
    /// As [`open`](Lmdb::open), but no value is looked at.
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

    /// Lets the file grow by `bytes` while it is open, and no more. No limit by default.
    ///
    /// For a loader that lives long while another process writes: pages that this process frees cannot be
    /// used again before the loader is dropped, and the file grows (see [`Lmdb`]). An epoch that
    /// begins after it has grown by more is an error of
    /// [`ErrorKind::Source`](crate::ErrorKind::Source). Dropping the loader and opening another
    /// one, which goes on where the first one stood ([`Loader::resume`](crate::Loader::resume)),
    /// lets the pages go.
    #[must_use]
    pub fn growth_limit(mut self, bytes: u64) -> Self {
        self.growth_limit = Some(bytes);
        self
    }

    /// Tells that the file, which has `len` bytes now, has grown since it was opened.
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

    /// Key and value of sample `index`; a key that is not text comes in hexadecimal.
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
            // The open file continues to exist without a name, and no process writes to it.
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

/// Pages with keys up to which all keys are looked at: 16 MiB of 4 KiB, some 600,000 keys whose
/// values have pages of their own.
const FEW_PAGES: usize = 4096;
/// Places that are looked at in a larger database.
const PLACES: usize = 1000;

/// The keys, if they are zero-padded decimals without a gap.
///
/// All keys are looked at if they lie in a few pages. Else this is told from the first key, the
/// last one, their number, and a thousand places between them. That is no proof: a missing key and
/// one that does not belong, far from all places, pass. Then the missing one is an error when it is
/// read. So an epoch of all samples without an error is the proof: `len` different keys of a
/// database of `len` keys are all of them.
fn decimal_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database) -> lmdb::Result<Option<Keys>> {
    let entries = txn.stat(database)?.entries();
    let mut cursor = txn.open_ro_cursor(database)?;
    let Some((first, _)) = cursor.iter_start().next().transpose()? else { return Ok(None) };
    let width = first.len();
    if first.iter().any(|&byte| byte != b'0') {
        return Ok(None);
    }
    // Everything after the digits is metadata, or this is no such database; a handful is counted,
    // no more.
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
        // No key is decoded: each is compared to the one that belongs there.
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
        // "10" stands before "9" in the database, but such keys are meant as numbers.
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
