//! [`Table`]: the taps of a row, laid out for vector instructions.
//!
//! **Invariant.** The vector code relies on the following, which [`build`](Table::build)
//! establishes. No other function modifies the taps.
//! - For each lane, the vector code loads 16 bytes of the row for every two pairs of taps. The
//!   first load begins at the lane's element of `starts`, and each following load begins 12 bytes
//!   later. The row begins at the start of the axis's span, and no load reads past its first
//!   `min_row_bytes` bytes.

use crate::error::resize;
use std::ops::Deref;

use super::axis::Axis;

/// Wraps the taps so that only [`build`](Table::build) can modify them.
#[derive(Debug, Default)]
pub(super) struct Table(TapLayout);

/// Taps of a row, laid out for vectors of `lanes` pixels, where `lanes` is the parameter of
/// [`Table::build`]. A lane of a vector is one pixel. Each output pixel has 16 bytes of
/// coefficients per pair of taps.
///
/// Four vectors form a group of `4 * lanes` pixels. Lane `l` of vector `i` is pixel `4 * l + i` of
/// the group, so that the instructions that pack four vectors into one put the pixels in order.
/// Taps are stored in pairs, because the multiply-add instruction adds two products at a time. The
/// last of an odd number of taps is paired with a coefficient of 0.
#[derive(Debug, Default)]
pub(super) struct TapLayout {
    /// Byte offset of the first tap for each lane of each vector, from the start of the axis's
    /// span.
    pub(super) starts: Vec<u32>,
    /// Coefficients, in (group, vector, pair of taps, lane) order.
    pub(super) pairs: Vec<TapBlock>,
    /// Maximum number of pairs of taps per pixel.
    pub(super) max_pairs: usize,
    /// Number of fractional bits of the coefficients.
    pub(super) precision: u32,
    pub(super) outputs: usize,
    /// Number of bytes of the row, from the start of the axis's span, that the vector code may
    /// read.
    pub(super) min_row_bytes: usize,
}

/// A pair of coefficients, repeated for red, green, blue and an unused fourth channel.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
struct LaneTaps([[i16; 2]; 4]);

/// 64 bytes of coefficients, aligned to a cache line, so that no vector spans two cache lines.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct TapBlock([LaneTaps; 4]);

impl Table {
    /// Lays out the taps of `axis` for vectors of `lanes` pixels. Offsets are relative to the start
    /// of the axis's span.
    pub(super) fn build(&mut self, axis: &Axis, lanes: usize) {
        let Table(table) = self;
        let origin = axis.span().start;
        (table.max_pairs, table.precision, table.outputs) =
            (axis.max_taps().div_ceil(2), axis.precision(), axis.outputs());
        let groups = table.outputs.div_ceil(4 * lanes);
        table.starts.clear();
        table.pairs.clear();
        resize(&mut table.pairs, groups * lanes * table.max_pairs, TapBlock::default());
        let mut max_start = 0;
        for group in 0..groups {
            for vector in 0..4 {
                let outputs = (0..lanes).map(|lane| group * 4 * lanes + 4 * lane + vector);
                let first_lane = (group * 4 + vector) * lanes * table.max_pairs;
                for (lane, output) in outputs.enumerate() {
                    if output >= table.outputs {
                        table.starts.push(0);
                        continue;
                    }
                    let (start, taps) = axis.taps(output);
                    let start = (start - origin) * 3;
                    max_start = max_start.max(start);
                    table.starts.push(start as u32);
                    for (pair, taps) in taps.chunks(2).enumerate() {
                        let lane = first_lane + pair * lanes + lane;
                        table.pairs[lane / 4].0[lane % 4] = LaneTaps([[taps[0], taps.get(1).copied().unwrap_or(0)]; 4]);
                    }
                }
            }
        }
        // Each 16-byte load covers two pairs of taps, which read four pixels (12 bytes).
        table.min_row_bytes = max_start + (table.max_pairs.div_ceil(2) - 1) * 12 + 16;
    }
}

impl Deref for Table {
    type Target = TapLayout;

    fn deref(&self) -> &TapLayout {
        &self.0
    }
}
