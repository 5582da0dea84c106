use std::io::Write as _;

use lmdb::{Cursor, Transaction};

use super::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::medium::Part;

/// Number of the samples of text recognition sets.
const NUM_SAMPLES: &[u8] = b"num-samples";

/// The keys of the samples.
pub(super) enum Keys {
    /// Zero-padded decimal, 0 to `len` - 1.
    Decimal { width: usize, len: usize },
    /// `image-000000001` and `label-000000001` to `len`.
    Pairs { len: usize },
    /// All keys, concatenated, and their ends.
    Listed { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Keys {
    /// The keys of the samples of `snapshot`.
    pub(super) fn of(snapshot: &Snapshot) -> Result<Self> {
        if let Some(pairs) = pairs(snapshot)? {
            return Ok(pairs);
        }
        match snapshot.with_transaction(decimal_keys)? {
            Some(keys) => Ok(keys),
            None => snapshot.with_transaction(|txn, database| listed_keys(txn, database, &snapshot.names())),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Keys::Decimal { len, .. } | Keys::Pairs { len } => *len,
            Keys::Listed { ends, .. } => ends.len(),
        }
    }

    /// Reads the record of sample `index`: its key as text, in hexadecimal if it is not text, and
    /// its value. `scratch` takes the key if it is not stored.
    pub(super) fn record<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        index: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(Part<'a>, Option<&'a [u8]>)> {
        let key = self.text(index, scratch);
        let value = match self {
            Keys::Listed { .. } => snapshot.get(self.listed(index))?,
            _ => snapshot.get(scratch)?,
        };
        Ok((key, value))
    }

    /// The key of sample `index` as text, in hexadecimal if it is not text. `scratch` takes it if
    /// it is not stored.
    pub(super) fn text<'a>(&'a self, index: usize, scratch: &mut Vec<u8>) -> Part<'a> {
        scratch.clear();
        match self {
            Keys::Decimal { width, .. } => write!(scratch, "{index:0width$}"),
            Keys::Pairs { .. } => write!(scratch, "image-{:09}", index + 1),
            Keys::Listed { .. } => {
                let key = self.listed(index);
                if std::str::from_utf8(key).is_ok_and(|text| !text.contains(char::is_control)) {
                    return Part::Borrowed(key);
                }
                key.iter().try_for_each(|byte| write!(scratch, "{byte:02x}"))
            }
        }
        .expect("a Vec takes everything");
        Part::Page(0..scratch.len())
    }

    /// Key `index` of a list.
    fn listed(&self, index: usize) -> &[u8] {
        let Keys::Listed { bytes, ends } = self else { return b"" };
        let start = if index == 0 { 0 } else { ends[index - 1] };
        &bytes[start..ends[index]]
    }
}

/// The label of a text recognition set whose image has this key.
pub(super) fn label_key(image: &str) -> Option<String> {
    image.strip_prefix("image-").map(|number| format!("label-{number}"))
}

/// Returns the keys if they are those of a text recognition set: `num-samples`, `image-000000001`
/// and `label-000000001` up to that number.
fn pairs(snapshot: &Snapshot) -> Result<Option<Keys>> {
    let Some(count) = snapshot.get(NUM_SAMPLES)? else { return Ok(None) };
    let count = std::str::from_utf8(count).ok().and_then(|count| count.trim().parse::<usize>().ok());
    let has = |number: usize| snapshot.get(format!("image-{number:09}").as_bytes()).map(|value| value.is_some());
    match count {
        Some(len @ 1..) if has(1)? => {
            if !has(len)? || has(len + 1)? {
                return Err(Error::in_source(format!(
                    "num-samples is {len}, and the last key of the images is not image-{len:09}"
                )));
            }
            Ok(Some(Keys::Pairs { len }))
        }
        _ => Ok(None),
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

/// Lists all keys but those of metadata and of databases, called `names`.
fn listed_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database, names: &[&str]) -> lmdb::Result<Keys> {
    let mut keys = Vec::new();
    for record in txn.open_ro_cursor(database)?.iter_start() {
        let (key, _) = record?;
        if !is_metadata(key) && !names.iter().any(|name| name.as_bytes() == key) {
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

pub(super) fn is_metadata(key: &[u8]) -> bool {
    key.len() > 4 && key.starts_with(b"__") && key.ends_with(b"__")
}
