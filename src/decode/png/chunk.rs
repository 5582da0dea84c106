//! Reads the chunks of a PNG, and verifies their checksums.

use crate::error::{Error, Result};

/// Returns the type of the chunk at `offset`, and the offset of the next chunk. Does not verify the
/// checksum.
pub(super) fn find_chunk(bytes: &[u8], offset: usize) -> Result<(&[u8; 4], usize)> {
    let cut_error = || Error::decode(format!("png ends at byte {} in the chunk at byte {offset}", bytes.len()));
    let word = |offset: usize| bytes.get(offset..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut_error);
    let end = (offset + 12).checked_add(u32::from_be_bytes(*word(offset)?) as usize).filter(|&end| end <= bytes.len());
    Ok((word(offset + 4)?, end.ok_or_else(cut_error)?))
}

pub(super) fn verify_chunk(bytes: &[u8], offset: usize) -> Result<(&[u8; 4], usize)> {
    let (kind, next) = find_chunk(bytes, offset)?;
    let (content, sum) = bytes[offset + 4..next].split_last_chunk::<4>().expect("a chunk has its checksum");
    if crc32fast::hash(content) != u32::from_be_bytes(*sum) {
        let kind = String::from_utf8_lossy(kind);
        return Err(Error::decode(format!("png chunk {kind:?} at byte {offset} is damaged: its checksum is wrong")));
    }
    Ok((kind, next))
}
