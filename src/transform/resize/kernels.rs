//! Functions of an instruction set.

use super::table::Table;

/// The resize functions of one instruction set. Only the files of the instruction sets construct
/// this type, after checking the CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    /// Pixels per vector.
    pub(super) lanes: usize,
    /// Like [`scalar::vertical`](super::scalar::vertical).
    pub(super) vertical: fn(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]),
    /// Like [`scalar::horizontal`](super::scalar::horizontal), with the taps laid out for `lanes`.
    pub(super) horizontal: fn(row: &[u8], table: &Table, out: &mut [u8]),
}
