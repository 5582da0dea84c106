//! Parses the frames of RecordIO records, as defined in dmlc-core's `recordio.h`.
//!
//! Each frame starts with a magic number and contains one part of a record. A record has several
//! parts only if its data contains the magic number at an offset that is a multiple of four.
//! Writers then split the data there and omit the number, and joining the parts restores it.

use std::ops::Range;

use crate::error::{Error, Result};

const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();

/// Size of a frame header, in bytes: the magic number, and a 32-bit word with the length of the
/// part and its position in the record.
pub(super) const FRAME_HEADER_BYTES: usize = 8;

/// Bits of the header's second word that contain the length of the part, in bytes.
const LENGTH_MASK: u32 = (1 << 29) - 1;

/// The position of a part within its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Whole,
    First,
    Middle,
    Last,
}

/// Returns the length of the part in bytes and the position of the part in its record, or `None` if
/// `bytes` does not start with a frame header.
pub(super) fn parse_frame_header(bytes: &[u8]) -> Option<(usize, Position)> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let word = u32::from_le_bytes(*rest.first_chunk()?);
    let position = match word >> 29 {
        0 => Position::Whole,
        1 => Position::First,
        2 => Position::Middle,
        3 => Position::Last,
        _ => return None,
    };
    (*magic == MAGIC).then_some(((word & LENGTH_MASK) as usize, position))
}

/// Returns the size in bytes of a frame whose part has `len` bytes: the header, and the part padded
/// to a multiple of four bytes.
pub(super) fn padded_frame_len(len: usize) -> usize {
    FRAME_HEADER_BYTES + len.next_multiple_of(4)
}

/// Returns the byte ranges of the parts of the record at the start of `item`.
pub(super) fn part_ranges(item: &[u8]) -> Result<Vec<Range<usize>>> {
    let (mut parts, mut offset) = (Vec::new(), 0);
    loop {
        let error = |what: &str| {
            let part = parts.len();
            Error::in_source(format!(
                "part {part} {what} at byte {offset} of the record: the file or its index is damaged"
            ))
        };
        let (len, position) = parse_frame_header(&item[offset.min(item.len())..]).ok_or_else(|| error("is missing"))?;
        let is_in_place = if parts.is_empty() {
            matches!(position, Position::Whole | Position::First)
        } else {
            position != Position::Whole && position != Position::First
        };
        if !is_in_place {
            return Err(error("is misplaced"));
        }
        let (start, end) = (offset + FRAME_HEADER_BYTES, offset + FRAME_HEADER_BYTES + len);
        if end > item.len() {
            return Err(error("is truncated"));
        }
        parts.push(start..end);
        if matches!(position, Position::Whole | Position::Last) {
            return Ok(parts);
        }
        offset += padded_frame_len(len);
    }
}

/// Appends the data of the record at the start of `item` to `buffer`. Restores the magic number
/// between its parts.
pub(super) fn append_record(item: &[u8], buffer: &mut Vec<u8>) -> Result<()> {
    for (index, part) in part_ranges(item)?.into_iter().enumerate() {
        if index > 0 {
            buffer.extend_from_slice(&MAGIC);
        }
        buffer.extend_from_slice(&item[part]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_part(data: &[u8], position: u32) -> Vec<u8> {
        let word = position << 29 | data.len() as u32;
        let mut part = [&MAGIC[..], &word.to_le_bytes(), data].concat();
        part.resize(padded_frame_len(data.len()), 0);
        part
    }

    #[test]
    fn joining_parts_restores_the_magic_number() {
        let joined = |item: &[u8]| {
            let mut buffer = Vec::new();
            append_record(item, &mut buffer).map(|()| buffer)
        };
        assert_eq!(joined(&encode_part(b"abc", 0)).unwrap(), b"abc");
        let three =
            [encode_part(b"abcd", 1), encode_part(b"", 2), encode_part(b"xyz", 3), encode_part(b"the next record", 0)]
                .concat();
        assert_eq!(joined(&three).unwrap(), [&b"abcd"[..], &MAGIC, &MAGIC, b"xyz"].concat());
        for (damaged, cause) in [
            (encode_part(b"abc", 2), "part 0 is misplaced at byte 0 of the record"),
            ([encode_part(b"abcd", 1), encode_part(b"x", 0)].concat(), "part 1 is misplaced at byte 12 of the record"),
            (encode_part(b"abcd", 1), "part 1 is missing at byte 12 of the record"),
            (encode_part(b"abcd", 0)[..10].to_vec(), "part 0 is truncated"),
            (encode_part(b"abcd", 5), "part 0 is missing"),
            (Vec::new(), "part 0 is missing"),
        ] {
            let e = joined(&damaged).unwrap_err();
            assert!(e.cause().contains(cause), "{cause}: {e}");
        }
    }
}
