//! The supported HDF5 chunk filters: gzip, LZF, shuffle and Fletcher-32.

use std::io::Read;

use flate2::bufread::ZlibDecoder;

use crate::error::{Error, Result};
use crate::machine::bytes::grow_to;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Filter {
    Deflate,
    /// LZF compression, as registered by h5py.
    Lzf,
    /// Byte shuffling: the first bytes of all elements, followed by their second bytes, and so on.
    /// The number is the size of an element in bytes.
    Shuffle(usize),
    /// A Fletcher-32 checksum at the end of the chunk.
    Fletcher,
}

impl Filter {
    /// `id` is the number of the filter in HDF5's registry, and `client` contains its parameters.
    pub(super) fn from_id(id: u16, client: &[u32]) -> Result<Self> {
        match id {
            1 => Ok(Filter::Deflate),
            2 => match client.first() {
                Some(&size) if size > 0 => Ok(Filter::Shuffle(size as usize)),
                _ => Err(Error::in_source("the shuffle filter has no element size")),
            },
            3 => Ok(Filter::Fletcher),
            32000 => Ok(Filter::Lzf),
            id => {
                let name = match id {
                    4 => "SZIP",
                    6 => "scale-offset",
                    32001 => "Blosc",
                    32004 => "LZ4",
                    32015 => "Zstandard",
                    _ => "unknown",
                };
                Err(Error::in_source(format!(
                    "unsupported filter {id} ({name}): expected gzip, LZF, shuffle or fletcher32; write the array with \
                     compression=\"gzip\", or without compression"
                )))
            }
        }
    }

    /// Reverts the filter. Decompression produces at most `limit` + 1 bytes, so that the caller can
    /// detect output that is too long.
    pub(super) fn undo(self, bytes: Vec<u8>, limit: usize) -> Result<Vec<u8>> {
        match self {
            Filter::Deflate => inflate(&bytes, limit),
            Filter::Lzf => decompress_lzf(&bytes, limit),
            Filter::Shuffle(size) => unshuffle(&bytes, size),
            Filter::Fletcher => strip_checksum(bytes),
        }
    }
}

fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    grow_to(&mut out, limit as u64)?;
    out.clear();
    let failed = |e: std::io::Error| Error::in_source(format!("invalid zlib data: {e}"));
    ZlibDecoder::new(bytes).take(limit as u64 + 1).read_to_end(&mut out).map_err(failed)?;
    Ok(out)
}

/// Decompresses data in LibLZF's format. A control byte `c` below 32 is followed by `c + 1` literal
/// bytes. Any other control byte starts a copy of earlier output, with a length of three bits and a
/// backward distance of thirteen bits. The byte after a length of 7 is added to the length.
fn decompress_lzf(bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::in_source(format!("invalid LZF data: {what}"));
    let mut out = Vec::new();
    grow_to(&mut out, limit as u64)?;
    out.clear();
    let mut rest = bytes.iter();
    while let Some(&control) = rest.next() {
        let mut next = || rest.next().copied().map(usize::from).ok_or_else(|| damaged("truncated"));
        let (control, literal) = (usize::from(control), control < 32);
        let len = match control >> 5 {
            0 => control + 1,
            7 => 7 + next()? + 2,
            len => len + 2,
        };
        if out.len() + len > limit {
            return Err(damaged(&format!("the output exceeds {limit} bytes")));
        }
        if literal {
            let (run, after) = rest.as_slice().split_at_checked(len).ok_or_else(|| damaged("truncated"))?;
            out.extend_from_slice(run);
            rest = after.iter();
            continue;
        }
        let distance = ((control & 31) << 8 | next()?) + 1;
        let start = out.len().checked_sub(distance).ok_or_else(|| damaged("a copy starts before the output"))?;
        // The source of a copy may overlap its output.
        for source in start..start + len {
            out.push(out[source]);
        }
    }
    Ok(out)
}

fn unshuffle(bytes: &[u8], size: usize) -> Result<Vec<u8>> {
    let (count, mut out) = (bytes.len() / size, Vec::new());
    grow_to(&mut out, bytes.len() as u64)?.copy_from_slice(bytes);
    for index in 0..count * size {
        out[index] = bytes[index % size * count + index / size];
    }
    Ok(out)
}

fn strip_checksum(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let stored = bytes.split_last_chunk::<4>().map(|(_, sum)| u32::from_le_bytes(*sum));
    let stored = stored.ok_or_else(|| Error::in_source("the chunk is shorter than its checksum"))?;
    bytes.truncate(bytes.len() - 4);
    if fletcher(&bytes) != stored {
        return Err(Error::in_source("checksum mismatch: the chunk is damaged"));
    }
    Ok(bytes)
}

/// Computes the checksum over big-endian 16-bit words, as HDF5 does.
fn fletcher(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut one, mut two) = (0_u32, 0_u32);
    // Reduce the sums before they can overflow.
    for block in bytes.chunks(720) {
        for word in block.chunks(2) {
            one += u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from);
            two += one;
        }
        (one, two) = (fold(one), fold(two));
    }
    fold(two) << 16 | fold(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unshuffle_restores_the_bytes_and_the_remainder() {
        assert_eq!(unshuffle(&[1, 3, 5, 2, 4, 6, 9], 2).unwrap(), [1, 2, 3, 4, 5, 6, 9]);
        assert_eq!(unshuffle(&[1, 2], 4).unwrap(), [1, 2]);
    }

    #[test]
    fn hostile_lzf_data_fails_within_bounded_memory() {
        assert_eq!(decompress_lzf(&[2, b'a', b'b', b'c', 0x60, 2], 99).unwrap(), b"abcabcab");
        assert_eq!(decompress_lzf(&[0, 9, 0xe0, 255, 0], 265).unwrap(), [9; 265]);
        assert!(decompress_lzf(&[], 99).unwrap().is_empty());
        let cause = |bytes: &[u8], limit| decompress_lzf(bytes, limit).unwrap_err().cause().to_owned();
        for cut in [&[2, b'a'][..], &[31], &[0, 9, 0x20], &[0, 9, 0xe0], &[0, 9, 0xe0, 1]] {
            assert_eq!(cause(cut, 99), "invalid LZF data: truncated", "{cut:?}");
        }
        for before in [&[0x20, 0][..], &[0, 9, 0x20, 1], &[0, 9, 0xff, 9, 255]] {
            assert_eq!(cause(before, 999), "invalid LZF data: a copy starts before the output", "{before:?}");
        }
        // Every three bytes expand to 264 bytes, so these 99 kB would expand to 8.7 MB.
        let bomb: Vec<u8> = [0, 9].into_iter().chain([0xe0, 255, 0].repeat(33_000)).collect();
        assert_eq!(cause(&bomb, 1000), "invalid LZF data: the output exceeds 1000 bytes");
        assert_eq!(cause(&[31], 10), "invalid LZF data: the output exceeds 10 bytes");
    }
}
