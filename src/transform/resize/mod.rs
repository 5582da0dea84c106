//! Crops, resizes and flips images without intermediate images.
//!
//! The filter is separable, so each output row is computed in two passes instead of one sum over a
//! rectangle. With the default and the nearest filter, the first pass computes one row, the
//! weighted sum of several source rows, which usually fits into the L1 cache. The second pass
//! computes each output pixel as a weighted sum of pixels of this row. The other filters resize
//! source rows horizontally first, and keep the resized rows that the next output row also reads.
//! All sums for images are sums of integers, so every pixel is the same on every machine.
//! [`MapResizer`] resizes maps with floats.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod axis;
mod kernels;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod planes;
mod resizer;
mod scalar;
mod table;

pub(crate) use planes::MapResizer;
pub use resizer::Resizer;
