//! The arithmetic from coefficients to pixels. Each instruction set has its own version, and all
//! give the same bits.
//!
//! 1. `scalar`: plain Rust. The others are compared with it.
//! 2. `idct`: the transform of vectors, written once for both widths.
//! 3. `avx2`: two blocks and 32 pixels at a time.
//! 4. `avx512`: four blocks at a time; the rest is as in `avx2`.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod idct;
mod scalar;

use super::entropy;

/// Samples of padding that every row has on its right, so that kernels work in whole vectors.
pub(super) const PADDING: usize = 64;

/// See [`Kernels::idct`].
pub(super) type Transform =
    fn(coefficients: &[i16], offsets: &[u32], quant: &[u16; 64], samples: &mut [u8], stride: usize);

/// See [`Kernels::ycc`].
pub(super) type Convert = fn(y: &[u8], cb: &[u8], cr: &[u8], rgb: &mut [u8]);

/// One set of functions. Their slices say how much they read and write; where a vector goes beyond
/// that, into [`PADDING`], the length asked for here contains it.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    /// Dequantises and transforms the blocks that begin at `offsets` in the coefficients, and
    /// writes them side by side: eight rows of `8 * offsets.len()` samples, `stride` apart. Writes
    /// up to [`PADDING`] more samples a row.
    pub(super) idct: Transform,
    /// The same, of coefficients in zigzag order, as lanes store them.
    pub(super) idct_of_lanes: Transform,
    /// Twice as many samples, by the triangle filter (`h2v1_fancy_upsample`). `row` begins one
    /// sample early; `n` samples make `2 * n`. Reads and writes up to [`PADDING`] more.
    pub(super) h2v1: fn(row: &[u8], n: usize, wide: &mut [u8]),
    /// A row between two (`h1v2_fancy_upsample`), three parts of `near` and one of `far`. `bias` is
    /// 1 above `near` and 2 below it.
    pub(super) h1v2: fn(near: &[u8], far: &[u8], n: usize, bias: u8, between: &mut [u8]),
    /// Both at once (`h2v2_fancy_upsample`); the rows begin one sample early.
    pub(super) h2v2: fn(near: &[u8], far: &[u8], n: usize, wide: &mut [u8]),
    /// Y, Cb, Cr to interleaved RGB of exactly `rgb.len() / 3` pixels (`ycc_rgb_convert`). Reads up
    /// to [`PADDING`] more samples.
    pub(super) ycc: Convert,
}

/// An instruction set to decode with. A processor that lacks it has no value of it: only the files
/// of the instruction sets make what is in here, and they ask the processor first.
#[derive(Clone, Copy)]
pub(super) struct Backend {
    name: &'static str,
    kernels: Kernels,
    entropy: entropy::Backend,
}

impl Backend {
    /// Plain Rust, for any processor.
    pub(super) fn scalar() -> Backend {
        Backend { name: "scalar", kernels: scalar::KERNELS, entropy: entropy::Backend::scalar() }
    }

    /// The best one that this processor has, or the one that the environment variable
    /// `WARPFEED_JPEG` names, if it has that.
    pub(super) fn choose() -> Backend {
        let named = std::env::var("WARPFEED_JPEG").unwrap_or_default();
        let available = Self::available();
        *available.iter().find(|b| b.name == named).unwrap_or(&available[available.len() - 1])
    }

    /// All that this processor has, the best one last.
    pub(super) fn available() -> Vec<Backend> {
        #[cfg(target_arch = "x86_64")]
        let vectors = [
            ("avx2", avx2::kernels().zip(entropy::Backend::bmi())),
            ("avx512", avx512::kernels().zip(entropy::Backend::avx512())),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let vectors = [("", None); 0];
        let able = |(name, parts): (_, Option<_>)| parts.map(|(kernels, entropy)| Backend { name, kernels, entropy });
        std::iter::once(Self::scalar()).chain(vectors.into_iter().filter_map(able)).collect()
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    pub(super) fn entropy(&self) -> entropy::Backend {
        self.entropy
    }
}
