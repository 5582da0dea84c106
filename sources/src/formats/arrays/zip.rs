//! Reads zip archives (PKWARE APPNOTE), including Zip64. Members may be uncompressed or deflated.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::DeflateDecoder;

use crate::error::{Error, Result, try_copy};
use crate::machine::bytes::Bytes;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Offset of the member's data in the archive, in bytes.
    pub(super) offset: u64,
    pub(super) compressed_len: u64,
    pub(super) len: u64,
    crc: u32,
    pub(super) is_deflated: bool,
}

const END_SIGNATURE: &[u8; 4] = b"PK\x05\x06";
const END64_SIGNATURE: &[u8; 4] = b"PK\x06\x06";
const LOCATOR64_SIGNATURE: &[u8; 4] = b"PK\x06\x07";
const ENTRY_SIGNATURE: &[u8; 4] = b"PK\x01\x02";
const LOCAL_SIGNATURE: &[u8; 4] = b"PK\x03\x04";

/// Maximum size of the directory, in bytes. Archives of arrays have few members, so this is ample.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// Size of the end record without a comment, in bytes.
const END_BYTES: u64 = 22;
/// Size of the end record with the longest possible comment, in bytes.
const MAX_END_BYTES: u64 = END_BYTES + 65_535;

/// Maximum compression ratio of deflate.
const MAX_RATIO: u64 = 1032;

/// Lists the members in directory order. Fails if the data of a member extends past the end of the
/// archive.
pub(super) fn list_members(bytes: &dyn Bytes) -> Result<Vec<Member>> {
    let archive = Archive { bytes };
    let (start, size) = archive.find_directory()?;
    let directory = archive.get(start, size)?;
    let mut members = Vec::new();
    let mut entry_offset = 0;
    while entry_offset < directory.len() {
        let entry_position = start + entry_offset as u64;
        let error = |cause: &str| Error::in_source(format!("zip: entry at byte {entry_position}: {cause}"));
        let entry = directory[entry_offset..].first_chunk::<46>().ok_or_else(|| error("truncated"))?;
        if !entry.starts_with(ENTRY_SIGNATURE) {
            return Err(error("wrong signature"));
        }
        let (name, extra, comment) = (u16_at(entry, 28), u16_at(entry, 30), u16_at(entry, 32));
        let rest = directory[entry_offset + 46..].get(..name + extra + comment).ok_or_else(|| error("truncated"))?;
        let (flags, method) = (u16_at(entry, 8), u16_at(entry, 10));
        let [mut compressed_len, mut len, mut header_offset] =
            [20, 24, 42].map(|offset| u64::from(u32_at(entry, offset)));
        apply_zip64(&rest[name..name + extra], [&mut len, &mut compressed_len, &mut header_offset])
            .ok_or_else(|| error("invalid 64-bit sizes"))?;
        let name = String::from_utf8_lossy(&rest[..name]).into_owned();
        if flags & 1 != 0 {
            return Err(error(&format!("{name:?} is encrypted")));
        }
        let is_deflated = match method {
            0 => false,
            8 => true,
            _ => {
                return Err(error(&format!("{name:?} uses compression method {method}: expected none or deflate")));
            }
        };
        let header = archive.get(header_offset, 30).map_err(|_| error("its data is outside the archive"))?;
        if !header.starts_with(LOCAL_SIGNATURE) {
            return Err(error("its local file header is missing"));
        }
        let offset = header_offset + 30 + (u16_at(&header, 26) + u16_at(&header, 28)) as u64;
        let archive_len = archive.bytes.len();
        if offset.checked_add(compressed_len).is_none_or(|end| end > archive_len) {
            return Err(error(&format!(
                "{name:?} has {compressed_len} bytes at byte {offset}, but the archive has {archive_len} bytes: it is \
                 damaged or truncated"
            )));
        }
        if !is_deflated && compressed_len != len {
            return Err(error(&format!(
                "{name:?} is not compressed, but its compressed size is {compressed_len} bytes and its size is {len}"
            )));
        }
        entry_offset += 46 + rest.len();
        members.push(Member { name, offset, compressed_len, len, crc: u32_at(entry, 16), is_deflated });
    }
    Ok(members)
}

pub(super) fn read_member(bytes: &dyn Bytes, member: &Member, max_len: u64) -> Result<Vec<u8>> {
    let (name, len, stored) = (&member.name, member.len, member.compressed_len);
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
    let (mut remaining, mut offset) = (stored, member.offset);
    // Read one MiB at a time, so that an unmapped file does not need memory for all compressed
    // bytes.
    let chunks = std::iter::from_fn(|| {
        let chunk = remaining.min(1 << 20);
        (chunk > 0).then(|| {
            let result = bytes.get(offset, chunk as usize, &mut scratch).and_then(try_copy);
            (remaining, offset) = (remaining - chunk, offset + chunk);
            result
        })
    });
    let read = || -> std::io::Result<()> {
        let chunks = ChunkReader { chunks, chunk: Vec::new(), position: 0 };
        // The claimed length may be wrong, so let the buffer grow with the content.
        match member.is_deflated {
            true => DeflateDecoder::new(chunks).take(len + 1).read_to_end(&mut content)?,
            false => { chunks }.read_to_end(&mut content)?,
        };
        Ok(())
    };
    read().map_err(|e| Error::in_source(format!("zip: {name:?} cannot be decompressed: {e}")))?;
    let cause = match content.len() as u64 {
        actual if actual < len => format!("it has {actual} of {len} bytes"),
        actual if actual > len => format!("it has more than {len} bytes"),
        _ if crc32fast::hash(&content) != member.crc => "it has a wrong checksum".to_owned(),
        _ => return Ok(content),
    };
    Err(Error::in_source(format!("zip: {name:?} is damaged: {cause}")))
}

/// Skips archives in an object store, because verifying would download the whole member.
pub(super) fn verify_checksum(bytes: &dyn Bytes, member: &Member) -> Result<()> {
    if bytes.are_in_store() {
        return Ok(());
    }
    let (mut hash, mut scratch, mut verified_len) = (crc32fast::Hasher::new(), Vec::new(), 0);
    while verified_len < member.compressed_len {
        let chunk = (member.compressed_len - verified_len).min(1 << 20);
        hash.update(bytes.get(member.offset + verified_len, chunk as usize, &mut scratch)?);
        verified_len += chunk;
    }
    if hash.finalize() != member.crc {
        let Member { name, compressed_len: stored, .. } = member;
        return Err(Error::in_source(format!("zip: {name:?} is damaged: its {stored} bytes have a wrong checksum")));
    }
    Ok(())
}

/// Maximum number of bytes of uncompressed members that are verified when an archive is opened.
pub(super) const MAX_VERIFIED_BYTES: u64 = 256 << 20;

struct ChunkReader<I> {
    chunks: I,
    chunk: Vec<u8>,
    position: usize,
}

impl<I: Iterator<Item = Result<Vec<u8>>>> Read for ChunkReader<I> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.position == self.chunk.len() {
            self.chunk = match self.chunks.next() {
                Some(chunk) => chunk.map_err(std::io::Error::other)?,
                None => return Ok(0),
            };
            self.position = 0;
        }
        let count = out.len().min(self.chunk.len() - self.position);
        out[..count].copy_from_slice(&self.chunk[self.position..][..count]);
        self.position += count;
        Ok(count)
    }
}

struct Archive<'a> {
    bytes: &'a dyn Bytes,
}

impl Archive<'_> {
    fn get(&self, offset: u64, len: u64) -> Result<Cow<'_, [u8]>> {
        let end = offset.checked_add(len).filter(|&end| end <= self.bytes.len());
        if end.is_none() {
            let file_len = self.bytes.len();
            return Err(Error::in_source(format!(
                "zip: {len} bytes at byte {offset} extend past the end of the file ({file_len} bytes)"
            )));
        }
        Ok(Cow::Owned(try_copy(self.bytes.get(offset, len as usize, &mut Vec::new())?)?))
    }

    /// Returns the offset and the size of the directory, in bytes.
    fn find_directory(&self) -> Result<(u64, u64)> {
        let len = self.bytes.len();
        let tail_start = len.saturating_sub(MAX_END_BYTES);
        let tail = self.get(tail_start, len - tail_start)?;
        let mut ends = memchr::memmem::rfind_iter(&tail, END_SIGNATURE);
        // The signature may also occur in the comment, so only an end record that extends to the
        // end of the file counts.
        let end = ends.find(|&end| {
            tail[end..].len() as u64 >= END_BYTES && end + END_BYTES as usize + u16_at(&tail, end + 20) == tail.len()
        });
        let Some(end) = end else {
            return Err(Error::in_source("zip: no end record: the file is truncated or not an archive"));
        };
        let [mut size, mut start] = [12, 16].map(|offset| u64::from(u32_at(&tail, end + offset)));
        let entries = u16_at(&tail, end + 10);
        if start == u64::from(u32::MAX) || size == u64::from(u32::MAX) || entries == usize::from(u16::MAX) {
            let locator = (tail_start + end as u64).checked_sub(20).map(|offset| self.get(offset, 20)).transpose()?;
            if let Some(locator) = locator.filter(|locator| locator.starts_with(LOCATOR64_SIGNATURE)) {
                let end = self.get(u64_at(&locator, 8), 56)?;
                if !end.starts_with(END64_SIGNATURE) {
                    return Err(Error::in_source("zip: the 64-bit end record is missing"));
                }
                (size, start) = (u64_at(&end, 40), u64_at(&end, 48));
            }
        }
        if size > MAX_DIRECTORY_BYTES {
            return Err(Error::in_source(format!(
                "zip: the directory has {size} bytes: expected at most {MAX_DIRECTORY_BYTES}"
            )));
        }
        Ok((start, size))
    }
}

/// Replaces each of the `values` that did not fit in 32 bits with its 64-bit value from the extra
/// field. `values` are the size, the compressed size and the offset of the local header, in the
/// order of the extra field. Returns `None` if a 64-bit value is missing.
fn apply_zip64(mut extra: &[u8], values: [&mut u64; 3]) -> Option<()> {
    let mut overflowed = values.into_iter().filter(|value| **value == u64::from(u32::MAX)).peekable();
    if overflowed.peek().is_none() {
        return Some(());
    }
    while let Some((head, rest)) = extra.split_first_chunk::<4>() {
        let (field, after) = rest.split_at_checked(u16_at(head, 2))?;
        if u16_at(head, 0) == 1 {
            let mut field = field.as_chunks::<8>().0.iter();
            for value in overflowed {
                *value = u64::from_le_bytes(*field.next()?);
            }
            return Some(());
        }
        extra = after;
    }
    None
}

fn u16_at(bytes: &[u8], offset: usize) -> usize {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]]).into()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from(u32_at(bytes, offset)) | u64::from(u32_at(bytes, offset + 4)) << 32
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
        let member = Member {
            name: "x".into(),
            offset: 0,
            compressed_len: stored,
            len: 100,
            crc: crc32fast::hash(&[7; 100]),
            is_deflated: true,
        };
        let cause = |member: &Member, max_len: u64| {
            read_member(&bytes.as_slice(), member, max_len).unwrap_err().cause().to_owned()
        };
        assert_eq!(read_member(&bytes.as_slice(), &member, 100).unwrap(), [7; 100]);
        assert_eq!(cause(&member, 99), "zip: \"x\" has 100 bytes: expected at most 99");
        for (len, expected) in [
            (1 << 20, format!("{stored} compressed bytes cannot contain 1048576 bytes")),
            (101, "it has 100 of 101 bytes".to_owned()),
            (99, "it has more than 99 bytes".to_owned()),
        ] {
            let changed = Member { len, ..member.clone() };
            assert_eq!(cause(&changed, 1 << 30), format!("zip: \"x\" is damaged: {expected}"));
        }
        let changed = Member { crc: !member.crc, ..member };
        assert_eq!(cause(&changed, 100), "zip: \"x\" is damaged: it has a wrong checksum");
    }
}
