//! Finds the keys of the samples in an LMDB database.
//!
//! Listing all keys of a large database is slow and takes memory. In two common schemes, keys can
//! be computed instead: consecutive zero-padded decimals, and the numbered image-text pairs of text
//! recognition datasets. In all other databases, opening lists the keys.

use std::io::Write as _;

use lmdb::{Cursor, Transaction};

use super::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::storage::RowBytes;

/// Key under which a text recognition dataset stores its sample count.
const NUM_SAMPLES: &[u8] = b"num-samples";

pub(super) enum Keys {
    /// The keys are zero-padded decimal numbers from 0 to `len - 1`.
    Decimal { width: usize, len: usize },
    /// The keys are `image-%09d` and, optionally, `label-%09d`, for the numbers 1 to `len`.
    Pairs { len: usize },
    /// Any other keys: all of them concatenated, and the end offset of each.
    Listed { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Keys {
    pub(super) fn detect(snapshot: &Snapshot) -> Result<Self> {
        if let Some(pairs) = detect_pairs(snapshot)? {
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

    /// Returns the key of sample `index` in the format of [`text`](Keys::text), and its value. The
    /// value is `None` if the database does not contain the key.
    pub(super) fn find<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        index: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(RowBytes<'a>, Option<&'a [u8]>)> {
        let key = self.text(index, scratch);
        let value = match self {
            Keys::Listed { .. } => snapshot.get(self.listed_key(index))?,
            _ => snapshot.get(scratch)?,
        };
        Ok((key, value))
    }

    /// Returns the key of sample `index` as text, or in hexadecimal if the key is not UTF-8 or
    /// contains control characters. Writes computed and hexadecimal keys to `scratch`.
    pub(super) fn text<'a>(&'a self, index: usize, scratch: &mut Vec<u8>) -> RowBytes<'a> {
        scratch.clear();
        match self {
            Keys::Decimal { width, .. } => write!(scratch, "{index:0width$}"),
            Keys::Pairs { .. } => write!(scratch, "image-{:09}", index + 1),
            Keys::Listed { .. } => {
                let key = self.listed_key(index);
                if std::str::from_utf8(key).is_ok_and(|text| !text.contains(char::is_control)) {
                    return RowBytes::Borrowed(key);
                }
                key.iter().try_for_each(|byte| write!(scratch, "{byte:02x}"))
            }
        }
        .expect("writing to a Vec succeeds");
        RowBytes::Page(0..scratch.len())
    }

    fn listed_key(&self, index: usize) -> &[u8] {
        let Keys::Listed { bytes, ends } = self else { return b"" };
        let start = if index == 0 { 0 } else { ends[index - 1] };
        &bytes[start..ends[index]]
    }
}

/// Returns the label's key for the image key `image` in a text recognition dataset, or `None` if
/// `image` does not start with `image-`.
pub(super) fn label_key(image: &str) -> Option<String> {
    image.strip_prefix("image-").map(|number| format!("label-{number}"))
}

/// Detects a text recognition dataset by the keys `num-samples` and `image-000000001`. Fails if
/// there is no image with the number `num-samples`, or if there is one with the next number. Labels
/// are optional.
fn detect_pairs(snapshot: &Snapshot) -> Result<Option<Keys>> {
    let Some(count) = snapshot.get(NUM_SAMPLES)? else { return Ok(None) };
    let count = std::str::from_utf8(count).ok().and_then(|count| count.trim().parse::<usize>().ok());
    let has_image = |number: usize| snapshot.get(format!("image-{number:09}").as_bytes()).map(|value| value.is_some());
    match count {
        Some(len @ 1..) if has_image(1)? => {
            if !has_image(len)? || has_image(len + 1)? {
                return Err(Error::in_source(format!(
                    "num-samples is {len}, but the keys of the images do not end with image-{len:09}"
                )));
            }
            Ok(Some(Keys::Pairs { len }))
        }
        _ => Ok(None),
    }
}

/// Maximum number of leaf pages of a database in which every key is checked: 16 MiB with 4 KiB
/// pages, or about 600,000 keys if the values are on separate pages.
const FULLY_CHECKED_PAGES: usize = 4096;
/// Number of positions in a larger database at which two keys are checked.
const SPOT_CHECKS: usize = 1000;

/// Returns the keys if they are consecutive zero-padded decimals.
///
/// Checks every key if the database has at most [`FULLY_CHECKED_PAGES`] leaf pages. In a larger
/// database, checks only the first key, the last key, the number of keys, and the keys at
/// [`SPOT_CHECKS`] positions in between. These checks may miss a gap if an extra key elsewhere
/// compensates for it. Even then, no wrong sample is delivered: reading the missing sample fails.
/// An epoch without errors has found `len` distinct keys, which are all that the database contains
/// besides metadata.
fn decimal_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database) -> lmdb::Result<Option<Keys>> {
    let entries = txn.stat(database)?.entries();
    let mut cursor = txn.open_ro_cursor(database)?;
    let Some((first, _)) = cursor.iter_start().next().transpose()? else { return Ok(None) };
    let width = first.len();
    if first.iter().any(|&byte| byte != b'0') {
        return Ok(None);
    }
    // Only metadata keys may follow the decimal keys. At most 64 are inspected.
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
    let has_last_key = tail.next().transpose()?.is_some_and(|(key, _)| key == last.as_bytes());
    let ends_after_last = tail.next().transpose()?.is_none_or(|(key, _)| is_metadata(key));
    if !has_last_key || !ends_after_last {
        return Ok(None);
    }
    let stat = txn.stat(database)?;
    let is_valid = if stat.leaf_pages() <= FULLY_CHECKED_PAGES {
        // Comparing with the expected key is faster than parsing.
        are_consecutive(cursor.iter_start().take(len), 0, width)?
    } else {
        let mut is_valid = true;
        for check in 0..SPOT_CHECKS {
            let index = len / SPOT_CHECKS * check;
            is_valid = is_valid && are_consecutive(cursor.iter_from(format!("{index:0width$}")).take(2), index, width)?;
        }
        is_valid
    };
    Ok(is_valid.then_some(Keys::Decimal { width, len }))
}

/// Returns whether the keys are consecutive numbers of `width` digits from `first`.
fn are_consecutive<'txn>(
    records: impl Iterator<Item = lmdb::Result<(&'txn [u8], &'txn [u8])>>,
    first: usize,
    width: usize,
) -> lmdb::Result<bool> {
    let mut expected = Vec::new();
    for (index, record) in (first..).zip(records) {
        expected.clear();
        write!(expected, "{index:0width$}").expect("writing to a Vec succeeds");
        if record?.0 != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lists all keys except metadata keys and the database names in `names`.
fn listed_keys(txn: &lmdb::RoTransaction<'_>, database: lmdb::Database, names: &[&str]) -> lmdb::Result<Keys> {
    let mut keys = Vec::new();
    for record in txn.open_ro_cursor(database)?.iter_start() {
        let (key, _) = record?;
        if !is_metadata(key) && !names.iter().any(|name| name.as_bytes() == key) {
            keys.push(key);
        }
    }
    if keys.iter().all(|key| key.iter().all(u8::is_ascii_digit)) {
        // LMDB sorts keys bytewise, which puts "10" before "9".
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
