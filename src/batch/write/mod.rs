//! Writes an image to the batch: normalizes, casts and lays out its pixels in one pass. Effects on
//! normalized values take a second pass.
//!
//! All implementations produce the same bits, because `scale * pixel + bias` is one fused
//! multiply-add in 32-bit floats, followed by one rounding to nearest even for the 16-bit types.
//! SIMD code computes groups of 16 pixels with three channels. Portable code handles the remaining
//! pixels, images with one channel, and all pixels on other CPUs. It looks up each pixel value in a
//! table of 256 entries per channel.

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
