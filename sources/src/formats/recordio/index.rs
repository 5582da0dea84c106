//! Locates the records in a RecordIO file.

use std::path::{Path, PathBuf};

use super::record::{FRAME, Position, frame, padded};
use crate::error::{Error, Result, push, try_collect};
use crate::machine::index_file::{self, Decoder, Encoder};
use crate::storage::OpenFile;

/// Maximum size of an `.idx` file, in bytes. This is enough for 40 million records.
pub(super) const MAX_IDX_BYTES: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"wfrecio\x01";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    /// The record's key in the `.idx` file, or its index if there is no such file.
    pub(super) key: u64,
}

/// Returns the records of `file` in file order. `listed` is the content of the `.idx` file next to
/// it. Without one, the records come from the index that warpfeed stored when the file was first
/// opened. If that index is missing or stale, the file is scanned and the index is stored.
pub(super) fn entries(file: &OpenFile, listed: Option<Vec<u8>>) -> Result<Vec<Entry>> {
    let path = &*file.path;
    if let Some(text) = listed {
        let listed = path.with_extension("idx");
        let error = |e| Error::io(&listed, &std::io::Error::new(std::io::ErrorKind::InvalidData, e));
        let text = String::from_utf8(text).map_err(error)?;
        return parse(&text, file.len()).map_err(|e| e.at_path(listed));
    }
    let modified = std::fs::metadata(path).map_or(0, |metadata| index_file::modification_ns(&metadata));
    let target = index_path(path);
    let stored = index_file::load(&target, MAGIC).and_then(|bytes| decode(&bytes, file.len(), modified));
    let offsets = match stored {
        Some(offsets) => offsets,
        None => {
            let offsets = scan(file).map_err(|e| e.at_path(path))?;
            if let Err(e) = index_file::store(&target, &encode(&offsets, file.len(), modified)) {
                tracing::debug!("{}: cannot store the index: {e}", target.display());
            }
            offsets
        }
    };
    try_collect(offsets.into_iter().zip(0..).map(|(offset, key)| Ok(Entry { offset, key })))
}

/// Returns the path at which warpfeed stores its own index.
fn index_path(path: &Path) -> PathBuf {
    let mut index = path.as_os_str().to_owned();
    index.push(".warpfeed-index");
    index.into()
}

/// Each line of an `.idx` file contains the key and the offset of one record. Sorts the records by
/// offset. `len` is the length of the RecordIO file.
fn parse(text: &str, len: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let mut words = text.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let entry = number().zip(number()).filter(|&(_, offset)| offset < len);
        let Some((key, offset)) = entry else {
            let cause = format!("line {} is {text:?}: expected a key, and an offset below {len}", line + 1);
            return Err(Error::in_source(cause));
        };
        push(&mut entries, Entry { offset, key })?;
    }
    entries.sort_unstable_by_key(|entry| entry.offset);
    if let Some(twice) = entries.windows(2).find(|pair| pair[0].offset == pair[1].offset) {
        return Err(Error::in_source(format!(
            "two records have the offset {}: create the .idx file again",
            twice[0].offset
        )));
    }
    Ok(entries)
}

fn scan(file: &OpenFile) -> Result<Vec<u64>> {
    let len = file.len();
    let (mut offsets, mut offset, mut scratch, mut inside) = (Vec::new(), 0, Vec::new(), false);
    while offset < len {
        let head = file.get(offset, FRAME as u64, &mut scratch)?;
        let part = frame(head).filter(|(_, position)| inside != matches!(position, Position::Whole | Position::First));
        let Some((part, position)) = part else {
            return Err(Error::in_source(format!(
                "no record at byte {offset} of {len}: the file is damaged or truncated"
            )));
        };
        if !inside {
            push(&mut offsets, offset)?;
        }
        inside = matches!(position, Position::First | Position::Middle);
        offset += padded(part) as u64;
        if offset > len {
            let last = offsets.len() - 1;
            return Err(Error::in_source(format!(
                "record {last} ends at byte {offset}, but the file has only {len} bytes: it is truncated"
            )));
        }
    }
    if inside {
        return Err(Error::in_source(format!("the last record is incomplete: the file is truncated at {len} bytes")));
    }
    Ok(offsets)
}

fn encode(offsets: &[u64], len: u64, modified: u64) -> Vec<u8> {
    let mut out = Encoder::new(MAGIC);
    [len, modified, offsets.len() as u64]
        .into_iter()
        .chain(offsets.iter().copied())
        .for_each(|number| out.long(number));
    out.finish()
}

/// Decodes a stored index. Returns `None` if it is damaged, or if the file had a different length
/// or modification time.
fn decode(bytes: &[u8], len: u64, modified: u64) -> Option<Vec<u64>> {
    let mut rest = Decoder::new(bytes, MAGIC)?;
    let [stored_len, time, count] = rest.longs()?;
    if (stored_len, time) != (len, modified) {
        return None;
    }
    let mut offsets = Vec::new();
    for _ in 0..count {
        let offset = rest.long()?;
        if offset >= len || offsets.last().is_some_and(|&before| before >= offset) {
            return None;
        }
        push(&mut offsets, offset).ok()?;
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idx_file_lists_records_in_any_order() {
        let entries = parse("5\t100\n0\t0\n\n", 200).unwrap();
        assert_eq!(entries, [Entry { offset: 0, key: 0 }, Entry { offset: 100, key: 5 }]);
        for (text, cause) in [
            ("0\t0\n1\n", "line 2 is \"1\": expected a key, and an offset"),
            ("0\t200\n", "line 1 is \"0\\t200\""),
            ("0\t-1\n", "line 1"),
            ("0\t7\n1\t7\n", "two records have the offset 7"),
        ] {
            let e = parse(text, 200).unwrap_err();
            assert!(e.cause().contains(cause), "{text:?}: {e}");
        }
    }

    #[test]
    fn stored_index_is_used_only_for_the_same_file() {
        let bytes = encode(&[0, 12, 40], 80, 7);
        assert_eq!(decode(&bytes, 80, 7), Some(vec![0, 12, 40]));
        assert!(decode(&bytes, 81, 7).is_none() && decode(&bytes, 80, 8).is_none());
        assert!(decode(&encode(&[12, 0], 80, 7), 80, 7).is_none() && decode(&encode(&[80], 80, 7), 80, 7).is_none());
    }
}
