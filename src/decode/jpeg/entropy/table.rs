use crate::decode::jpeg::huffman::{Code, Spec};
use crate::error::{Error, Result};

/// Bits that a look-up of a value sees. Tables should stay in the first-level cache, and most photographs bring their own.
pub(super) const BITS: usize = 11;

/// Bits that a look-up of a code sees.
pub(super) const CODE_BITS: usize = 10;

/// A Huffman table for the interleaved decoders. One look-up gives the length of code and value together, how far the coefficient
/// index moves, and the value itself.
///
/// An entry holds, from its lowest bit: 8 bits of length, 8 of advance (the run, or 63 at the end of a block), 16 of value. Where code
/// and value do not fit in [`BITS`] together the length is 0, and size and length of the code stand in place of the value, 4 and 5 bits.
/// An entry of 0 is a longer code, or none.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Table {
    pub(super) values: [u32; 1 << BITS],
    /// The same for vectors, which compute the value: length of all, advance, length of the code, and 32 less the value's size, 8 bits
    /// each. 0 where a code is longer, or more than [`WINDOW`] bits with its value.
    pub(super) codes: [u32; 1 << CODE_BITS],
    /// One past the largest code of each length, moved up to 16 bits; 0 if there is none.
    limit: [u32; 17],
    /// What to add to a code of each length for the index of its symbol.
    offset: [i32; 17],
    symbols: [u8; 256],
    ac: bool,
}

/// Bits that a vector's window holds at least.
const WINDOW: u32 = 25;

/// Where [`Table::codes`] is, in entries.
pub(super) const CODES: usize = 1 << BITS;

/// How many entries of `u32` one table is.
pub(super) const STRIDE: usize = size_of::<Table>() / 4;

/// A code and the value behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Bits of both.
    pub(super) length: u32,
    pub(super) advance: u32,
    pub(super) value: i32,
}

impl Table {
    /// # Errors
    /// As [`Spec::codes`], and for a DC symbol above 15.
    pub(super) fn new(spec: &Spec, ac: bool) -> Result<Table> {
        let mut table = Table {
            values: [0; 1 << BITS],
            codes: [0; 1 << CODE_BITS],
            limit: [0; 17],
            offset: [0; 17],
            symbols: [0; 256],
            ac,
        };
        table.symbols[..spec.values().len()].copy_from_slice(spec.values());
        for (index, Code { code, length, symbol }) in spec.codes()?.enumerate() {
            if !ac && symbol > 15 {
                return Err(Error::decode(format!("a DC Huffman table holds the symbol {symbol}, the largest is 15")));
            }
            let (code, length) = (usize::from(code), usize::from(length));
            if table.limit[length] == 0 {
                table.offset[length] = index as i32 - code as i32;
            }
            table.limit[length] = ((code + 1) << (16 - length)) as u32;
            let (advance, size) = table.meaning(symbol);
            let total = length as u32 + size;
            if length <= CODE_BITS && total <= WINDOW {
                let entry = total | advance << 8 | (length as u32) << 16 | (32 - size) << 24;
                let first = code << (CODE_BITS - length);
                table.codes[first..first + (1 << (CODE_BITS - length))].fill(entry);
            }
            if length > BITS {
                continue;
            }
            let first = code << (BITS - length);
            if total as usize > BITS {
                let later = advance << 8 | size << 16 | (length as u32) << 20;
                table.values[first..first + (1 << (BITS - length))].fill(later);
                continue;
            }
            let repeat = 1 << (BITS - total as usize);
            for bits in 0..1 << size {
                let entry = total | advance << 8 | (extend(bits, size) as u32) << 16;
                let at = first + bits as usize * repeat;
                table.values[at..at + repeat].fill(entry);
            }
        }
        Ok(table)
    }

    /// Advance and size of the value that `symbol` stands for.
    fn meaning(&self, symbol: u8) -> (u32, u32) {
        match (self.ac, symbol >> 4, symbol & 15) {
            (false, ..) => (0, symbol.into()),
            (true, run, 0) if run < 15 => (63, 0),
            (true, run, size) => (run.into(), size.into()),
        }
    }

    /// What the 64-bit `window` begins with, the long way. `None` if no code does.
    #[cold]
    #[inline(never)]
    pub(super) fn long(&self, window: u64) -> Option<Step> {
        let top = (window >> 48) as u32;
        let length = (1..=16).find(|&l| top < self.limit[l])?;
        let index = (top >> (16 - length)) as i32 + self.offset[length];
        let (advance, size) = self.meaning(self.symbols[index as usize & 255]);
        Some(Step::new(length as u32, advance, size, window))
    }
}

impl Step {
    /// The step for a code of `length` bits that is followed by a value of `size` bits in the `window`.
    #[inline(always)]
    pub(super) fn new(length: u32, advance: u32, size: u32, window: u64) -> Step {
        let bits = ((window << length) >> 1 >> (63 - size)) as u32;
        Step { length: length + size, advance, value: extend(bits, size) }
    }
}

/// The value that `size` bits stand for (T.81, EXTEND in F.2.2.1).
#[inline(always)]
fn extend(bits: u32, size: u32) -> i32 {
    if bits < 1 << size >> 1 { bits as i32 - (1 << size) + 1 } else { bits as i32 }
}
