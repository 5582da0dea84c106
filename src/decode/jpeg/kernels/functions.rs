//! What an instruction set brings.

/// Samples of padding that every row has on its right, so that kernels work in whole vectors.
pub(in crate::decode::jpeg) const PADDING: usize = 64;

/// See [`Kernels::idct`].
pub(in crate::decode::jpeg) type Transform =
    fn(coefficients: &[i16], offsets: &[u32], quant: &[u16; 64], samples: &mut [u8], stride: usize);

/// See [`Kernels::ycc`].
pub(super) type Convert = fn(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]);

/// One set of functions. Their slices say how much they read and write; where a vector goes beyond
/// that, into [`PADDING`], the length asked for here contains it.
#[derive(Clone, Copy)]
pub(in crate::decode) struct Kernels {
    /// Dequantises and transforms the blocks that begin at `offsets` in the coefficients, and
    /// writes them side by side: eight rows of `8 * offsets.len()` samples, `stride` apart. Writes
    /// up to [`PADDING`] more samples a row.
    pub(in crate::decode::jpeg) idct: Transform,
    /// The same, of coefficients in zigzag order, as lanes store them.
    pub(in crate::decode::jpeg) idct_of_lanes: Transform,
    /// Twice as many samples, by the triangle filter (`h2v1_fancy_upsample`). `row` begins one
    /// sample early; `n` samples make `2 * n`. Reads and writes up to [`PADDING`] more.
    pub(in crate::decode::jpeg) h2v1: fn(row: &[u8], n: usize, wide: &mut [u8]),
    /// A row between two (`h1v2_fancy_upsample`), three parts of `near` and one of `far`. `bias` is
    /// 1 above `near` and 2 below it.
    pub(in crate::decode::jpeg) h1v2: fn(near: &[u8], far: &[u8], n: usize, bias: u8, between: &mut [u8]),
    /// Both at once (`h2v2_fancy_upsample`); the rows begin one sample early.
    pub(in crate::decode::jpeg) h2v2: fn(near: &[u8], far: &[u8], n: usize, wide: &mut [u8]),
    /// Y, Cb, Cr to interleaved RGB of exactly `rgb.len() / 3` pixels (`ycc_rgb_convert`). Reads up
    /// to [`PADDING`] more samples.
    pub(in crate::decode::jpeg) ycc: Convert,
}
