//! Writes marker segments and entropy-coded data.

use super::tables::choose_table;
use super::tokens::{McuGrid, SYMBOL_COUNT, TABLE_GROUPS, Tokens, table_group, table_start};
use crate::bits::has_ff;
use crate::header::{Header, NATURAL};
use crate::lengths::Lengths;

pub(super) fn append_segment(out: &mut Vec<u8>, marker: u8, body: &[&[u8]]) {
    let length = 2 + body.iter().map(|piece| piece.len()).sum::<usize>();
    let length = u16::try_from(length).expect("a body is either short or copied from a segment");
    out.extend([0xff, marker]);
    out.extend(length.to_be_bytes());
    body.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Appends DQT and SOF. A quantization table that needs 16 bits requires an extended frame instead
/// of a baseline one (T.81, table B.2).
pub(super) fn append_frame(out: &mut Vec<u8>, header: &Header, quant: &[[u16; 64]; 4]) {
    let frame = &header.frame;
    let count = frame.components().len();
    let quant = &quant[..count];
    let index = |i: usize| quant.iter().position(|table| *table == quant[i]).expect("the table equals itself") as u8;
    let mut is_extended = false;
    for i in (0..count).filter(|&i| usize::from(index(i)) == i) {
        let is_wide = quant[i].iter().any(|&q| q > 255);
        is_extended |= is_wide;
        let mut body = vec![u8::from(is_wide) << 4 | i as u8];
        for &natural in &NATURAL[..64] {
            let q = quant[i][usize::from(natural)].to_be_bytes();
            body.extend_from_slice(if is_wide { &q } else { &q[1..] });
        }
        append_segment(out, 0xdb, &[&body]);
    }
    let (width, height) = (frame.size.width as u16, frame.size.height as u16);
    let mut body = vec![8];
    body.extend(height.to_be_bytes());
    body.extend(width.to_be_bytes());
    body.push(count as u8);
    for (i, c) in frame.components().iter().enumerate() {
        // The sampling factors of a single component have no meaning (T.81, A.2.2), but some
        // readers use them.
        let (h, v) = if count == 1 { (1, 1) } else { (c.h, c.v) };
        body.extend([c.id, h << 4 | v, index(i)]);
    }
    append_segment(out, if is_extended { 0xc1 } else { 0xc0 }, &[&body]);
}

/// Appends the lengths of the restart segments, DHT, DRI, SOS, the coded `tokens`, and EOI.
pub(super) fn append_scan(out: &mut Vec<u8>, header: &Header, grid: &McuGrid, tokens: &Tokens) {
    let components = header.frame.components();
    let segments = (grid.mcus_per_row * grid.mcu_rows).div_ceil(grid.restart_interval) as usize;
    let lengths_offset = append_placeholder_lengths(out, segments);
    let mut codes = [(0u16, 0u8); SYMBOL_COUNT];
    let mut bits = 0;
    for (is_ac, group) in (0..TABLE_GROUPS).flat_map(|group| [(false, group), (true, group)]) {
        let start = table_start(is_ac, group);
        let counts: &[u32; 256] = tokens.counts[start..start + 256].try_into().expect("256 symbols");
        if counts.iter().all(|&n| n == 0) {
            continue;
        }
        let spec = choose_table(counts, is_ac, group == 1);
        append_segment(out, 0xc4, &[&[u8::from(is_ac) << 4 | group as u8], spec.counts(), spec.values()]);
        for code in spec.codes(is_ac).expect("the standard and optimized tables are prefix codes") {
            let symbol = usize::from(code.symbol);
            codes[start + symbol] = (code.code, code.length);
            bits += u64::from(counts[symbol]) * u64::from(code.length + (code.symbol & 15));
        }
    }
    append_segment(out, 0xdd, &[&(grid.restart_interval as u16).to_be_bytes()]);
    let mut body = vec![components.len() as u8];
    components.iter().enumerate().for_each(|(i, c)| body.extend([c.id, 0x11 * table_group(i) as u8]));
    body.extend([0, 63, 0]);
    append_segment(out, 0xda, &[&body]);

    // About one byte in 256 is `ff` and needs a stuffed zero. Reserve space for twice as many.
    out.reserve((bits / 8 + bits / 1024) as usize + 3 * segments + 2);
    let mut segment_start = out.len();
    for (i, tokens) in tokens.segments().enumerate() {
        if i > 0 {
            if let Some(lengths_offset) = lengths_offset {
                let length = u16::try_from(out.len() - segment_start).expect("a segment has at most 80 blocks");
                out[lengths_offset + 2 * (i - 1)..][..2].copy_from_slice(&length.to_be_bytes());
            }
            out.extend([0xff, 0xd0 | ((i - 1) & 7) as u8]);
        }
        segment_start = out.len();
        let mut bits = BitWriter { out, window: 0, bit_count: 0 };
        for &token in tokens {
            let (code, length) = codes[(token >> 16) as usize];
            let size = token >> 16 & 15;
            bits.put(u32::from(code) << size | token & 0xffff, u32::from(length) + size);
        }
        bits.finish();
    }
    out.extend([0xff, 0xd9]);
}

/// Appends an application segment with zeros in place of the lengths of all restart segments except
/// the last, and returns the offset of the first length. Returns `None` if there are so few restart
/// segments that a search is fast, or too many for one application segment.
fn append_placeholder_lengths(out: &mut Vec<u8>, segments: usize) -> Option<usize> {
    const MIN_COUNT: usize = 16;
    let count = segments - 1;
    (MIN_COUNT..=Lengths::MAX_COUNT).contains(&count).then(|| {
        append_segment(out, Lengths::MARKER, &[Lengths::ID, &vec![0; 2 * count]]);
        out.len() - 2 * count
    })
}

struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Pending bits in the lowest `bit_count` bits. `bit_count` is less than 32.
    window: u64,
    bit_count: u32,
}

impl BitWriter<'_> {
    /// Appends the lowest `count` bits of `bits`. `count` is at most 32, and the other bits must be
    /// zero.
    fn put(&mut self, bits: u32, count: u32) {
        self.window = self.window << count | u64::from(bits);
        self.bit_count += count;
        if self.bit_count >= 32 {
            self.bit_count -= 32;
            let word = (self.window >> self.bit_count) as u32;
            if has_ff(word) {
                word.to_be_bytes().into_iter().for_each(|byte| self.put_byte(byte));
            } else {
                self.out.extend_from_slice(&word.to_be_bytes());
            }
        }
    }

    fn put_byte(&mut self, byte: u8) {
        self.out.push(byte);
        if byte == 0xff {
            self.out.push(0);
        }
    }

    /// Writes the last bits, padded with ones (T.81, F.1.2.3).
    fn finish(mut self) {
        let padding = self.bit_count.wrapping_neg() & 7;
        self.window = self.window << padding | ((1 << padding) - 1);
        self.bit_count += padding;
        while self.bit_count > 0 {
            self.bit_count -= 8;
            self.put_byte((self.window >> self.bit_count) as u8);
        }
    }
}
