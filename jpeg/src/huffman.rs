//! Huffman tables, both as stored in the file and as lookup tables (ITU T.81, annexes C and
//! F.2.2.3).

use crate::error::{Error, Result};

/// A table as stored in a DHT segment: the number of codes of each length, and the symbols in code
/// order.
#[derive(Clone, PartialEq, Eq)]
pub struct HuffmanSpec {
    counts: [u8; 16],
    values: [u8; 256],
}

impl HuffmanSpec {
    /// Creates a table with `counts[i]` codes of length `i + 1`. The sum of `counts` must be
    /// `values.len()`, which is at most 256.
    pub(crate) fn new(counts: [u8; 16], values: &[u8]) -> Self {
        let mut padded = [0; 256];
        padded[..values.len()].copy_from_slice(values);
        HuffmanSpec { counts, values: padded }
    }

    /// Reads a table as stored in a DHT segment: 16 counts, followed by the symbols. Returns `None`
    /// if the bytes end early, or if there are more than 256 symbols.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (counts, rest) = bytes.split_first_chunk()?;
        let count = counts.iter().map(|&n| usize::from(n)).sum();
        (count <= 256).then_some(())?;
        Some(HuffmanSpec::new(*counts, rest.get(..count)?))
    }

    pub(crate) fn counts(&self) -> &[u8; 16] {
        &self.counts
    }

    pub(crate) fn values(&self) -> &[u8] {
        let count: usize = self.counts.iter().map(|&n| usize::from(n)).sum();
        &self.values[..count.min(256)]
    }

    /// Returns the codes, shortest first. Fails if the lengths do not form a prefix code, if a code
    /// consists only of ones (reserved by T.81), or if a DC symbol exceeds 15, the size in bits of
    /// the largest difference.
    pub(crate) fn codes(&self, is_ac: bool) -> Result<impl Iterator<Item = Code> + '_> {
        let mut next = 0u32;
        for (i, &count) in self.counts.iter().enumerate() {
            next += u32::from(count);
            if count > 0 && next >= 1 << (i + 1) {
                return Err(Error::new(format!("a Huffman table has too many codes of {} bits", i + 1)));
            }
            next <<= 1;
        }
        if let Some(symbol) = self.values().iter().find(|&&symbol| !is_ac && symbol > 15) {
            return Err(Error::new(format!("a DC Huffman table has the symbol {symbol}: expected at most 15")));
        }
        let lengths =
            self.counts.iter().zip(1u8..).flat_map(|(&count, length)| std::iter::repeat_n(length, count.into()));
        let mut previous = (0u32, 0u8);
        Ok(lengths.zip(self.values()).map(move |(length, &symbol)| {
            let code = previous.0 << (length - previous.1);
            previous = (code + 1, length);
            Code { code: code as u16, length, symbol }
        }))
    }

    /// Returns a standard table from annex K.3 of T.81. Most encoders use these tables, and
    /// Motion-JPEG frames omit them. libjpeg-turbo therefore uses them if a file does not define
    /// tables 0 and 1.
    pub(crate) fn standard(is_ac: bool, is_chroma: bool) -> HuffmanSpec {
        match (is_ac, is_chroma) {
            (false, false) => HuffmanSpec::new([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &DC_SYMBOLS),
            (false, true) => HuffmanSpec::new([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], &DC_SYMBOLS),
            (true, false) => HuffmanSpec::new([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d], &AC_LUMA_SYMBOLS),
            (true, true) => HuffmanSpec::new([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77], &AC_CHROMA_SYMBOLS),
        }
    }
}

impl std::fmt::Debug for HuffmanSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HuffmanSpec({:?})", self.counts)
    }
}

/// Returns the value that is encoded by `bits`, the `size` bits after a code (EXTEND in F.2.2.1).
#[inline(always)]
pub(crate) fn extend(bits: u32, size: u32) -> i32 {
    if bits < 1 << size >> 1 { bits as i32 - (1 << size) + 1 } else { bits as i32 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    /// The bits of the code, right-aligned.
    pub(crate) code: u16,
    pub(crate) length: u8,
    pub(crate) symbol: u8,
}

/// Maximum length in bits of a code that a single lookup decodes. In photographs, 95% of the codes
/// are at most this long.
const SHORT_BITS: u8 = 10;

/// The decoding table of the plain decoder. Codes of more than 10 bits are decoded bit by bit, as
/// in T.81, F.2.2.3.
#[derive(Debug, Clone)]
pub struct HuffmanLookup {
    /// For each window of [`SHORT_BITS`] bits, the symbol and the length of its first code. The
    /// length is 0 if the code is longer than the window.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// For each length, the largest code plus one, or -1 if no code has this length.
    code_end: [i32; 17],
    /// For each length, the difference between a code and the index of its symbol.
    symbol_offset: [i32; 17],
    values: [u8; 256],
}

impl HuffmanLookup {
    /// Creates the table for `spec`.
    ///
    /// # Errors
    /// Same as [`HuffmanSpec::codes`].
    pub fn new(spec: &HuffmanSpec, is_ac: bool) -> Result<Self> {
        let mut table = HuffmanLookup {
            short: [(0, 0); 1 << SHORT_BITS],
            code_end: [-1; 17],
            symbol_offset: [0; 17],
            values: spec.values,
        };
        for (index, Code { code, length, symbol }) in spec.codes(is_ac)?.enumerate() {
            let (code, l) = (i32::from(code), usize::from(length));
            if table.code_end[l] < 0 {
                table.symbol_offset[l] = index as i32 - code;
            }
            table.code_end[l] = code + 1;
            if length <= SHORT_BITS {
                let first = (code as usize) << (SHORT_BITS - length);
                table.short[first..first + (1 << (SHORT_BITS - length))].fill((symbol, length));
            }
        }
        Ok(table)
    }

    /// Returns the symbol and the length of the code at the start of the 16-bit `window`, or `None`
    /// if the code is invalid.
    #[inline(always)]
    pub fn find(&self, window: u16) -> Option<(u8, u8)> {
        let (symbol, length) = self.short[usize::from(window >> (16 - SHORT_BITS))];
        if length > 0 {
            return Some((symbol, length));
        }
        (usize::from(SHORT_BITS) + 1..=16).find_map(|l| {
            let code = i32::from(window >> (16 - l));
            (code < self.code_end[l]).then(|| (self.values[(code + self.symbol_offset[l]) as usize & 255], l as u8))
        })
    }
}

const DC_SYMBOLS: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

#[rustfmt::skip]
const AC_LUMA_SYMBOLS: [u8; 162] = [
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32,
    0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16,
    0x17, 0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45,
    0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
    0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94,
    0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6,
    0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8,
    0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
    0xf9, 0xfa,
];

#[rustfmt::skip]
const AC_CHROMA_SYMBOLS: [u8; 162] = [
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81,
    0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34,
    0xe1, 0x25, 0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44,
    0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
    0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92,
    0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4,
    0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6,
    0xd7, 0xd8, 0xd9, 0xda, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
    0xf9, 0xfa,
];
