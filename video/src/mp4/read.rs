//! Finds and reads the boxes that contain the tables of packets.

use super::atoms::quote_kind;
use super::fragments::Fragments;
use super::movie::Movie;
use crate::error::{Error, Result, reserve};
use crate::input::Input;
use crate::track::Track;

/// Maximum number of packets that share one size. The file does not list them one by one, so no
/// table bounds their number.
pub(super) const MAX_UNLISTED_PACKETS: u64 = 1 << 20;

/// Returns whether the file is an MP4 or QuickTime file. `bytes` must contain at least its first 8
/// bytes.
pub fn matches(bytes: &[u8]) -> bool {
    let kinds: [&[u8; 4]; 8] = [b"ftyp", b"styp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"];
    bytes.get(4..8).is_some_and(|kind| kinds.iter().any(|valid| **valid == *kind))
}

/// Reads the sample table of the first video track.
///
/// # Errors
/// If reading fails, if the file is damaged or has no video track, or if the track uses a feature
/// of the format that is not supported.
pub fn read(input: &dyn Input) -> Result<Track> {
    let len = input.len();
    let mut movie_and_fragments: Option<(Movie, Fragments)> = None;
    let mut offset = 0;
    let mut bytes = Vec::new();
    while offset < len {
        let Some((kind, start, end)) = read_header(input, offset, len)? else { break };
        match &kind {
            b"moov" if movie_and_fragments.is_none() => {
                read_content(input, start, end, &mut bytes)?;
                let movie = Movie::parse(&bytes, len)?;
                let is_complete = !movie.is_fragmented();
                movie_and_fragments = Some((movie, Fragments::default()));
                // Only fragmented files have more tables.
                if is_complete {
                    break;
                }
            }
            b"moof" => {
                if let Some((movie, fragments)) = &mut movie_and_fragments {
                    read_content(input, start, end, &mut bytes)?;
                    fragments.add(movie, &bytes, offset, len)?;
                }
            }
            _ => {}
        }
        offset = end;
    }
    let (movie, _) = movie_and_fragments.ok_or_else(|| {
        Error::damaged(format!("the file of {len} bytes has no \"moov\" box, which is the index of its packets"))
    })?;
    movie.into_track()
}

/// Reads a box header. Returns the kind of the box, and the start and end of its content, or `None`
/// if fewer than eight bytes remain.
fn read_header(input: &dyn Input, offset: u64, len: u64) -> Result<Option<([u8; 4], u64, u64)>> {
    if len - offset < 8 {
        return Ok(None);
    }
    let mut header = [0; 16];
    let available = (len - offset).min(16) as usize;
    input.read_at(offset, &mut header[..available])?;
    let word = |offset: usize| {
        u32::from_be_bytes([header[offset], header[offset + 1], header[offset + 2], header[offset + 3]])
    };
    let kind = [header[4], header[5], header[6], header[7]];
    let (header_len, size) = match word(0) {
        0 => (8, len - offset),
        1 if available == 16 => (16, u64::from(word(8)) << 32 | u64::from(word(12))),
        size => (8, u64::from(size)),
    };
    if size < header_len {
        return Err(Error::damaged(format!("box {} at byte {offset} has the invalid size {size}", quote_kind(kind))));
    }
    // In a truncated file, the last box may end after the file.
    let end = offset.saturating_add(size);
    if end > len && matches!(&kind, b"moov" | b"moof") {
        return Err(Error::damaged(format!(
            "the file ends at byte {len}, but its box {} ends at byte {end}",
            quote_kind(kind)
        )));
    }
    Ok(Some((kind, offset + header_len, end.min(len))))
}

fn read_content(input: &dyn Input, start: u64, end: u64, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let len = usize::try_from(end - start).map_err(|_| Error::unsupported("a box has more than 2^32 bytes"))?;
    reserve(out, len)?;
    out.resize(len, 0);
    Ok(input.read_at(start, out)?)
}
