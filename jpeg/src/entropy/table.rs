//! [`Table`] is a lookup table that decodes one or two symbols at a time.
//!
//! The lookups of a segment cannot overlap, because each lookup starts after the bits of the
//! previous lookup. A symbol and its value take five bits on average, so an 11-bit window often
//! contains two symbols with their values. An entry therefore contains the total length, both
//! advances and both values. This saves up to half of the lookups. Computing a table of 2048
//! entries takes long, so the [`LaneDecoder`](super::LaneDecoder) caches tables.

use crate::error::Result;
use crate::huffman::{Code, HuffmanSpec, extend};

/// Number of bits of the index. With more bits, fewer entries of the tables of several images would
/// fit in the L1 cache.
pub(super) const PAIR_BITS: usize = 11;

pub(super) const CODE_BITS: usize = 10;

#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Table {
    /// Entries of one or two symbols, for decoding in plain registers.
    pub(super) pairs: [TableEntry; 1 << PAIR_BITS],
    /// Entries of one symbol, for decoding in vectors. An entry consists of four 8-bit numbers:
    /// total length, advance, length of the code, and 32 minus the size of the value. The entry is
    /// 0 if the code is invalid or longer than the index, or if code and value are longer than
    /// [`WINDOW_BITS`] in total.
    pub(super) codes: [u32; 1 << CODE_BITS],
    /// For each length, the largest code plus one, left-aligned in 16 bits, or 0 if no code has
    /// this length.
    code_end: [u32; 17],
    /// For each length, the difference between a code and the index of its symbol.
    symbol_offset: [i32; 17],
    symbols: [u8; 256],
    is_ac: bool,
}

/// The one or two symbols at the start of a window, and their values.
///
/// - `first` is the distance from the latest coefficient to the first value, and `second` is the
///   distance from the first value to the second.
/// - A single symbol is stored as the second one. The first value is then zero, and decoding may
///   store it at the next position, because nothing is stored there yet.
/// - The value of a single symbol may extend past the window. `tail_shift` encodes the number of
///   missing bits.
///
/// An entry can be used if `first` does not reach the last coefficient of the block. `first`
/// reaches it if the first value of a pair ends the block, if a single symbol is at the last
/// position, or if `first` is [`NO_SYMBOL`] because the code is invalid, longer than the window, or
/// so long that the sign of its value is unknown.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct TableEntry {
    pub(super) length: u8,
    pub(super) first: u8,
    pub(super) second: u8,
    /// 63 minus the number of bits after the window that belong to the second value.
    pub(super) tail_shift: u8,
    pub(super) values: [i16; 2],
}

/// Maximum number of bits of a code and its value.
pub(super) const MAX_CODE_BITS: usize = 16 + 15;

/// Maximum number of bits of an entry with a code that fits in the window.
pub(super) const MAX_ENTRY_BITS: usize = PAIR_BITS + 15;

impl TableEntry {
    /// Returns a number whose lower eight bits are `length`. The upper bits contain other data.
    #[inline(always)]
    pub(super) fn packed_length(&self) -> u64 {
        u32::from_le_bytes([self.length, self.first, self.second, self.tail_shift]).into()
    }
}

const NO_TAIL: u8 = 63;

const NO_ENTRY: TableEntry = TableEntry { length: 0, first: NO_SYMBOL, second: 0, tail_shift: NO_TAIL, values: [0; 2] };

pub(super) const NO_SYMBOL: u8 = 64;

/// Advance of a symbol that ends its block.
const END_ADVANCE: u8 = 63;

/// Minimum number of valid bits in the window of a vector element.
const WINDOW_BITS: u32 = 25;

/// Offset of `codes` in a [`Table`], in `u32`s. Only vectors use `codes`.
#[cfg(target_arch = "x86_64")]
pub(super) const CODES_OFFSET: usize = 2 << PAIR_BITS;

pub(super) const TABLE_WORDS: usize = size_of::<Table>() / 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct DecodedSymbol {
    pub(super) length: u32,
    pub(super) advance: u8,
    pub(super) value: i32,
}

impl Table {
    pub(super) fn new(spec: &HuffmanSpec, is_ac: bool) -> Result<Table> {
        let mut table = Table {
            pairs: [NO_ENTRY; 1 << PAIR_BITS],
            codes: [0; 1 << CODE_BITS],
            code_end: [0; 17],
            symbol_offset: [0; 17],
            symbols: [0; 256],
            is_ac,
        };
        table.symbols[..spec.values().len()].copy_from_slice(spec.values());
        for (index, Code { code, length, symbol }) in spec.codes(is_ac)?.enumerate() {
            let (code, length) = (usize::from(code), usize::from(length));
            if table.code_end[length] == 0 {
                table.symbol_offset[length] = index as i32 - code as i32;
            }
            table.code_end[length] = ((code + 1) << (16 - length)) as u32;
            let (advance, size) = table.advance_and_size(symbol);
            let total = length as u32 + size;
            if length <= CODE_BITS && total <= WINDOW_BITS {
                let entry = total | u32::from(advance) << 8 | (length as u32) << 16 | (32 - size) << 24;
                let first = code << (CODE_BITS - length);
                table.codes[first..first + (1 << (CODE_BITS - length))].fill(entry);
            }
            if length > PAIR_BITS {
                continue;
            }
            let first = code << (PAIR_BITS - length);
            let single =
                TableEntry { length: total as u8, first: 1, second: advance, tail_shift: NO_TAIL, values: [0; 2] };
            if let Some(missing_bits @ 1..) = (total as usize).checked_sub(PAIR_BITS) {
                // The uppermost bit in the window determines the sign. The missing lower bits are
                // added later, in the same way for both signs.
                let known_bits = PAIR_BITS - length;
                for bits in 0..if known_bits > 0 { 1 << known_bits } else { 0 } {
                    let least_value = extend((bits as u32) << missing_bits, size) as i16;
                    table.pairs[first + bits] =
                        TableEntry { tail_shift: NO_TAIL - missing_bits as u8, values: [0, least_value], ..single };
                }
                continue;
            }
            let repeat = 1 << (PAIR_BITS - total as usize);
            for bits in 0..1 << size {
                let offset = first + bits as usize * repeat;
                let values = [0, extend(bits, size) as i16];
                table.pairs[offset..offset + repeat].fill(TableEntry { values, ..single });
            }
        }
        if is_ac {
            table.add_second_symbols();
        }
        Ok(table)
    }

    fn add_second_symbols(&mut self) {
        let single = self.pairs;
        let mut window = 0;
        while window < single.len() {
            let entry = single[window];
            let length = usize::from(entry.length);
            if entry.first == NO_SYMBOL || entry.second == END_ADVANCE || length >= PAIR_BITS {
                window += 1;
                continue;
            }
            let free_bits = PAIR_BITS - length;
            for (rest, pair) in self.pairs[window..window + (1 << free_bits)].iter_mut().enumerate() {
                let next = single[rest << length];
                if next.first == NO_SYMBOL || usize::from(next.length) > free_bits {
                    continue;
                }
                *pair = TableEntry {
                    length: entry.length + next.length,
                    first: entry.second + 1,
                    second: if next.second == END_ADVANCE { END_ADVANCE } else { next.second + 1 },
                    tail_shift: NO_TAIL,
                    values: [entry.values[1], next.values[1]],
                };
            }
            window += 1 << free_bits;
        }
    }

    fn advance_and_size(&self, symbol: u8) -> (u8, u32) {
        match (self.is_ac, symbol >> 4, symbol & 15) {
            (false, ..) => (0, symbol.into()),
            (true, run, 0) if run < 15 => (END_ADVANCE, 0),
            (true, run, size) => (run, size.into()),
        }
    }

    /// Decodes the symbol at the start of `window` without a lookup. The code has at least
    /// `shortest` bits. Returns `None` if the code is invalid.
    #[cold]
    #[inline(never)]
    pub(super) fn decode_long(&self, window: u64, shortest: usize) -> Option<DecodedSymbol> {
        let top = (window >> 48) as u32;
        let length = (shortest..=16).find(|&l| top < self.code_end[l])?;
        let index = (top >> (16 - length)) as i32 + self.symbol_offset[length];
        let (advance, size) = self.advance_and_size(self.symbols[index as usize & 255]);
        Some(DecodedSymbol::new(length as u32, advance, size, window))
    }
}

impl DecodedSymbol {
    pub(super) fn new(length: u32, advance: u8, size: u32, window: u64) -> DecodedSymbol {
        let bits = ((window << length) >> 1 >> (63 - size)) as u32;
        DecodedSymbol { length: length + size, advance, value: extend(bits, size) }
    }
}
