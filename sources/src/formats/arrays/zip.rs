//! Reads zip archives (PKWARE APPNOTE), including Zip64. Members may be uncompressed or deflated.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::DeflateDecoder;

use crate::error::{Error, Result, try_copy};
use crate::machine::bytes::Bytes;

/// A member of an archive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Offset of the member's data in the archive.
    pub(super) offset: u64,
    /// Length of the member's data in the archive.
    pub(super) stored: u64,
    /// Length of the data after decompression.
    pub(super) len: u64,
    crc: u32,
    pub(super) deflated: bool,
}

const END: &[u8; 4] = b"PK\x05\x06";
const END64: &[u8; 4] = b"PK\x06\x06";
const LOCATOR64: &[u8; 4] = b"PK\x06\x07";
const ENTRY: &[u8; 4] = b"PK\x01\x02";
const LOCAL: &[u8; 4] = b"PK\x03\x04";

/// Maximum size of the central directory, in bytes. Archives of arrays have few members, so this
/// is ample.
const MAX_DIRECTORY: u64 = 64 << 20;

/// Length of the end record without a comment, in bytes.
const END_BYTES: u64 = 22;
/// Length of the end record with the longest possible comment, in bytes.
const MAX_END: u64 = END_BYTES + 65_535;

/// Maximum compression ratio of deflate.
const MAX_RATIO: u64 = 1032;

/// Lists the members of the archive in `bytes`, in the order of its directory. The data of every
/// member lies inside the archive.
///
/// # Errors
/// If the archive is damaged or encrypted, or if it uses a compression method other than deflate.
pub(super) fn members(bytes: &dyn Bytes) -> Result<Vec<Member>> {
    let archive = Archive { bytes };
    let (start, size) = archive.directory()?;
    let directory = archive.get(start, size)?;
    let mut members = Vec::new();
    let mut at = 0;
    while at < directory.len() {
        let place = start + at as u64;
        let bad = |cause: &str| Error::in_source(format!("zip: entry at byte {place}: {cause}"));
        let entry = directory[at..].first_chunk::<46>().ok_or_else(|| bad("truncated"))?;
        if !entry.starts_with(ENTRY) {
            return Err(bad("wrong signature"));
        }
        let (name, extra, comment) = (u16_at(entry, 28), u16_at(entry, 30), u16_at(entry, 32));
        let rest = directory[at + 46..].get(..name + extra + comment).ok_or_else(|| bad("truncated"))?;
        let (flags, method) = (u16_at(entry, 8), u16_at(entry, 10));
        let [mut stored, mut len, mut local] = [20, 24, 42].map(|at| u64::from(u32_at(entry, at)));
        apply_zip64(&rest[name..name + extra], [&mut len, &mut stored, &mut local])
            .ok_or_else(|| bad("invalid 64-bit sizes"))?;
        let name = String::from_utf8_lossy(&rest[..name]).into_owned();
        if flags & 1 != 0 {
            return Err(bad(&format!("{name:?} is encrypted")));
        }
        let deflated = match method {
            0 => false,
            8 => true,
            _ => {
                return Err(bad(&format!("{name:?} uses compression method {method}: expected none or deflate")));
            }
        };
        let header = archive.get(local, 30).map_err(|_| bad("its data is outside the archive"))?;
        if !header.starts_with(LOCAL) {
            return Err(bad("its local file header is missing"));
        }
        let offset = local + 30 + (u16_at(&header, 26) + u16_at(&header, 28)) as u64;
        let archive_len = archive.bytes.len();
        if offset.checked_add(stored).is_none_or(|end| end > archive_len) {
            return Err(bad(&format!(
                "{name:?} has {stored} bytes at byte {offset}, but the archive has {archive_len} bytes: it is damaged \
                 or truncated"
            )));
        }
        if !deflated && stored != len {
            return Err(bad(&format!(
                "{name:?} is not compressed, but its compressed size is {stored} bytes and its size is {len}"
            )));
        }
        at += 46 + rest.len();
        members.push(Member { name, offset, stored, len, crc: u32_at(entry, 16), deflated });
    }
    Ok(members)
}

/// Returns the content of `member`, decompressed if necessary.
///
/// # Errors
/// If the content is damaged, or if it exceeds `max_len` bytes.
pub(super) fn content(bytes: &dyn Bytes, member: &Member, max_len: u64) -> Result<Vec<u8>> {
    let (name, len, stored) = (&member.name, member.len, member.stored);
    if len > max_len {
        return Err(Error::in_source(format!("zip: {name:?} has {len} bytes: expected at most {max_len}")));
    }
    if len > stored.saturating_add(1).saturating_mul(MAX_RATIO) {
        return Err(Error::in_source(format!(
            "zip: {name:?} is damaged: {stored} compressed bytes cannot contain {len} bytes"
        )));
    }
    let mut scratch = Vec::new();
    let mut content = Vec::new();
    let (mut left, mut at) = (stored, member.offset);
    // Read 1 MiB at a time, so that a file that is not mapped is never entirely in memory.
    let pieces = std::iter::from_fn(|| {
        let piece = left.min(1 << 20);
        (piece > 0).then(|| {
            let found = bytes.get(at, piece as usize, &mut scratch).and_then(try_copy);
            (left, at) = (left - piece, at + piece);
            found
        })
    });
    let read = || -> std::io::Result<()> {
        let pieces = Pieces { pieces, piece: Vec::new(), at: 0 };
        // Let the buffer grow with the actual content, because the claimed length may be wrong.
        match member.deflated {
            true => DeflateDecoder::new(pieces).take(len + 1).read_to_end(&mut content)?,
            false => { pieces }.read_to_end(&mut content)?,
        };
        Ok(())
    };
    read().map_err(|e| Error::in_source(format!("zip: {name:?} cannot be decompressed: {e}")))?;
    let cause = match content.len() as u64 {
        found if found < len => format!("it has {found} of {len} bytes"),
        found if found > len => format!("it has more than {len} bytes"),
        _ if crc32fast::hash(&content) != member.crc => "it has a wrong checksum".to_owned(),
        _ => return Ok(content),
    };
    Err(Error::in_source(format!("zip: {name:?} is damaged: {cause}")))
}

/// Verifies the checksum of `member`, which must be uncompressed. Skips archives in an object
/// store, because verifying would download the whole member.
///
/// # Errors
/// If the checksum is wrong, or the archive cannot be read.
pub(super) fn verify(bytes: &dyn Bytes, member: &Member) -> Result<()> {
    if bytes.are_stored() {
        return Ok(());
    }
    let (mut hash, mut scratch, mut done) = (crc32fast::Hasher::new(), Vec::new(), 0);
    while done < member.stored {
        let piece = (member.stored - done).min(1 << 20);
        hash.update(bytes.get(member.offset + done, piece as usize, &mut scratch)?);
        done += piece;
    }
    if hash.finalize() != member.crc {
        let Member { name, stored, .. } = member;
        return Err(Error::in_source(format!("zip: {name:?} is damaged: its {stored} bytes have a wrong checksum")));
    }
    Ok(())
}

/// Maximum number of bytes per archive whose checksums are verified on opening. Members that exceed
/// the remaining budget are not verified.
pub(super) const MAX_VERIFIED: u64 = 256 << 20;

/// Concatenates the pieces of an iterator into one `Read`.
struct Pieces<I> {
    pieces: I,
    piece: Vec<u8>,
    at: usize,
}

impl<I: Iterator<Item = Result<Vec<u8>>>> Read for Pieces<I> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.piece.len() {
            self.piece = match self.pieces.next() {
                Some(piece) => piece.map_err(std::io::Error::other)?,
                None => return Ok(0),
            };
            self.at = 0;
        }
        let count = to.len().min(self.piece.len() - self.at);
        to[..count].copy_from_slice(&self.piece[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

struct Archive<'a> {
    bytes: &'a dyn Bytes,
}

impl Archive<'_> {
    fn get(&self, at: u64, len: u64) -> Result<Cow<'_, [u8]>> {
        let end = at.checked_add(len).filter(|&end| end <= self.bytes.len());
        if end.is_none() {
            let all = self.bytes.len();
            return Err(Error::in_source(format!(
                "zip: {len} bytes at byte {at} extend past the end of the file ({all} bytes)"
            )));
        }
        Ok(Cow::Owned(try_copy(self.bytes.get(at, len as usize, &mut Vec::new())?)?))
    }

    /// Returns the offset and the size of the directory.
    fn directory(&self) -> Result<(u64, u64)> {
        let all = self.bytes.len();
        let from = all.saturating_sub(MAX_END);
        let tail = self.get(from, all - from)?;
        let mut ends = memchr::memmem::rfind_iter(&tail, END);
        // Accept only an end record that extends exactly to the end of the file, because the
        // signature may also occur in the comment.
        let end = ends.find(|&end| {
            tail[end..].len() as u64 >= END_BYTES && end + END_BYTES as usize + u16_at(&tail, end + 20) == tail.len()
        });
        let Some(end) = end else {
            return Err(Error::in_source("zip: no end record: the file is truncated or not an archive"));
        };
        let [mut size, mut start] = [12, 16].map(|at| u64::from(u32_at(&tail, end + at)));
        let entries = u16_at(&tail, end + 10);
        if start == u64::from(u32::MAX) || size == u64::from(u32::MAX) || entries == usize::from(u16::MAX) {
            let locator = (from + end as u64).checked_sub(20).map(|at| self.get(at, 20)).transpose()?;
            if let Some(locator) = locator.filter(|locator| locator.starts_with(LOCATOR64)) {
                let end = self.get(u64_at(&locator, 8), 56)?;
                if !end.starts_with(END64) {
                    return Err(Error::in_source("zip: the 64-bit end record is missing"));
                }
                (size, start) = (u64_at(&end, 40), u64_at(&end, 48));
            }
        }
        if size > MAX_DIRECTORY {
            return Err(Error::in_source(format!(
                "zip: the directory has {size} bytes: expected at most {MAX_DIRECTORY}"
            )));
        }
        Ok((start, size))
    }
}

/// Replaces each of the `values` that did not fit in 32 bits with its 64-bit value from the extra
/// field. Returns `None` if a 64-bit value is missing.
fn apply_zip64(mut extra: &[u8], values: [&mut u64; 3]) -> Option<()> {
    let mut wanted = values.into_iter().filter(|value| **value == u64::from(u32::MAX)).peekable();
    if wanted.peek().is_none() {
        return Some(());
    }
    while let Some((head, rest)) = extra.split_first_chunk::<4>() {
        let (field, after) = rest.split_at_checked(u16_at(head, 2))?;
        if u16_at(head, 0) == 1 {
            let mut field = field.as_chunks::<8>().0.iter();
            for value in wanted {
                *value = u64::from_le_bytes(*field.next()?);
            }
            return Some(());
        }
        extra = after;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn errors_say_why_a_member_is_refused() {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[7; 100]).unwrap();
        let bytes = encoder.finish().unwrap();
        let stored = bytes.len() as u64;
        let member =
            Member { name: "x".into(), offset: 0, stored, len: 100, crc: crc32fast::hash(&[7; 100]), deflated: true };
        let cause =
            |member: &Member, max_len: u64| content(&bytes.as_slice(), member, max_len).unwrap_err().cause().to_owned();
        assert_eq!(content(&bytes.as_slice(), &member, 100).unwrap(), [7; 100]);
        assert_eq!(cause(&member, 99), "zip: \"x\" has 100 bytes: expected at most 99");
        for (len, expected) in [
            (1 << 20, format!("{stored} compressed bytes cannot contain 1048576 bytes")),
            (101, "it has 100 of 101 bytes".to_owned()),
            (99, "it has more than 99 bytes".to_owned()),
        ] {
            let wrong = Member { len, ..member.clone() };
            assert_eq!(cause(&wrong, 1 << 30), format!("zip: \"x\" is damaged: {expected}"));
        }
        let wrong = Member { crc: !member.crc, ..member };
        assert_eq!(cause(&wrong, 100), "zip: \"x\" is damaged: it has a wrong checksum");
    }
}
