//! Frames of RecordIO records, as defined in dmlc-core's `recordio.h`.
//!
//! Each frame starts with a magic number. If the data of a record contains the magic number at a
//! multiple of four bytes, a writer splits the record there into two parts and leaves the number
//! out. Joining the parts restores the number.

use std::ops::Range;

use crate::error::{Error, Result};

/// First bytes of each frame.
const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();

/// Size of a frame's header, in bytes. The header consists of the magic number, and a word with the
/// length of the part and its position in the record.
pub(super) const FRAME: usize = 8;

/// Maximum length of a part in bytes. The length is stored in 29 bits.
const LENGTH: u32 = (1 << 29) - 1;

/// Position of a part within its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Whole,
    First,
    Middle,
    Last,
}

/// Parses the frame header at the start of `bytes`. Returns the length and the position of the
/// part, or `None` if there is no frame.
pub(super) fn frame(bytes: &[u8]) -> Option<(usize, Turn)> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let word = u32::from_le_bytes(*rest.first_chunk()?);
    let turn = match word >> 29 {
        0 => Turn::Whole,
        1 => Turn::First,
        2 => Turn::Middle,
        3 => Turn::Last,
        _ => return None,
    };
    (*magic == MAGIC).then_some(((word & LENGTH) as usize, turn))
}

/// Returns the size of the frame for a part of `len` bytes. Parts are padded to a multiple of four
/// bytes.
pub(super) fn padded(len: usize) -> usize {
    FRAME + len.next_multiple_of(4)
}

/// Returns the byte range of each part of the record at the start of `item`.
///
/// # Errors
/// If a part is damaged or missing.
pub(super) fn parts(item: &[u8]) -> Result<Vec<Range<usize>>> {
    let (mut parts, mut at) = (Vec::new(), 0);
    loop {
        let bad = |what: &str| {
            let part = parts.len();
            Error::in_source(format!(
                "byte {at} of the record has {what} part {part}: the file or its index is damaged"
            ))
        };
        let (len, turn) = frame(&item[at.min(item.len())..]).ok_or_else(|| bad("no"))?;
        let fits = if parts.is_empty() {
            matches!(turn, Turn::Whole | Turn::First)
        } else {
            turn != Turn::Whole && turn != Turn::First
        };
        if !fits {
            return Err(bad("a misplaced"));
        }
        let (start, end) = (at + FRAME, at + FRAME + len);
        if end > item.len() {
            return Err(bad("only the beginning of"));
        }
        parts.push(start..end);
        if matches!(turn, Turn::Whole | Turn::Last) {
            return Ok(parts);
        }
        at += padded(len);
    }
}

/// Joins the parts of the record at the start of `item`, and appends them to `made`. Inserts the
/// magic number between the parts.
///
/// # Errors
/// The errors of [`parts`].
pub(super) fn join(item: &[u8], made: &mut Vec<u8>) -> Result<()> {
    for (place, part) in parts(item)?.into_iter().enumerate() {
        if place > 0 {
            made.extend_from_slice(&MAGIC);
        }
        made.extend_from_slice(&item[part]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(data: &[u8], turn: u32) -> Vec<u8> {
        let word = turn << 29 | data.len() as u32;
        let mut part = [&MAGIC[..], &word.to_le_bytes(), data].concat();
        part.resize(padded(data.len()), 0);
        part
    }

    #[test]
    fn joining_parts_restores_the_magic_number() {
        let joined = |item: &[u8]| {
            let mut made = Vec::new();
            join(item, &mut made).map(|()| made)
        };
        assert_eq!(joined(&part(b"abc", 0)).unwrap(), b"abc");
        let three = [part(b"abcd", 1), part(b"", 2), part(b"xyz", 3), part(b"the next record", 0)].concat();
        assert_eq!(joined(&three).unwrap(), [&b"abcd"[..], &MAGIC, &MAGIC, b"xyz"].concat());
        for (bad, cause) in [
            (part(b"abc", 2), "byte 0 of the record has a misplaced part 0"),
            ([part(b"abcd", 1), part(b"x", 0)].concat(), "byte 12 of the record has a misplaced part 1"),
            (part(b"abcd", 1), "byte 12 of the record has no part 1"),
            (part(b"abcd", 0)[..10].to_vec(), "only the beginning of part 0"),
            (part(b"abcd", 5), "no part 0"),
            (Vec::new(), "no part 0"),
        ] {
            let e = joined(&bad).unwrap_err();
            assert!(e.cause().contains(cause), "{cause}: {e}");
        }
    }
}
