use crate::decode::jpeg::huffman::{Code, Spec, extend};
use crate::error::Result;

/// Bits that a look-up of values sees. Tables should stay in the first-level cache, and most
/// photographs bring their own.
pub(super) const BITS: usize = 11;

/// Bits that a look-up of a code sees.
pub(super) const CODE_BITS: usize = 10;

/// A Huffman table for the interleaved decoders. One look-up gives the length of codes and values
/// together, how far the coefficient index moves, and the values themselves.
///
/// Most entries of `pairs` are two symbols, since a symbol with its value has five bits on average.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Table {
    pub(super) pairs: [Entry; 1 << BITS],
    /// For vectors, which compute the value: length of all, advance, length of the code, and 32
    /// less the value's size, 8 bits each. 0 where a code is longer, or more than [`WINDOW`] bits
    /// with its value.
    pub(super) codes: [u32; 1 << CODE_BITS],
    /// One past the largest code of each length, moved up to 16 bits; 0 if there is none.
    limit: [u32; 17],
    /// What to add to a code of each length for the index of its symbol.
    offset: [i32; 17],
    symbols: [u8; 256],
    ac: bool,
}

/// What a window begins with: one symbol and its value, or two.
///
/// - `first` and `second` move the place of the latest coefficient to that of the first value, and
///   from there to that of the second.
/// - A symbol alone is the second one. Before its value a zero is stored at the next place, where
///   nothing is yet.
/// - A single value may go on behind the window: the bits that follow are to be added, of which
///   `rest` says how many.
/// - Where `first` leads to the last coefficient or beyond it, the entry does not hold: a pair's
///   first value ends the block, a symbol alone stands at the last place, or `first` is [`ODD`],
///   since the code is longer than the window, or as long and its value's sign unknown, or none.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Entry {
    /// Bits of all of it.
    pub(super) length: u8,
    pub(super) first: u8,
    pub(super) second: u8,
    /// 63 less the bits behind the window that are part of the second value.
    pub(super) rest: u8,
    pub(super) values: [i16; 2],
}

/// The most bits that a code and its value have.
pub(super) const LONGEST_CODE: usize = 16 + 15;

/// The most bits that an entry stands for, all of the code within the window.
pub(super) const LONGEST: usize = BITS + 15;

impl Entry {
    /// `length` in the lower eight bits, whatever follows it above.
    #[inline(always)]
    pub(super) fn head(&self) -> u64 {
        u32::from_le_bytes([self.length, self.first, self.second, self.rest]).into()
    }
}

/// No bits behind the window.
const NONE: u8 = 63;

const NO_ENTRY: Entry = Entry { length: 0, first: ODD, second: 0, rest: NONE, values: [0; 2] };

/// See [`Entry`].
pub(super) const ODD: u8 = 64;

/// The advance of a symbol that ends its block.
const END: u8 = 63;

/// Bits that a vector's window holds at least.
const WINDOW: u32 = 25;

/// Where [`Table::codes`] is, in entries of `u32`.
pub(super) const CODES: usize = 2 << BITS;

/// How many entries of `u32` one table is.
pub(super) const STRIDE: usize = size_of::<Table>() / 4;

/// A code and the value behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Bits of both.
    pub(super) length: u32,
    pub(super) advance: u8,
    pub(super) value: i32,
}

impl Table {
    /// # Errors
    /// As [`Spec::codes`].
    pub(super) fn new(spec: &Spec, ac: bool) -> Result<Table> {
        let mut table = Table {
            pairs: [NO_ENTRY; 1 << BITS],
            codes: [0; 1 << CODE_BITS],
            limit: [0; 17],
            offset: [0; 17],
            symbols: [0; 256],
            ac,
        };
        table.symbols[..spec.values().len()].copy_from_slice(spec.values());
        for (index, Code { code, length, symbol }) in spec.codes(ac)?.enumerate() {
            let (code, length) = (usize::from(code), usize::from(length));
            if table.limit[length] == 0 {
                table.offset[length] = index as i32 - code as i32;
            }
            table.limit[length] = ((code + 1) << (16 - length)) as u32;
            let (advance, size) = table.meaning(symbol);
            let total = length as u32 + size;
            if length <= CODE_BITS && total <= WINDOW {
                let entry = total | u32::from(advance) << 8 | (length as u32) << 16 | (32 - size) << 24;
                let first = code << (CODE_BITS - length);
                table.codes[first..first + (1 << (CODE_BITS - length))].fill(entry);
            }
            if length > BITS {
                continue;
            }
            let first = code << (BITS - length);
            let single = Entry { length: total as u8, first: 1, second: advance, rest: NONE, values: [0; 2] };
            if let Some(behind @ 1..) = (total as usize).checked_sub(BITS) {
                // The window has the value's upper bits, with the first of them its sign; the lower
                // ones count the same either way.
                let known = BITS - length;
                for bits in 0..if known > 0 { 1 << known } else { 0 } {
                    let least = extend((bits as u32) << behind, size) as i16;
                    table.pairs[first + bits] = Entry { rest: NONE - behind as u8, values: [0, least], ..single };
                }
                continue;
            }
            let repeat = 1 << (BITS - total as usize);
            for bits in 0..1 << size {
                let at = first + bits as usize * repeat;
                let values = [0, extend(bits, size) as i16];
                table.pairs[at..at + repeat].fill(Entry { values, ..single });
            }
        }
        if ac {
            table.pair();
        }
        Ok(table)
    }

    /// Puts a second symbol into each entry that has the bits of one.
    fn pair(&mut self) {
        let single = self.pairs;
        let mut window = 0;
        while window < single.len() {
            let entry = single[window];
            let length = usize::from(entry.length);
            if entry.first == ODD || entry.second == END || length >= BITS {
                window += 1;
                continue;
            }
            // All windows that begin with this symbol and value.
            let left = BITS - length;
            for (rest, pair) in self.pairs[window..window + (1 << left)].iter_mut().enumerate() {
                let next = single[rest << length];
                if next.first == ODD || usize::from(next.length) > left {
                    continue;
                }
                *pair = Entry {
                    length: entry.length + next.length,
                    first: entry.second + 1,
                    second: if next.second == END { END } else { next.second + 1 },
                    rest: NONE,
                    values: [entry.values[1], next.values[1]],
                };
            }
            window += 1 << left;
        }
    }

    /// Advance and size of the value that `symbol` stands for.
    fn meaning(&self, symbol: u8) -> (u8, u32) {
        match (self.ac, symbol >> 4, symbol & 15) {
            (false, ..) => (0, symbol.into()),
            (true, run, 0) if run < 15 => (END, 0),
            (true, run, size) => (run, size.into()),
        }
    }

    /// The symbol that the 64-bit `window` begins with, whose code has `shortest` bits or more, the
    /// long way. `None` if no code does.
    #[cold]
    #[inline(never)]
    pub(super) fn long(&self, window: u64, shortest: usize) -> Option<Step> {
        let top = (window >> 48) as u32;
        let length = (shortest..=16).find(|&l| top < self.limit[l])?;
        let index = (top >> (16 - length)) as i32 + self.offset[length];
        let (advance, size) = self.meaning(self.symbols[index as usize & 255]);
        Some(Step::new(length as u32, advance, size, window))
    }
}

impl Step {
    /// The step for a code of `length` bits that is followed by a value of `size` bits in the
    /// `window`.
    pub(super) fn new(length: u32, advance: u8, size: u32, window: u64) -> Step {
        let bits = ((window << length) >> 1 >> (63 - size)) as u32;
        Step { length: length + size, advance, value: extend(bits, size) }
    }
}
