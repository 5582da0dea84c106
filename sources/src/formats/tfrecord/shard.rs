//! Locates and reads the records in one TFRecord file.

use std::fs::Metadata;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, push};
use crate::machine::bytes::Bytes;
use crate::machine::index_file::{self, Decoder, Encoder};
use crate::storage::{OpenFile, RowBytes, Storage};

/// Minimum size in bytes of a file for which an index is stored. Smaller files can be scanned fast
/// enough.
const MIN_INDEXED_BYTES: u64 = 16 << 20;

/// Size in bytes of a record's header: the length, and the checksum of the length.
const HEADER_BYTES: u64 = 12;
/// Size in bytes of the checksum after a record.
const TRAILER_BYTES: u64 = 4;

const MAX_RECORD_BYTES: u64 = 1 << 31;

/// Maximum size of an index, in bytes. This is enough for more than 100 million records.
const MAX_INDEX_BYTES: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"wftfrec\x01";

/// Start offset of each record, followed by the end offset of the last record.
pub(super) struct Offsets(Vec<u64>);

/// Computes TensorFlow's masked CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Decodes the record length in `header`, which is at byte `start` of the file.
fn decode_length(header: &[u8], start: u64) -> Result<u64> {
    let Some((length, rest)) = header.split_first_chunk::<8>() else { return Err(truncated(start)) };
    let Some((expected, _)) = rest.split_first_chunk::<4>() else { return Err(truncated(start)) };
    if checksum(length) != u32::from_le_bytes(*expected) {
        return Err(Error::in_source(format!(
            "tfrecord: length checksum mismatch at byte {start}: the file is damaged"
        )));
    }
    Ok(u64::from_le_bytes(*length))
}

fn truncated(start: u64) -> Error {
    Error::in_source(format!(
        "tfrecord: the file ends inside the header of the record at byte {start}: the file is truncated"
    ))
}

impl Offsets {
    /// Opens a file and finds its records. Returns `None` if the file is in an object store and has
    /// no valid index, because finding the records would require downloading the whole file.
    pub(super) fn open(storage: &Storage, path: &Path) -> Result<Option<(OpenFile, Self)>> {
        let Storage::Machine { mapped } = storage else {
            let Some(index) = storage.find(&index_path(path), MAX_INDEX_BYTES)? else { return Ok(None) };
            let file = storage.open(path)?;
            return Ok(decode(&index, file.len(), None).map(|starts| (file, Offsets(starts))));
        };
        let (file, metadata) = OpenFile::open(path, *mapped)?;
        let starts = match load(path, &metadata) {
            // The file may have changed since its metadata was queried. If the lengths disagree, an
            // indexed record could lie outside the mapping.
            Some(starts) if metadata.len() == file.len() => starts,
            _ => {
                let starts = scan(&file).map_err(|e| e.at_path(path))?;
                if file.len() >= MIN_INDEXED_BYTES
                    && let Err(e) = index_file::store(&index_path(path), &encode(&starts, &metadata))
                {
                    tracing::debug!("{}: cannot store the index: {e}", path.display());
                }
                starts
            }
        };
        Ok(Some((file, Offsets(starts))))
    }

    /// Returns the byte range of `record`, including its header and trailer.
    pub(super) fn range(&self, record: usize) -> Range<u64> {
        self.0[record]..self.0[record + 1]
    }

    pub(super) fn len(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns record number `record` of `file`, which is sample `index` of the dataset. Unless the
    /// file is mapped, reads the record into `buffer`. Verifies both checksums.
    pub(super) fn read_record<'a>(
        &self,
        file: &'a OpenFile,
        record: usize,
        index: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<RowBytes<'a>> {
        let range = self.range(record);
        let start = range.start;
        let row_bytes = file.read_range(Some(index as u64), range, buffer)?;
        let bytes = row_bytes.resolve(buffer);
        let (header, rest) = bytes.split_at(HEADER_BYTES as usize);
        let (record, trailer) = rest.split_at(rest.len() - TRAILER_BYTES as usize);
        let is_valid = decode_length(header, start)? == record.len() as u64
            && trailer.first_chunk().is_some_and(|expected| checksum(record) == u32::from_le_bytes(*expected));
        if !is_valid {
            let offset = start + HEADER_BYTES;
            let cause = format!(
                "tfrecord: checksum mismatch in the {}-byte record at byte {offset}: the file is damaged",
                record.len()
            );
            return Err(Error::in_source(cause));
        }
        let payload = HEADER_BYTES as usize..HEADER_BYTES as usize + record.len();
        Ok(match row_bytes {
            RowBytes::Borrowed(bytes) => RowBytes::Borrowed(&bytes[payload]),
            RowBytes::Page(range) => RowBytes::Page(range.start + payload.start..range.start + payload.end),
        })
    }
}

/// Returns the start offset of each record, followed by the end offset of the last record. Errors
/// about damage contain the offset.
pub(super) fn scan(bytes: &dyn Bytes) -> Result<Vec<u64>> {
    let len = bytes.len();
    let mut scratch = Vec::new();
    let start = bytes.get(0, len.min(2) as usize, &mut scratch)?;
    if start == [0x1f, 0x8b] {
        return Err(Error::in_source(
            "tfrecord: gzip-compressed files do not support random access; decompress the file with gunzip",
        ));
    }
    let mut starts = vec![0];
    let mut offset = 0;
    while offset < len {
        if len - offset < HEADER_BYTES {
            return Err(truncated(offset));
        }
        let length = decode_length(bytes.get(offset, HEADER_BYTES as usize, &mut scratch)?, offset)?;
        let remaining = len - offset - HEADER_BYTES;
        if length > MAX_RECORD_BYTES {
            return Err(Error::in_source(format!(
                "tfrecord: the record at byte {offset} claims {length} bytes: expected at most {MAX_RECORD_BYTES}"
            )));
        }
        let needed = length + TRAILER_BYTES;
        if needed > remaining {
            return Err(Error::in_source(format!(
                "tfrecord: the record at byte {offset} needs {needed} bytes, but only {remaining} remain: the file is \
                 truncated"
            )));
        }
        offset += HEADER_BYTES + length + TRAILER_BYTES;
        push(&mut starts, offset)?;
    }
    Ok(starts)
}

fn index_path(path: &Path) -> PathBuf {
    let mut index = path.as_os_str().to_owned();
    index.push(".warpfeed-index");
    index.into()
}

fn load(path: &Path, metadata: &Metadata) -> Option<Vec<u64>> {
    if metadata.len() < MIN_INDEXED_BYTES {
        return None;
    }
    decode(&index_file::load(&index_path(path), MAGIC)?, metadata.len(), Some(index_file::modification_ns(metadata)))
}

fn encode(starts: &[u64], metadata: &Metadata) -> Vec<u8> {
    let mut out = Encoder::new(MAGIC);
    [metadata.len(), index_file::modification_ns(metadata), starts.len() as u64]
        .iter()
        .for_each(|&number| out.long(number));
    starts.iter().for_each(|&start| out.long(start));
    out.finish()
}

/// Returns `None` if the index is damaged or stale. An index is stale if it records a file length
/// other than `len`, or if `modified` is given and the index records a different modification time.
pub(super) fn decode(bytes: &[u8], len: u64, modified: Option<u64>) -> Option<Vec<u64>> {
    let mut rest = Decoder::new(bytes, MAGIC)?;
    let [indexed_len, time, count] = rest.longs()?;
    if indexed_len != len || modified.is_some_and(|modified| modified != time) {
        return None;
    }
    let mut starts: Vec<u64> = Vec::new();
    for _ in 0..count {
        let start = rest.long()?;
        let min_start = starts.last().map_or(Some(0), |last| last.checked_add(HEADER_BYTES + TRAILER_BYTES))?;
        if start < min_start || starts.is_empty() && start != 0 {
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
        assert!(
            decode(&encoded(&[0, 20, 40], 40), 40, Some(8)).is_none(),
            "the file had a different modification time"
        );
        assert!(decode(&encoded(&[0, 20, 40], 40), 41, Some(7)).is_none(), "the file had a different length");
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
