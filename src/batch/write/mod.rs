//! The last pass over a sample: normalise, cast and lay out.
//!
//! Every path gives the same bits: `scale * pixel + bias` in one fused multiply-add in 32-bit
//! floats, then one rounding to nearest even for the 16-bit types. A pixel is a byte, so the
//! portable path looks that up in a table of 256 values a channel; the vector path computes it.
//!
//! 1. `cast`: what becomes of a pixel's value, and where it goes.
//! 2. `avx2`: the vector path.
//! 3. `writer`: [`Writer`], with the portable path.
//! 4. `mixed`: writes an image that is mixed with another one, and rounds once too.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cast;
mod mixed;
mod writer;

pub(crate) use mixed::Unwritten;
pub use writer::Writer;
