//! The portable resize functions. The vector code reproduces their results bit for bit.

use super::axis::Axis;

/// Number of values in a block. The sums of a block fit into the vector registers.
const BLOCK: usize = 32;

/// Computes the weighted sum of several rows, which are `stride` bytes apart. `taps` contains one
/// coefficient per row.
pub(super) fn vertical(rows: &[u8], stride: usize, taps: &[i16], precision: u32, out: &mut [u8]) {
    let half = 1 << (precision - 1);
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let mut sums = [half; BLOCK];
        for (row, &tap) in taps.iter().enumerate() {
            let row = &rows[row * stride + block * BLOCK..][..out.len()];
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += i32::from(value) * i32::from(tap);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = (sum >> precision).clamp(0, 255) as u8;
        }
    }
}

/// Computes weighted sums of adjacent pixels of `row`, which starts at the first position of the
/// axis's span.
pub(super) fn horizontal(row: &[u8], axis: &Axis, out: &mut [u8]) {
    let (precision, origin, row) = (axis.precision(), axis.span().start, row.as_chunks::<3>().0);
    for (output, out) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (start, taps) = axis.taps(output);
        let mut sums = [1 << (precision - 1); 3];
        for (pixel, &tap) in row[start - origin..].iter().zip(taps) {
            for (sum, &value) in sums.iter_mut().zip(pixel) {
                *sum += i32::from(value) * i32::from(tap);
            }
        }
        *out = sums.map(|sum| (sum >> precision).clamp(0, 255) as u8);
    }
}
