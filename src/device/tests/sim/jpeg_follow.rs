//! Simulates `jpeg_follow` and `jpeg_starts` in `jpeg.cu`: decides whether the long segments of a
//! sample can be decoded in parallel.
//!
//! The data of all samples lies in one buffer, the *arena*. It is divided into *lines* of
//! [`LINE_BYTES`] bytes, and a *tile* is a group of [`TILE`] consecutive lines, which overlaps the
//! previous tile. Each line is decoded from a guessed state, and again whenever the state at the
//! end of the previous line changes. Once no state changes, all equal the states of serial
//! decoding. The host must decode the sample if a tile takes more than [`PASSES`] passes, or if the
//! final state of the previous tile requires decoding more than [`CHAIN`] lines of a tile again.
//!
//! A sample's data is preceded by its *head*, which contains its tables and the list of its
//! segments.

use warpfeed_jpeg::internal::HuffmanLookup;

use crate::batch::DecodeOps;

/// Must equal the constants with the same names in `jpeg.cu`.
const LINE_BYTES: usize = DecodeOps::LINE_BYTES;
const TILE: usize = 128;
const OVERLAP: usize = 16;
const STEP: usize = TILE - OVERLAP;
const LONG_SEGMENT_BYTES: usize = 1024;
const MIN_SPLIT_BYTES: usize = DecodeOps::MIN_SPLIT_BYTES;
const PASSES: usize = 96;
const CHAIN: usize = 64;

pub(super) struct Sample<'a> {
    /// The arena, starting at the sample's head.
    pub(super) bytes: &'a [u8],
    /// Bytes of the head and the data together.
    pub(super) len: usize,
    pub(super) head: usize,
    /// Offset and length of each segment.
    pub(super) segments: Vec<(usize, usize)>,
    pub(super) longest: usize,
    /// DC and AC table of each block in an MCU.
    pub(super) tables: Vec<(&'a HuffmanLookup, &'a HuffmanLookup)>,
}

/// Decoder state at the end of a line: number of bits by which decoding overran the line, index of
/// the block in the MCU, and number of decoded coefficients of the block.
type State = (usize, usize, usize);

/// The part of a line that belongs to a long segment, as bit positions in [`Sample::bytes`].
#[derive(Clone, Copy)]
struct Line {
    from: usize,
    end: usize,
    first: bool,
}

/// The states at the start and at the end of a line.
type Ends = (State, State);

impl Sample<'_> {
    pub(super) fn synchronizes(&self) -> bool {
        if self.longest < MIN_SPLIT_BYTES {
            return true;
        }
        let lines: Vec<Option<Line>> =
            (self.head / LINE_BYTES..self.len / LINE_BYTES + 1).map(|line| self.line(line)).collect();
        let mut ends = Vec::with_capacity(lines.len());
        while ends.len() < lines.len() {
            let begin = ends.len().saturating_sub(OVERLAP);
            let Some(tile) = self.follow(&lines[begin..lines.len().min(begin + TILE)]) else { return false };
            ends.extend_from_slice(&tile[ends.len() - begin..]);
        }
        (TILE..lines.len()).step_by(STEP).all(|tile| self.join(&lines, &mut ends, tile))
    }

    /// Repeats passes over a tile until its states are stable. Returns `None` after too many
    /// passes.
    fn follow(&self, lines: &[Option<Line>]) -> Option<Vec<Ends>> {
        // The states at the start and at the end of each line, for its last two decodings, the most
        // recent one first.
        let mut ends_of_lines = vec![[None::<Ends>; 2]; lines.len()];
        for _ in 0..=PASSES {
            let mut changed;
            loop {
                let exit = |ends_of_line: &[Option<Ends>; 2]| ends_of_line[0].map_or(State::default(), |ends| ends.1);
                let before = std::iter::once(State::default()).chain(ends_of_lines.iter().map(exit));
                let entries: Vec<State> = before
                    .zip(lines)
                    .map(|(before, line)| match line {
                        Some(line) if !line.first => before,
                        _ => State::default(),
                    })
                    .collect();
                let is = |ends: Option<Ends>, entry: State| ends.is_some_and(|ends| ends.0 == entry);
                changed = Vec::new();
                let mut repeats = false;
                for (i, entry) in entries.into_iter().enumerate().filter(|&(i, _)| lines[i].is_some()) {
                    if !is(ends_of_lines[i][0], entry) && is(ends_of_lines[i][1], entry) {
                        ends_of_lines[i].swap(0, 1);
                        repeats = true;
                    } else if !is(ends_of_lines[i][0], entry) {
                        changed.push((i, entry));
                    }
                }
                if !repeats {
                    break;
                }
            }
            if changed.is_empty() {
                return Some(
                    ends_of_lines.into_iter().map(|ends_of_line| ends_of_line[0].unwrap_or_default()).collect(),
                );
            }
            for (i, entry) in changed {
                let exit = self.decode(lines[i].as_ref().expect("filtered above"), entry);
                ends_of_lines[i] = [Some((entry, exit)), ends_of_lines[i][0]];
            }
        }
        None
    }

    /// Decodes the first lines of a tile again, starting with the state at the end of the previous
    /// tile, until a line starts with a state that is already known. Returns `false` if that takes
    /// more than [`CHAIN`] lines.
    fn join(&self, lines: &[Option<Line>], ends: &mut [Ends], tile: usize) -> bool {
        for i in tile..lines.len().min(tile + STEP) {
            let Some(line) = lines[i].filter(|line| !line.first && ends[i - 1].1 != ends[i].0) else { return true };
            if i == tile + CHAIN {
                return false;
            }
            ends[i] = (ends[i - 1].1, self.decode(&line, ends[i - 1].1));
        }
        true
    }

    /// Returns the part of line `line` that belongs to a long segment, or `None` if there is none.
    /// Mirrors `Line` in `jpeg.cu`.
    fn line(&self, line: usize) -> Option<Line> {
        let index = self.segments.partition_point(|segment| segment.0 <= line * LINE_BYTES).saturating_sub(1);
        let (byte, bytes) = self.segments[index];
        let (begin, end) = (byte.div_ceil(LINE_BYTES), byte + bytes);
        let any = bytes >= LONG_SEGMENT_BYTES && line >= begin && line * LINE_BYTES < end;
        let first = line == begin;
        let from = if first { byte } else { line * LINE_BYTES };
        any.then_some(Line { from: from * 8, end: ((line + 1) * LINE_BYTES).min(end) * 8, first })
    }

    /// Returns the 16 bits at `bit`. Bits past the end of the arena are zeros.
    fn peek(&self, bit: usize) -> u16 {
        let byte_at = |i: usize| u32::from(self.bytes.get(bit / 8 + i).copied().unwrap_or(0));
        let three = byte_at(0) << 16 | byte_at(1) << 8 | byte_at(2);
        (three >> (8 - bit % 8)) as u16
    }

    fn decode(&self, line: &Line, (overrun, mut b, mut decoded): State) -> State {
        let mut bit = line.from + overrun;
        while bit < line.end {
            let (dc, ac) = self.tables[b];
            let Some((symbol, length)) = (if decoded == 0 { dc } else { ac }).find(self.peek(bit)) else {
                // Skip an invalid bit, and continue as if an MCU began there.
                (bit, b, decoded) = (bit + 1, 0, 0);
                continue;
            };
            let (size, run) = (usize::from(symbol & 15), usize::from(symbol >> 4));
            bit += usize::from(length) + size;
            let next = if b + 1 < self.tables.len() { b + 1 } else { 0 };
            if decoded == 0 {
                decoded = 1;
            } else if size == 0 && run < 15 {
                (b, decoded) = (next, 0);
            } else {
                decoded += run + 1;
                if decoded >= 64 {
                    (b, decoded) = (if decoded == 64 { next } else { 0 }, 0);
                }
            }
        }
        (bit - line.end, b, decoded)
    }
}
