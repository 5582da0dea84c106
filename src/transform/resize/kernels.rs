use super::table::Table;

/// The resize functions of one instruction set. The module of this instruction set creates the
/// struct only if the CPU supports the instructions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    pub(super) lanes: usize,
    /// Computes the same bits as [`scalar::vertical`](super::scalar::vertical).
    pub(super) vertical: fn(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]),
    /// Computes the same bits as [`scalar::horizontal`](super::scalar::horizontal). The taps must
    /// be laid out for `lanes`.
    pub(super) horizontal: fn(row: &[u8], table: &Table, out: &mut [u8]),
}
