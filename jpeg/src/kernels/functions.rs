/// Number of padding samples at the end of every row, so that functions can process whole vectors.
pub(crate) const PADDING: usize = 64;

pub(crate) type Transform =
    fn(coefficients: &[i16], offsets: &[u32], quant: &[u16; 64], samples: &mut [u8], stride: usize);

pub(super) type Convert = fn(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]);

pub(super) type Expand = fn(masks: &[u64], dc: &[i16], values: &[u8], blocks: &mut [i16]);

/// Number of bytes after the last value that [`Kernels::expand`] may read, but does not use.
pub(crate) const EXPAND_PADDING: usize = 64;

/// Returns how many bytes the AC coefficients of a block in
/// [`CompactCoefficients`](crate::CompactCoefficients) take.
pub(crate) fn value_bytes(mask: u64) -> usize {
    ((mask >> 1).count_ones() << (mask & 1)) as usize
}

/// The functions of one instruction set. They may read and write up to [`PADDING`] samples after
/// the end of a row, except that `ycc_to_rgb` writes exactly `rgb`.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Dequantizes and transforms the blocks that start at `offsets` in the coefficients, and
    /// writes the blocks next to each other: eight rows of `8 * offsets.len()` samples, `stride`
    /// apart.
    pub(crate) idct: Transform,
    /// Same as `idct`, for coefficients in zigzag order, in which the lane decoder stores them.
    pub(crate) idct_zigzag: Transform,
    /// Doubles the number of samples in a row with the triangle filter (`h2v1_fancy_upsample`):
    /// `n` samples become `2 * n`. `row` starts one sample before the first of the `n` samples.
    pub(crate) h2v1: fn(row: &[u8], n: usize, wide: &mut [u8]),
    /// Interpolates a row between two rows (`h1v2_fancy_upsample`): three quarters of `near` plus
    /// one quarter of `far`. `bias` is 1 for the row above `near` and 2 for the row below.
    pub(crate) h1v2: fn(near: &[u8], far: &[u8], n: usize, bias: u8, between: &mut [u8]),
    /// Interpolates a row between two rows and doubles the number of samples in the row
    /// (`h2v2_fancy_upsample`). The input rows start one sample before the first of the `n`
    /// samples.
    pub(crate) h2v2: fn(near: &[u8], far: &[u8], n: usize, wide: &mut [u8]),
    /// Converts `rgb.len() / 3` pixels from Y, Cb and Cr to interleaved RGB (`ycc_rgb_convert`).
    pub(crate) ycc_to_rgb: Convert,
    /// Expands the blocks of [`CompactCoefficients`](crate::CompactCoefficients), given their
    /// masks, DC coefficients and values, to 64 coefficients each, in zigzag order. `values` must
    /// extend [`EXPAND_PADDING`] bytes past the last block.
    pub(crate) expand: Expand,
}
