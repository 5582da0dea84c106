//! Finds and reads the records in one TFRecord file.

use std::fs::Metadata;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, push};
use crate::machine::bytes::Bytes;
use crate::machine::index_file::{self, Decoder, Encoder};
use crate::medium::{HeldFile, Medium, Part};

/// Minimum size of a file whose index is stored. Scanning a smaller file is fast.
const KEEP_INDEX: u64 = 16 << 20;

/// Number of bytes before a record: its length, and the checksum of this length.
const HEAD: u64 = 12;
/// Number of bytes after a record: its checksum.
const TAIL: u64 = 4;

/// Maximum length of a record, in bytes.
const MOST: u64 = 1 << 31;

/// Maximum size of an index. For 100 million records, the index takes 800 MB.
const MOST_INDEX: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"wftfrec\x01";

/// Start offset of each record in a file, and the end offset of the last record.
pub(super) struct Places(Vec<u64>);

/// Computes TensorFlow's masked CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Decodes the length of a record from its `head` at byte `at` of the file.
fn length(head: &[u8], at: u64) -> Result<u64> {
    let Some((length, rest)) = head.split_first_chunk::<8>() else { return Err(short(at)) };
    let Some((check, _)) = rest.split_first_chunk::<4>() else { return Err(short(at)) };
    if checksum(length) != u32::from_le_bytes(*check) {
        return Err(Error::in_source(format!(
            "tfrecord: wrong checksum of the length at byte {at}: the file is damaged"
        )));
    }
    Ok(u64::from_le_bytes(*length))
}

fn short(at: u64) -> Error {
    Error::in_source(format!("tfrecord: file is truncated in the head of the record at byte {at}"))
}

impl Places {
    /// Opens the TFRecord file at `path`. Returns `None` if the file is in an object store and has
    /// no index, because the whole file would have to be read to find its records.
    ///
    /// # Errors
    /// If the file is compressed, damaged or truncated.
    pub(super) fn open(medium: &Medium, path: &Path) -> Result<Option<(HeldFile, Self)>> {
        let Medium::Machine { mapped } = medium else {
            let Some(index) = medium.find(&index_path(path), MOST_INDEX)? else { return Ok(None) };
            let file = medium.open(path)?;
            return Ok(decode(&index, file.len(), None).map(|starts| (file, Places(starts))));
        };
        let (file, metadata) = HeldFile::open(path, *mapped)?;
        let starts = match load(path, &metadata) {
            // The file may have changed between the query of its metadata and the mapping. Only
            // bytes inside the map can be read, so use the index only if the lengths agree.
            Some(starts) if metadata.len() == file.len() => starts,
            _ => {
                let starts = scan(&file).map_err(|e| e.at_path(path))?;
                if file.len() >= KEEP_INDEX
                    && let Err(e) = index_file::store(&index_path(path), &encode(&starts, &metadata))
                {
                    tracing::debug!("{}: cannot store the index: {e}", path.display());
                }
                starts
            }
        };
        Ok(Some((file, Places(starts))))
    }

    /// Returns the byte range of record `number`.
    pub(super) fn range(&self, number: usize) -> Range<u64> {
        self.0[number]..self.0[number + 1]
    }

    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns record `number` of `file`. `index` is the position of this read in the loader's
    /// sample order. If the file is not mapped, the record is read into `page`.
    ///
    /// # Errors
    /// If the checksum is wrong, or the file cannot be read.
    pub(super) fn record<'a>(
        &self,
        file: &'a HeldFile,
        number: usize,
        index: usize,
        page: &mut Vec<u8>,
    ) -> Result<Part<'a>> {
        let range = self.range(number);
        let from = range.start;
        let part = file.part(Some(index as u64), range, page)?;
        let bytes = part.of(page);
        let (head, rest) = bytes.split_at(HEAD as usize);
        let (record, tail) = rest.split_at(rest.len() - TAIL as usize);
        let sound = length(head, from)? == record.len() as u64
            && tail.first_chunk().is_some_and(|check| checksum(record) == u32::from_le_bytes(*check));
        if !sound {
            let at = from + HEAD;
            let cause = format!("tfrecord: wrong checksum of the record of {} bytes at byte {at}", record.len());
            return Err(Error::in_source(cause));
        }
        let inside = HEAD as usize..HEAD as usize + record.len();
        Ok(match part {
            Part::Borrowed(bytes) => Part::Borrowed(&bytes[inside]),
            Part::Page(place) => Part::Page(place.start + inside.start..place.start + inside.end),
        })
    }
}

/// Finds all records. Returns the start offset of each record, and the end offset of the last one.
///
/// # Errors
/// If a length is damaged, or if the last record is incomplete. The message contains the offset.
pub(super) fn scan(bytes: &dyn Bytes) -> Result<Vec<u64>> {
    let all = bytes.len();
    let mut scratch = Vec::new();
    let start = bytes.get(0, all.min(2) as usize, &mut scratch)?;
    if start == [0x1f, 0x8b] {
        return Err(Error::in_source(
            "tfrecord: compressed files do not support random access: decompress it with gunzip",
        ));
    }
    let mut starts = vec![0];
    let mut at = 0;
    while at < all {
        if all - at < HEAD {
            return Err(short(at));
        }
        let length = length(bytes.get(at, HEAD as usize, &mut scratch)?, at)?;
        let left = all - at - HEAD;
        if length > MOST || length + TAIL > left {
            return Err(Error::in_source(format!(
                "tfrecord: the record at byte {at} claims {length} bytes and a checksum, but {left} bytes remain and \
                 the limit is {MOST}"
            )));
        }
        at += HEAD + length + TAIL;
        push(&mut starts, at)?;
    }
    Ok(starts)
}

/// Returns the path of a file's index, which is stored next to the file.
fn index_path(path: &Path) -> PathBuf {
    let mut index = path.as_os_str().to_owned();
    index.push(".warpfeed-index");
    index.into()
}

fn load(path: &Path, metadata: &Metadata) -> Option<Vec<u64>> {
    if metadata.len() < KEEP_INDEX {
        return None;
    }
    decode(&index_file::load(&index_path(path), MAGIC)?, metadata.len(), Some(index_file::modified(metadata)))
}

fn encode(starts: &[u64], metadata: &Metadata) -> Vec<u8> {
    let mut out = Encoder::new(MAGIC);
    [metadata.len(), index_file::modified(metadata), starts.len() as u64].iter().for_each(|&number| out.long(number));
    starts.iter().for_each(|&start| out.long(start));
    out.finish()
}

/// Decodes an index. Returns `None` if it is damaged, or if it does not belong to a file with this
/// length and, if given, this modification time.
pub(super) fn decode(bytes: &[u8], len: u64, modified: Option<u64>) -> Option<Vec<u64>> {
    let mut rest = Decoder::new(bytes, MAGIC)?;
    let [of, time, count] = rest.longs()?;
    if of != len || modified.is_some_and(|modified| modified != time) {
        return None;
    }
    let mut starts: Vec<u64> = Vec::new();
    for _ in 0..count {
        let start = rest.long()?;
        let least = starts.last().map_or(Some(0), |last| last.checked_add(HEAD + TAIL))?;
        if start < least || starts.is_empty() && start != 0 {
            return None;
        }
        push(&mut starts, start).ok()?;
    }
    (starts.last() == Some(&len)).then_some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_index_is_used_only_if_file_and_offsets_match() {
        let encoded = |starts: &[u64], len: u64| {
            let mut out = Encoder::new(MAGIC);
            [len, 7, starts.len() as u64].iter().chain(starts).for_each(|&number| out.long(number));
            out.finish()
        };
        assert_eq!(decode(&encoded(&[0, 20, 40], 40), 40, Some(7)), Some(vec![0, 20, 40]));
        assert_eq!(decode(&encoded(&[0, 20, 40], 40), 40, None), Some(vec![0, 20, 40]));
        assert!(decode(&encoded(&[0, 20, 40], 40), 40, Some(8)).is_none(), "different time");
        assert!(decode(&encoded(&[0, 20, 40], 40), 41, Some(7)).is_none(), "different length");
        for (starts, len) in [
            (&[][..], 0),
            (&[1, 40], 40),
            (&[0, 20, 30], 30),
            (&[0, u64::MAX - 3, u64::MAX], u64::MAX),
            (&[0, u64::MAX - 3, 5], 5),
            (&[0, 40, 20], 20),
        ] {
            assert!(decode(&encoded(starts, len), len, Some(7)).is_none(), "{starts:?}");
        }
    }
}
