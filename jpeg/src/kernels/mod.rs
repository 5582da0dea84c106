//! The functions that convert coefficients to pixels. There is a version for each instruction set,
//! and all versions produce exactly the same pixels.
//!
//! 1. `functions`: [`Kernels`], the functions that each instruction set provides.
//! 2. `scalar`: plain Rust, the reference for the other versions.
//! 3. `idct`: the inverse transform on vectors, written once for all widths.
//! 4. `rows`: the other functions on vectors, written once for AVX2 and NEON.
//! 5. `avx2`: two blocks and 32 pixels at a time.
//! 6. `avx512`: four blocks at a time; upsampling and color conversion come from `avx2`.
//! 7. `neon`: one block and 16 pixels at a time, on 64-bit Arm.
//! 8. `backend`: [`Backend`], which chooses the instruction set.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod backend;
mod functions;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod idct;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod rows;
mod scalar;

pub(crate) use backend::Backend;
pub(crate) use functions::{EXPAND_PADDING, Kernels, value_bytes};
pub(super) use functions::{PADDING, Transform};
pub use scalar::inverse_transform;
