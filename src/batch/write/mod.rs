//! The last pass over an image: normalize, cast and lay out.
//!
//! Every path gives the same bits: `scale * pixel + bias` as one fused multiply-add in 32-bit
//! floats, then one rounding to nearest even for the 16-bit types. A pixel is a byte, so the
//! portable path uses a table of 256 values per channel, and the vector path computes the values.
//!
//! 1. `cast`: conversion of a pixel's value, and its place in the output.
//! 2. `lanes`: the vector path, written once for AVX2 and NEON.
//! 3. `avx2`, and on 64-bit Arm `neon`: the instructions.
//! 4. `writer`: [`BatchWriter`], with the portable path.
//! 5. `values`: runs effects on values, and mixes an image with another one. Both round once.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cast;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod values;
mod writer;

pub(crate) use values::Unwritten;
pub use writer::BatchWriter;
