//! Writes an image to the batch: normalizes, casts and lays out its pixels, in one pass.
//!
//! Every path produces the same bits: `scale * pixel + bias` is one fused multiply-add in 32-bit
//! floats, followed by one rounding to nearest even for the 16-bit types. The vector path computes
//! the results. The portable path looks them up in a table of 256 entries per channel, one for each
//! byte.
//!
//! 1. `cast`: how pixels are converted, and the interface of the vector paths.
//! 2. `lanes`: the vector path, shared by AVX2 and NEON.
//! 3. `avx2` and, on 64-bit Arm, `neon`: the operations of each instruction set.
//! 4. `writer`: [`BatchWriter`], which contains the portable path.
//! 5. `values`: applies effects to normalized values, and blends pairs of images.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cast;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod values;
mod writer;

pub(crate) use values::UncastImage;
pub use writer::BatchWriter;
