//! Finds the offsets of the records in a RecordIO file.

use std::path::{Path, PathBuf};

use super::record::{FRAME, Turn, frame, padded};
use crate::error::{Error, Result, collected, push};
use crate::machine::index_file::{self, Decoder, Encoder};
use crate::medium::HeldFile;

/// Maximum size of an `.idx` file, in bytes. For 40 million records, the file takes 1 GiB.
pub(super) const MOST: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"wfrecio\x01";

/// The location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: u64,
    /// Key of the record according to the `.idx` file. Without an `.idx` file, this is the index of
    /// the record.
    pub(super) key: u64,
}

/// Returns the records of `file` in file order. `listed` is the content of the `.idx` file next to
/// `file`, if there is one. Otherwise, the records come from an index that was stored when the file
/// was first opened. If there is no such index, the file is scanned, and the index is stored.
///
/// # Errors
/// If the `.idx` file or the RecordIO file is damaged.
pub(super) fn entries(file: &HeldFile, listed: Option<Vec<u8>>) -> Result<Vec<Entry>> {
    let path = &*file.path;
    if let Some(text) = listed {
        let listed = path.with_extension("idx");
        let bad = |e| Error::io(&listed, &std::io::Error::new(std::io::ErrorKind::InvalidData, e));
        let text = String::from_utf8(text).map_err(bad)?;
        return parse(&text, file.len()).map_err(|e| e.at_path(listed));
    }
    let modified = std::fs::metadata(path).map_or(0, |metadata| index_file::modified(&metadata));
    let target = kept_path(path);
    let kept = index_file::load(&target, MAGIC).and_then(|bytes| decode(&bytes, file.len(), modified));
    let offsets = match kept {
        Some(offsets) => offsets,
        None => {
            let offsets = scan(file).map_err(|e| e.at_path(path))?;
            if let Err(e) = index_file::store(&target, &encode(&offsets, file.len(), modified)) {
                tracing::debug!("{}: cannot store the index: {e}", target.display());
            }
            offsets
        }
    };
    collected(offsets.into_iter().zip(0..).map(|(at, key)| Ok(Entry { at, key })))
}

/// Returns the path at which warpfeed stores the index of the file at `path`.
fn kept_path(path: &Path) -> PathBuf {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".warpfeed-index");
    kept.into()
}

/// Parses an `.idx` file. Each of its lines contains the key and the offset of one record.
fn parse(text: &str, len: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let mut words = text.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let entry = number().zip(number()).filter(|&(_, at)| at < len);
        let Some((key, at)) = entry else {
            let cause = format!("line {}: {text:?}: expected a key, and an offset below {len}", line + 1);
            return Err(Error::in_source(cause));
        };
        push(&mut entries, Entry { at, key })?;
    }
    entries.sort_unstable_by_key(|entry| entry.at);
    if let Some(twice) = entries.windows(2).find(|pair| pair[0].at == pair[1].at) {
        return Err(Error::in_source(format!("two records have the same offset {}", twice[0].at)));
    }
    Ok(entries)
}

/// Finds the offsets of all records by reading the frame headers.
fn scan(file: &HeldFile) -> Result<Vec<u64>> {
    let len = file.len();
    let (mut offsets, mut at, mut scratch, mut inside) = (Vec::new(), 0, Vec::new(), false);
    while at < len {
        let head = file.get(at, FRAME as u64, &mut scratch)?;
        let part = frame(head).filter(|(_, turn)| inside != matches!(turn, Turn::Whole | Turn::First));
        let Some((part, turn)) = part else {
            return Err(Error::in_source(format!("no record at byte {at} of {len}: the file is damaged or truncated")));
        };
        if !inside {
            push(&mut offsets, at)?;
        }
        inside = matches!(turn, Turn::First | Turn::Middle);
        at += padded(part) as u64;
        if at > len {
            let last = offsets.len() - 1;
            return Err(Error::in_source(format!(
                "record {last} ends at byte {at}, but the file has {len} bytes: it is truncated"
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

/// Decodes a stored index. Returns `None` unless it is valid for a file with this length and
/// modification time.
fn decode(bytes: &[u8], len: u64, modified: u64) -> Option<Vec<u64>> {
    let mut rest = Decoder::new(bytes, MAGIC)?;
    let [found, time, count] = rest.longs()?;
    if (found, time) != (len, modified) {
        return None;
    }
    let mut offsets = Vec::new();
    for _ in 0..count {
        let at = rest.long()?;
        if at >= len || offsets.last().is_some_and(|&before| before >= at) {
            return None;
        }
        push(&mut offsets, at).ok()?;
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idx_file_lists_records_in_any_order() {
        let entries = parse("5\t100\n0\t0\n\n", 200).unwrap();
        assert_eq!(entries, [Entry { at: 0, key: 0 }, Entry { at: 100, key: 5 }]);
        for (text, cause) in [
            ("0\t0\n1\n", "line 2: \"1\": expected a key, and an offset"),
            ("0\t200\n", "line 1: \"0\\t200\""),
            ("0\t-1\n", "line 1"),
            ("0\t7\n1\t7\n", "two records have the same offset 7"),
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
