//! Writes an image to the batch: normalizes, casts and lays out its pixels in one pass. Effects on
//! normalized values take a second pass.
//!
//! All implementations produce the same bits: `scale * pixel + bias` is one fused multiply-add in
//! 32-bit floats, followed by one rounding to nearest even for the 16-bit types. SIMD code computes
//! groups of 16 pixels with three channels. The remaining pixels, and all pixels on other CPUs, are
//! looked up in a table of 256 entries per channel, one for each pixel value.
//!
//! 1. `cast`: how pixels are converted, and the interface of the SIMD code.
//! 2. `lanes`: the SIMD code that AVX2 and NEON share.
//! 3. `avx2` and, on 64-bit Arm, `neon`: the operations of each instruction set.
//! 4. `writer`: [`BatchWriter`], which contains the portable code.
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
