//! The supported HDF5 chunk filters: gzip, LZF, shuffle and Fletcher-32.

use std::io::Read;

use flate2::bufread::ZlibDecoder;

use crate::error::{Error, Result};
use crate::machine::bytes::room;

/// A transformation that was applied to the bytes of a chunk when it was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Filter {
    Deflate,
    /// LZF, as registered by h5py.
    Lzf,
    /// Byte transposition for elements of the given size: the first bytes of all elements, then the
    /// second bytes of all elements, and so on.
    Shuffle(usize),
    Fletcher,
}

impl Filter {
    /// Returns the filter with the HDF5 id `id`. `client` holds its client data values.
    ///
    /// # Errors
    /// If the filter is not supported.
    pub(super) fn of(id: u16, client: &[u32]) -> Result<Self> {
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
    /// Reverses the filter. The result is at most `most` bytes long.
    ///
    /// # Errors
    /// If the bytes are damaged, or if the result would be longer.
    pub(super) fn undone(self, bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
        match self {
            Filter::Deflate => inflated(&bytes, most),
            Filter::Lzf => unlzf(&bytes, most),
            Filter::Shuffle(size) => unshuffled(&bytes, size),
            Filter::Fletcher => checked(bytes),
        }
    }
}

fn inflated(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut to = Vec::new();
    room(&mut to, most as u64)?;
    to.clear();
    let failed = |e: std::io::Error| Error::in_source(format!("not zlib data: {e}"));
    ZlibDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut to).map_err(failed)?;
    Ok(to)
}

/// Decompresses LibLZF data. A control byte `c` below 32 is followed by `c + 1` literal bytes. Any
/// other control byte starts a copy of earlier output: three bits encode its length, and thirteen
/// bits encode the distance to its source.
fn unlzf(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::in_source(format!("not LZF data: {what}"));
    let mut to = Vec::new();
    room(&mut to, most as u64)?;
    to.clear();
    let mut rest = bytes.iter();
    while let Some(&control) = rest.next() {
        let mut next = || rest.next().copied().map(usize::from).ok_or_else(|| damaged("it is truncated"));
        let (control, literal) = (usize::from(control), control < 32);
        let len = match control >> 5 {
            0 => control + 1,
            7 => 7 + next()? + 2,
            len => len + 2,
        };
        if to.len() + len > most {
            return Err(damaged(&format!("it exceeds {most} bytes")));
        }
        if literal {
            let (run, after) = rest.as_slice().split_at_checked(len).ok_or_else(|| damaged("it is truncated"))?;
            to.extend_from_slice(run);
            rest = after.iter();
            continue;
        }
        let distance = ((control & 31) << 8 | next()?) + 1;
        let start = to.len().checked_sub(distance).ok_or_else(|| damaged("a copy starts before the output"))?;
        // The source of a copy may overlap the bytes that it writes.
        for place in start..start + len {
            to.push(to[place]);
        }
    }
    Ok(to)
}

fn unshuffled(bytes: &[u8], size: usize) -> Result<Vec<u8>> {
    let (count, mut to) = (bytes.len() / size, Vec::new());
    room(&mut to, bytes.len() as u64)?.copy_from_slice(bytes);
    for place in 0..count * size {
        to[place] = bytes[place % size * count + place / size];
    }
    Ok(to)
}

/// Verifies the checksum at the end of `bytes`, and removes it.
fn checked(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let stored = bytes.split_last_chunk::<4>().map(|(_, sum)| u32::from_le_bytes(*sum));
    let stored = stored.ok_or_else(|| Error::in_source("the chunk is shorter than its checksum"))?;
    bytes.truncate(bytes.len() - 4);
    if fletcher(&bytes) != stored {
        return Err(Error::in_source("the checksum is wrong"));
    }
    Ok(bytes)
}

/// Computes Fletcher-32 over big-endian words, as HDF5 does.
fn fletcher(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut one, mut two) = (0_u32, 0_u32);
    // Summing 360 words cannot overflow.
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
        assert_eq!(unshuffled(&[1, 3, 5, 2, 4, 6, 9], 2).unwrap(), [1, 2, 3, 4, 5, 6, 9]);
        assert_eq!(unshuffled(&[1, 2], 4).unwrap(), [1, 2]);
    }

    #[test]
    fn hostile_lzf_data_fails_within_bounded_memory() {
        // Valid data: literals, an overlapping copy, a long copy, and an empty chunk.
        assert_eq!(unlzf(&[2, b'a', b'b', b'c', 0x60, 2], 99).unwrap(), b"abcabcab");
        assert_eq!(unlzf(&[0, 9, 0xe0, 255, 0], 265).unwrap(), [9; 265]);
        assert!(unlzf(&[], 99).unwrap().is_empty());
        let cause = |bytes: &[u8], most| unlzf(bytes, most).unwrap_err().cause().to_owned();
        for cut in [&[2, b'a'][..], &[31], &[0, 9, 0x20], &[0, 9, 0xe0], &[0, 9, 0xe0, 1]] {
            assert_eq!(cause(cut, 99), "not LZF data: it is truncated", "{cut:?}");
        }
        for before in [&[0x20, 0][..], &[0, 9, 0x20, 1], &[0, 9, 0xff, 9, 255]] {
            assert_eq!(cause(before, 999), "not LZF data: a copy starts before the output", "{before:?}");
        }
        // Every three bytes expand to 264 bytes, so these 100 kB would expand to 8.8 MB.
        let bomb: Vec<u8> = [0, 9].into_iter().chain([0xe0, 255, 0].repeat(33_000)).collect();
        assert_eq!(cause(&bomb, 1000), "not LZF data: it exceeds 1000 bytes");
        assert_eq!(cause(&[31], 10), "not LZF data: it exceeds 10 bytes");
    }
}
