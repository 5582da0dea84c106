//! Functions of an instruction set.

/// Padding at the right of every row, in samples, so that kernels work with whole vectors.
pub(crate) const PADDING: usize = 64;

/// See [`Kernels::idct`].
pub(crate) type Transform =
    fn(coefficients: &[i16], offsets: &[u32], quant: &[u16; 64], samples: &mut [u8], stride: usize);

/// See [`Kernels::ycc`].
pub(super) type Convert = fn(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]);

/// One set of functions. The documented lengths say how much they read and write. If a vector
/// extends beyond that, into [`PADDING`], the slice must include it.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Dequantizes and transforms the blocks that start at `offsets` in the coefficients, and
    /// writes them side by side: eight rows of `8 * offsets.len()` samples, `stride` apart. Writes
    /// up to [`PADDING`] more samples per row.
    pub(crate) idct: Transform,
    /// Like `idct`, for coefficients in zigzag order, as lanes store them.
    pub(crate) idct_of_lanes: Transform,
    /// Doubles the samples of a row with the triangle filter (`h2v1_fancy_upsample`). `row` starts
    /// one sample early, and `n` samples become `2 * n`. Reads and writes up to [`PADDING`] more.
    pub(crate) h2v1: fn(row: &[u8], n: usize, wide: &mut [u8]),
    /// Interpolates a row between two (`h1v2_fancy_upsample`), from three parts of `near` and one
    /// of `far`. `bias` is 1 above `near` and 2 below it.
    pub(crate) h1v2: fn(near: &[u8], far: &[u8], n: usize, bias: u8, between: &mut [u8]),
    /// Doubles a row in both directions at once (`h2v2_fancy_upsample`). The rows start one sample
    /// early.
    pub(crate) h2v2: fn(near: &[u8], far: &[u8], n: usize, wide: &mut [u8]),
    /// Converts Y, Cb, Cr to interleaved RGB of exactly `rgb.len() / 3` pixels (`ycc_rgb_convert`).
    /// Reads up to [`PADDING`] more samples.
    pub(crate) ycc: Convert,
}
