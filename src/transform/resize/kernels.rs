//! What an instruction set brings.

use super::table::Table;

/// The sums of one instruction set. Only the instruction sets' files construct it, after asking the
/// CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    /// Pixels that a vector holds.
    pub(super) lanes: usize,
    /// As [`scalar::vertical`](super::scalar::vertical).
    pub(super) vertical: fn(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]),
    /// As [`scalar::horizontal`](super::scalar::horizontal), with the taps laid out for `lanes`.
    pub(super) horizontal: fn(row: &[u8], table: &Table, out: &mut [u8]),
}
