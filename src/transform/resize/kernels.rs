//! The resize functions that each instruction set implements.

use super::table::Table;

/// The resize functions of one instruction set. Only the files of the instruction sets construct
/// this type, after checking the CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    /// Number of pixels per vector.
    pub(super) lanes: usize,
    /// Equals [`scalar::vertical`](super::scalar::vertical).
    pub(super) vertical: fn(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]),
    /// Equals [`scalar::horizontal`](super::scalar::horizontal), but reads taps that are laid out
    /// for `lanes`.
    pub(super) horizontal: fn(row: &[u8], table: &Table, out: &mut [u8]),
}
