//! The arithmetic from coefficients to pixels. Each instruction set has its own version, and all
//! give the same bits.
//!
//! 1. `functions`: [`Kernels`], what each of them brings.
//! 2. `scalar`: plain Rust. The others are compared with it.
//! 3. `idct`: the transform of vectors, written once for both widths.
//! 4. `avx2`: two blocks and 32 pixels at a time.
//! 5. `avx512`: four blocks at a time; the rest is as in `avx2`.
//! 6. `backend`: [`Backend`], the choice between them.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod backend;
mod functions;
#[cfg(target_arch = "x86_64")]
mod idct;
mod scalar;

pub(in crate::decode) use backend::Backend;
pub(in crate::decode) use functions::Kernels;
pub(super) use functions::{PADDING, Transform};

/// The samples of one block, row by row.
#[cfg(test)]
pub(crate) fn inverse_transform(block: &[i16; 64], quant: &[u16; 64]) -> [u8; 64] {
    let mut samples = [0; 64];
    (scalar::KERNELS.idct)(block, &[0], quant, &mut samples, 8);
    samples
}
