//! [`BitReader`]: a bit reader for the data of one scan. It treats invalid data as libjpeg does.

use super::huffman::{HuffmanLookup, extend};
use super::markers::next_marker;
use crate::error::Result;

pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    pub(crate) position: usize,
    window: u64,
    bit_count: u32,
    /// True once more bits have been read than the segment contains. Missing bits read as zeros.
    pub(super) is_starved: bool,
    /// True if the missing bits are past the end of the file.
    pub(super) is_past_end: bool,
    pub(crate) fault_count: u32,
}

/// Returns whether `word` contains the byte 0xff, by testing the complement for a zero byte.
#[inline(always)]
pub(crate) fn has_ff(word: u32) -> bool {
    (!word).wrapping_sub(0x0101_0101) & word & 0x8080_8080 != 0
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], start: usize) -> Self {
        BitReader {
            bytes,
            position: start,
            window: 0,
            bit_count: 0,
            is_starved: false,
            is_past_end: false,
            fault_count: 0,
        }
    }

    #[inline(always)]
    fn fill(&mut self) {
        if self.bit_count > 32 {
            return;
        }
        if let Some(&next) = self.bytes.get(self.position..).and_then(<[u8]>::first_chunk) {
            let word = u32::from_be_bytes(next);
            if !has_ff(word) {
                self.window |= u64::from(word) << (32 - self.bit_count);
                self.bit_count += 32;
                self.position += 4;
                return;
            }
        }
        self.fill_bytes();
    }

    #[cold]
    fn fill_bytes(&mut self) {
        while self.bit_count <= 56 {
            let Some(&byte) = self.bytes.get(self.position) else { return };
            let mut next_position = self.position + 1;
            if byte == 0xff {
                while self.bytes.get(next_position) == Some(&0xff) {
                    next_position += 1;
                }
                if self.bytes.get(next_position) != Some(&0) {
                    self.position = next_position - 1;
                    return;
                }
                // T.81 allows fill bytes only before markers. Elsewhere, libjpeg-turbo's two bit
                // readers disagree on how to interpret fill bytes.
                self.fault_count += u32::from(next_position > self.position + 1);
                next_position += 1;
            }
            self.position = next_position;
            self.window |= u64::from(byte) << (56 - self.bit_count);
            self.bit_count += 8;
        }
    }

    #[inline(always)]
    fn skip(&mut self, count: u32) {
        if count > self.bit_count {
            self.starve();
        }
        self.window <<= count;
        self.bit_count -= count;
    }

    #[cold]
    fn starve(&mut self) {
        self.fault_count += u32::from(!self.is_starved);
        self.is_starved = true;
        self.is_past_end |= !self.bytes[self.position..].iter().any(|&b| b != 0xff);
        (self.window, self.bit_count) = (0, 64);
    }

    /// Reads a symbol and the extra bits after it. The symbol's lower four bits are the number of
    /// extra bits. After an invalid code, returns (0, 0).
    #[inline(always)]
    pub(crate) fn read_symbol_and_bits(&mut self, table: &HuffmanLookup) -> (u8, u32) {
        self.fill();
        let Some((symbol, length)) = table.find((self.window >> 48) as u16) else {
            self.fault_count += 1;
            self.skip(17);
            return (0, 0);
        };
        // `fill` has read enough: a code and the bits after it take at most 31 bits.
        let (length, size) = (u32::from(length), u32::from(symbol & 15));
        let bits = ((self.window << length >> 32) >> (32 - size)) as u32;
        self.skip(length + size);
        (symbol, bits)
    }

    pub(crate) fn read_bits(&mut self, count: u8) -> u32 {
        self.fill();
        let value = ((self.window >> 32) >> (32 - u32::from(count))) as u32;
        self.skip(count.into());
        value
    }

    pub(crate) fn read_signed(&mut self, size: u8) -> i32 {
        extend(self.read_bits(size), size.into())
    }

    pub(crate) fn read_symbol(&mut self, table: &HuffmanLookup) -> u8 {
        self.fill();
        match table.find((self.window >> 48) as u16) {
            Some((symbol, length)) => {
                self.skip(length.into());
                symbol
            }
            None => {
                self.fault_count += 1;
                self.skip(17);
                0
            }
        }
    }

    /// Reads one more bit of a nonzero coefficient. `bit` is the value of a bit at this position.
    pub(super) fn refine(&mut self, coefficient: &mut i16, bit: i16) {
        if self.read_bits(1) == 1 && *coefficient & bit == 0 {
            *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { bit } else { -bit });
        }
    }

    /// Ends a restart segment. A valid segment leaves at most seven padding bits, so a whole unread
    /// byte counts as damage.
    pub(crate) fn end_segment(&mut self) {
        if !self.is_starved {
            self.fill_bytes();
            self.fault_count += u32::from(self.bit_count >= 8);
        }
    }

    /// Skips to the next marker, which should be restart marker number `expected`. If the next
    /// marker is different, resynchronizes like libjpeg's `jpeg_resync_to_restart`. The numbers of
    /// restart markers are compared modulo 8. The next segment is empty if the number of the
    /// restart marker is one or two larger than `expected`, or if the marker is not a restart
    /// marker and at least `ff c0`. The marker is skipped if its number is one or two smaller, or
    /// if it is below `ff c0`. Any other restart marker is accepted.
    pub(crate) fn restart(&mut self, expected: u8) -> Result<()> {
        self.end_segment();
        (self.window, self.bit_count) = (0, 0);
        let mut start = self.position;
        loop {
            let (marker, offset) = next_marker(self.bytes, start)?;
            self.position = offset;
            if marker == 0xd0 + expected {
                (self.position, self.is_starved) = (offset + 2, false);
                return Ok(());
            }
            self.fault_count += 1;
            let distance = marker.wrapping_sub(0xd0 + expected) & 7;
            match marker {
                0xd0..=0xd7 if distance == 1 || distance == 2 => break,
                0xd0..=0xd7 if distance == 6 || distance == 7 => start = offset + 2,
                0xd0..=0xd7 => {
                    (self.position, self.is_starved) = (offset + 2, false);
                    return Ok(());
                }
                0xc0.. => break,
                _ => start = offset + 2,
            }
        }
        Ok(())
    }
}
