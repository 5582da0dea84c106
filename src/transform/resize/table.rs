//! **Invariants** of a [`Table`], which the vectors rely on. [`build`](Table::build) alone makes
//! one; others only read it.
//! - From each of `starts`, `reach` covers all taps, in loads of 16 bytes.

use std::ops::Deref;

use super::axis::Axis;

/// The taps of a row, as [`build`](Table::build) laid them out.
#[derive(Debug, Default)]
pub(super) struct Table(Taps);

/// Taps of a row, laid out for vectors: each vector works on `lanes` pixels at once, 16 bytes each.
///
/// A group is four vectors, hence `4 * lanes` pixels; lane `l` of vector `i` is pixel `4 * l + i`
/// of the group, the order in which two packing instructions put them side by side. Taps go in
/// pairs, since the multiply-add takes two products at a time; odd ones are paired with a
/// coefficient of 0.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// Byte offset of the first tap, in order of the vectors' lanes.
    pub(super) starts: Vec<u32>,
    /// For each vector of each group and each pair of taps the coefficients by lane.
    pub(super) pairs: Vec<Block>,
    /// Pairs of taps a pixel.
    pub(super) depth: usize,
    /// Fractional bits.
    pub(super) precision: u32,
    /// Pixels in the output row.
    pub(super) outputs: usize,
    /// Bytes of the source row that may be read.
    pub(super) reach: usize,
}

/// The same pair of coefficients for red, green, blue and a fourth channel that is thrown away.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
struct Lane([[i16; 2]; 4]);

/// A cache line of lanes, so that no vector straddles two.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Block([Lane; 4]);

impl Table {
    /// Lays out the taps of `axis`, with positions counted from the first of its span.
    pub(super) fn build(&mut self, axis: &Axis, lanes: usize) {
        let Table(table) = self;
        let origin = axis.span().start;
        (table.depth, table.precision, table.outputs) = (axis.widest().div_ceil(2), axis.precision(), axis.outputs());
        let groups = table.outputs.div_ceil(4 * lanes);
        table.starts.clear();
        table.pairs.clear();
        table.pairs.resize(groups * lanes * table.depth, Block::default());
        let mut furthest = 0;
        for group in 0..groups {
            for vector in 0..4 {
                let outputs = (0..lanes).map(|lane| group * 4 * lanes + 4 * lane + vector);
                let at = (group * 4 + vector) * lanes * table.depth;
                for (lane, output) in outputs.enumerate() {
                    if output >= table.outputs {
                        table.starts.push(0);
                        continue;
                    }
                    let (start, taps) = axis.taps(output);
                    let start = (start - origin) * 3;
                    furthest = furthest.max(start);
                    table.starts.push(start as u32);
                    for (pair, taps) in taps.chunks(2).enumerate() {
                        let place = at + pair * lanes + lane;
                        table.pairs[place / 4].0[place % 4] = Lane([[taps[0], taps.get(1).copied().unwrap_or(0)]; 4]);
                    }
                }
            }
        }
        // Two pairs, four pixels, twelve bytes a load of sixteen.
        table.reach = furthest + (table.depth.div_ceil(2) - 1) * 12 + 16;
    }
}

impl Deref for Table {
    type Target = Taps;

    fn deref(&self) -> &Taps {
        &self.0
    }
}
