//! The last pass over an image: normalize, cast and lay out.
//!
//! Every path produces the same bits: `scale * pixel + bias` as one fused multiply-add in 32-bit
//! floats, then one rounding to nearest even for the 16-bit types. Each pixel value is a byte, so
//! the portable path looks up results in a table of 256 entries per channel. The vector path
//! computes them.
//!
//! 1. `cast`: converts one pixel value, and computes its position in the output.
//! 2. `lanes`: the vector path, written once for AVX2 and NEON.
//! 3. `avx2`, and `neon` on 64-bit Arm: the operations of each instruction set.
//! 4. `writer`: [`BatchWriter`], with the portable path.
//! 5. `values`: runs effects on values, and mixes two images. Both round once.

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
