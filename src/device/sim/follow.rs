//! Whether the lines of a sample's long segments synchronise soon enough for `jpeg_follow` and
//! `jpeg_starts` of `jpeg.cu`, which decode them in parallel. If they do, where a line begins is
//! what decoding from the first one gives.

use crate::cuda::DecodeOps;
use crate::decode::jpeg::huffman::Lookup;

/// Constants of `jpeg.cu`.
const LINE: usize = DecodeOps::LINE;
const TILE: usize = 128;
const LONG: usize = 1024;
const WORTH: usize = 2048;
/// Passes over a tile, and lines at its beginning that are decoded again.
const PASSES: usize = 48;
const CHAIN: usize = 32;

/// A sample's part of the arena.
pub(super) struct Sample<'a> {
    /// Its head and data, and everything behind.
    pub(super) bytes: &'a [u8],
    /// Bytes of both, and of the head alone.
    pub(super) len: usize,
    pub(super) head: usize,
    /// First byte and number of bytes of each segment, and bytes of the longest.
    pub(super) segments: Vec<(usize, usize)>,
    pub(super) longest: usize,
    /// The tables of DC differences and AC coefficients of each block in an MCU.
    pub(super) tables: Vec<(&'a Lookup, &'a Lookup)>,
}

/// Where decoding stands at the end of a line: bits behind it, block in the MCU, places of the
/// block that are done.
type State = (usize, usize, usize);

/// A line that has a piece of a long segment.
#[derive(Clone, Copy)]
struct Line {
    from: usize,
    to: usize,
    first: bool,
}

/// Where a line's decoding begins and ends.
type Ends = (State, State);

impl Sample<'_> {
    pub(super) fn synchronises(&self) -> bool {
        if self.longest < WORTH {
            return true;
        }
        let lines: Vec<Option<Line>> = (self.head / LINE..self.len / LINE + 1).map(|line| self.line(line)).collect();
        let mut ends = vec![(State::default(), State::default()); lines.len()];
        let mut tiles = lines.chunks(TILE).zip(ends.chunks_mut(TILE));
        tiles.all(|(lines, ends)| self.follow(lines, ends))
            && (TILE..lines.len()).step_by(TILE).all(|tile| self.join(&lines, &mut ends, tile))
    }

    /// The passes over a tile; false if they are too many.
    fn follow(&self, lines: &[Option<Line>], ends: &mut [Ends]) -> bool {
        for pass in 0..=PASSES {
            let before: Vec<State> = std::iter::once(State::default()).chain(ends.iter().map(|ends| ends.1)).collect();
            let mut changed = false;
            for ((line, ends), before) in lines.iter().zip(&mut *ends).zip(before) {
                let Some(line) = line else { continue };
                let entry = if line.first { State::default() } else { before };
                if pass == 0 || entry != ends.0 {
                    // All of the first pass begin with an MCU.
                    *ends = (entry, self.decode(line, entry));
                    changed = true;
                }
            }
            if !changed {
                return true;
            }
        }
        false
    }

    /// Decodes the first lines of the tile at `tile` from where the tile before ends; false if they
    /// are too many.
    fn join(&self, lines: &[Option<Line>], ends: &mut [Ends], tile: usize) -> bool {
        for i in tile..lines.len().min(tile + TILE) {
            let Some(line) = lines[i].filter(|line| !line.first && ends[i - 1].1 != ends[i].0) else { return true };
            if i == tile + CHAIN {
                return false;
            }
            ends[i] = (ends[i - 1].1, self.decode(&line, ends[i - 1].1));
        }
        true
    }

    /// `Line` in `jpeg.cu`.
    fn line(&self, line: usize) -> Option<Line> {
        let at = self.segments.partition_point(|segment| segment.0 <= line * LINE).saturating_sub(1);
        let (byte, bytes) = self.segments[at];
        let (begin, end) = (byte.div_ceil(LINE), byte + bytes);
        let any = bytes >= LONG && line >= begin && line * LINE < end;
        let first = line == begin;
        let from = if first { byte } else { line * LINE };
        any.then_some(Line { from: from * 8, to: ((line + 1) * LINE).min(end) * 8, first })
    }

    /// The 16 bits at `bit`; zeros behind the arena.
    fn peek(&self, bit: usize) -> u16 {
        let at = |i: usize| u32::from(self.bytes.get(bit / 8 + i).copied().unwrap_or(0));
        let three = at(0) << 16 | at(1) << 8 | at(2);
        (three >> (8 - bit % 8)) as u16
    }

    fn decode(&self, line: &Line, (ahead, mut b, mut place): State) -> State {
        let mut bit = line.from + ahead;
        while bit < line.to {
            let (dc, ac) = self.tables[b];
            let Some((symbol, length)) = (if place == 0 { dc } else { ac }).find(self.peek(bit)) else {
                // It goes on at the start of an MCU.
                (bit, b, place) = (bit + 1, 0, 0);
                continue;
            };
            let (size, run) = (usize::from(symbol & 15), usize::from(symbol >> 4));
            bit += usize::from(length) + size;
            let next = if b + 1 < self.tables.len() { b + 1 } else { 0 };
            if place == 0 {
                place = 1;
            } else if size == 0 && run < 15 {
                (b, place) = (next, 0);
            } else {
                place += run + 1;
                if place >= 64 {
                    (b, place) = (if place == 64 { next } else { 0 }, 0);
                }
            }
        }
        (bit - line.to, b, place)
    }
}
