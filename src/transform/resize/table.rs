//! The taps of a row, laid out for vectors.
//!
//! **Invariants** of a [`Table`], on which the vector code relies. Only [`build`](Table::build)
//! changes a table; all other code only reads it.
//! - For each of `starts`, the 16-byte loads that cover all of its taps end within `reach` bytes.

use crate::error::resize;
use std::ops::Deref;

use super::axis::Axis;

/// Taps of a row, laid out by [`build`](Table::build).
#[derive(Debug, Default)]
pub(super) struct Table(Taps);

/// Taps of a row, laid out for vectors. Each vector contains `lanes` pixels of 16 bytes each.
///
/// A group consists of four vectors, and therefore of `4 * lanes` pixels. Lane `l` of vector `i` is
/// pixel `4 * l + i` of the group, because two packing instructions then put the pixels in order.
/// Taps are stored in pairs, because the multiply-add instruction adds two products at a time. A
/// last unpaired tap is paired with a coefficient of 0.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// Byte offsets of the first taps, in the order of the vectors' lanes.
    pub(super) starts: Vec<u32>,
    /// Coefficients of all lanes, for each vector of each group and each pair of taps.
    pub(super) pairs: Vec<Block>,
    /// Number of pairs of taps per pixel.
    pub(super) depth: usize,
    /// Number of fractional bits of the coefficients.
    pub(super) precision: u32,
    /// Number of pixels in the output row.
    pub(super) outputs: usize,
    /// Number of bytes of the source row that may be read.
    pub(super) reach: usize,
}

/// The same pair of coefficients for red, green, blue and a fourth channel that is discarded.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
struct Lane([[i16; 2]; 4]);

/// A cache line of lanes, so that no vector spans two cache lines.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Block([Lane; 4]);

impl Table {
    /// Lays out the taps of `axis`. Positions are relative to the start of its span.
    pub(super) fn build(&mut self, axis: &Axis, lanes: usize) {
        let Table(table) = self;
        let origin = axis.span().start;
        (table.depth, table.precision, table.outputs) = (axis.widest().div_ceil(2), axis.precision(), axis.outputs());
        let groups = table.outputs.div_ceil(4 * lanes);
        table.starts.clear();
        table.pairs.clear();
        resize(&mut table.pairs, groups * lanes * table.depth, Block::default());
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
        // A load of 16 bytes covers two pairs: four pixels, twelve bytes.
        table.reach = furthest + (table.depth.div_ceil(2) - 1) * 12 + 16;
    }
}

impl Deref for Table {
    type Target = Taps;

    fn deref(&self) -> &Taps {
        &self.0
    }
}
