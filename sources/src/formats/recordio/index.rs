//! Locates the records in a RecordIO file.

use std::path::{Path, PathBuf};

use super::record::{FRAME_HEADER_BYTES, Position, padded_frame_len, parse_frame_header};
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

/// Returns the records of `file` in file order. `idx_content` is the content of the `.idx` file
/// next to `file`. If there is no `.idx` file, the records come from the index that warpfeed stored
/// when the file was first opened. If the stored index is missing, stale or damaged, the file is
/// scanned, and the new index is stored if possible.
pub(super) fn read_entries(file: &OpenFile, idx_content: Option<Vec<u8>>) -> Result<Vec<Entry>> {
    let path = &*file.path;
    if let Some(text) = idx_content {
        let idx_path = path.with_extension("idx");
        let error = |e| Error::io(&idx_path, &std::io::Error::new(std::io::ErrorKind::InvalidData, e));
        let text = String::from_utf8(text).map_err(error)?;
        return parse_idx(&text, file.len()).map_err(|e| e.at_path(idx_path));
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

fn index_path(path: &Path) -> PathBuf {
    let mut index = path.as_os_str().to_owned();
    index.push(".warpfeed-index");
    index.into()
}

/// Parses an `.idx` file. Each line contains the key and the offset of one record; empty lines are
/// ignored. Returns the records sorted by offset. `len` is the length of the RecordIO file, in
/// bytes.
fn parse_idx(text: &str, len: u64) -> Result<Vec<Entry>> {
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
    if let Some(duplicate) = entries.windows(2).find(|pair| pair[0].offset == pair[1].offset) {
        return Err(Error::in_source(format!(
            "two records have the offset {}: create the .idx file again",
            duplicate[0].offset
        )));
    }
    Ok(entries)
}

/// Returns the offsets of all records, in bytes. Reads the header of each frame.
fn scan(file: &OpenFile) -> Result<Vec<u64>> {
    let len = file.len();
    let (mut offsets, mut offset, mut scratch, mut is_inside_record) = (Vec::new(), 0, Vec::new(), false);
    while offset < len {
        let head = file.get(offset, FRAME_HEADER_BYTES as u64, &mut scratch)?;
        let part = parse_frame_header(head)
            .filter(|(_, position)| is_inside_record != matches!(position, Position::Whole | Position::First));
        let Some((part_len, position)) = part else {
            return Err(Error::in_source(format!(
                "no record at byte {offset} of {len}: the file is damaged or truncated"
            )));
        };
        if !is_inside_record {
            push(&mut offsets, offset)?;
        }
        is_inside_record = matches!(position, Position::First | Position::Middle);
        offset += padded_frame_len(part_len) as u64;
        if offset > len {
            let last = offsets.len() - 1;
            return Err(Error::in_source(format!(
                "record {last} ends at byte {offset}, but the file has only {len} bytes: it is truncated"
            )));
        }
    }
    if is_inside_record {
        return Err(Error::in_source(format!("the last record is incomplete: the file is truncated at {len} bytes")));
    }
    Ok(offsets)
}

/// Encodes an index. `len` is the length of the RecordIO file in bytes, and `modified` its
/// modification time in nanoseconds.
fn encode(offsets: &[u64], len: u64, modified: u64) -> Vec<u8> {
    let mut out = Encoder::new(MAGIC);
    [len, modified, offsets.len() as u64]
        .into_iter()
        .chain(offsets.iter().copied())
        .for_each(|number| out.long(number));
    out.finish()
}

/// Returns the offsets in an index, or `None` if the index is damaged or belongs to a file with a
/// different length or modification time.
fn decode(bytes: &[u8], len: u64, modified: u64) -> Option<Vec<u64>> {
    let mut decoder = Decoder::new(bytes, MAGIC)?;
    let [stored_len, time, count] = decoder.longs()?;
    if (stored_len, time) != (len, modified) {
        return None;
    }
    let mut offsets = Vec::new();
    for _ in 0..count {
        let offset = decoder.long()?;
        if offset >= len || offsets.last().is_some_and(|&previous| previous >= offset) {
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
        let entries = parse_idx("5\t100\n0\t0\n\n", 200).unwrap();
        assert_eq!(entries, [Entry { offset: 0, key: 0 }, Entry { offset: 100, key: 5 }]);
        for (text, cause) in [
            ("0\t0\n1\n", "line 2 is \"1\": expected a key, and an offset"),
            ("0\t200\n", "line 1 is \"0\\t200\""),
            ("0\t-1\n", "line 1"),
            ("0\t7\n1\t7\n", "two records have the offset 7"),
        ] {
            let e = parse_idx(text, 200).unwrap_err();
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
