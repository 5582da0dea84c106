//! One LMDB database.
//!
//! 1. [`Layout`]: what a value holds: [`MsgPack`] maps, [`Bare`] pictures, or a form of your own.
//! 2. `msgpack`: MessagePack in place.
//! 3. `snapshot`: the environment, and slices of its map that live as long as the source.
//! 4. `header`: the meta pages, checked before LMDB maps the file.

mod header;
mod layout;
mod msgpack;
mod snapshot;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use lmdb::{Cursor, Transaction};

pub(super) use header::is_lmdb;
pub use layout::{Bare, Layout, MsgPack};
use snapshot::Snapshot;
pub(crate) use snapshot::lmdb_error;

use super::identity::Identity;
use super::pages::fetch;
use super::{Sample, Source};
use crate::error::{Error, Result};

/// The key under which the names of the classes stand, a MessagePack array of texts. A database without it is fine.
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
/// **Keys.** Decimal keys of one width, zero-padded, `0` to `n - 1` without a gap, give the sample's index, and opening reads a handful of pages. Any other
/// keys are listed once on opening, in the order of the database; decimal keys without padding are put in the order of their numbers.
/// Keys of the form `__name__` are not samples; `__classes__` holds the names of the classes as a MessagePack array of texts.
///
/// **Values.** [`MsgPack`] or [`Bare`], told apart by the first sample, or any [`Layout`] of your own.
///
/// **Other processes** may write meanwhile: the source goes on seeing the state it was opened in. LMDB keeps track of that in a lock file
/// beside the data; where that cannot be written (a read-only file system) the database is opened without, and must then not be written.
/// Copying a new file over one that is open, or cutting it short, is undefined, as for every memory-mapped file. Within a process,
/// opening one database several times is fine; another LMDB library on the same file is not.
pub struct Lmdb {
    snapshot: Snapshot,
    layout: Box<dyn Layout>,
    keys: Keys,
    classes: Vec<String>,
    path: PathBuf,
    /// `path`, or the file in it.
    data: PathBuf,
    identity: Identity,
}

enum Keys {
    /// Zero-padded decimal, 0 to `len` - 1.
    Decimal { width: usize, len: usize },
    /// All keys one after the other, and where each ends.
    Listed { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Lmdb {
    /// Opens a database, a folder with `data.mdb` or a single file, whose values are MessagePack maps or encoded pictures.
    ///
    /// # Errors
    /// If it does not exist, is no LMDB database, is cut short, holds no samples, or the first value is of neither kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(path.as_ref(), None)
    }

    /// Opens a database whose values are read by `layout`.
    ///
    /// # Errors
    /// As [`open`](Lmdb::open), but no value is looked at.
    pub fn with_layout(path: impl AsRef<Path>, layout: impl Layout + 'static) -> Result<Self> {
        Self::new(path.as_ref(), Some(Box::new(layout)))
    }

    fn new(path: &Path, layout: Option<Box<dyn Layout>>) -> Result<Self> {
        let folder = path.join("data.mdb");
        let data = if folder.exists() { folder } else { path.to_owned() };
        let identity = Identity::of(&std::fs::metadata(&data).map_err(|e| Error::io(&data, &e))?);
        let snapshot = Snapshot::open(path)?;
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
        let mut source =
            Lmdb { snapshot, layout: Box::new(MsgPack), keys, classes, path: path.to_owned(), data, identity };
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
        fetch(value).and_then(|()| self.layout.sample(key, value)).map_err(|e| at_key(e, key).at_path(&self.path))
    }

    fn check(&self) -> Result<()> {
        self.identity.check(&self.data, true)
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

/// The keys, if they are zero-padded decimals without a gap: told from the first, the last and their number.
fn decimal_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database) -> lmdb::Result<Option<Keys>> {
    let entries = txn.stat(database)?.entries();
    let mut cursor = txn.open_ro_cursor(database)?;
    let Some((first, _)) = cursor.iter_start().next().transpose()? else { return Ok(None) };
    let width = first.len();
    if first.iter().any(|&byte| byte != b'0') {
        return Ok(None);
    }
    // Everything after the digits is metadata, or this is no such database; a handful is counted, no more.
    let mut metadata = 0;
    for record in cursor.iter_from([b'9' + 1]).take(64) {
        if !is_metadata(record?.0) {
            return Ok(None);
        }
        metadata += 1;
    }
    let len = entries - metadata;
    let last = format!("{:0width$}", len - 1);
    // `len` keys from 0 on, the last of which is `len - 1` with nothing but metadata behind it: there is no room for a gap.
    let mut tail = cursor.iter_from(&last).take(2);
    let at_last = tail.next().transpose()?.is_some_and(|(key, _)| key == last.as_bytes());
    let then_none = tail.next().transpose()?.is_none_or(|(key, _)| is_metadata(key));
    if !at_last || !then_none {
        return Ok(None);
    }
    Ok(Some(Keys::Decimal { width, len }))
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
        // "10" stands before "9" in the database; whoever wrote such keys meant numbers.
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

#[cfg(test)]
#[path = "../../../tests/fuzz/lmdb.rs"]
mod fuzz;
