//! Crops, resizes and flips images without intermediate images.
//!
//! 1. `axis`: the filter along one axis, as fixed-point coefficients.
//! 2. `scalar`: the portable code. The vector code reproduces its results bit for bit.
//! 3. `table`: the filter of a row, laid out for vector instructions.
//! 4. `kernels`: the functions that each instruction set implements.
//! 5. `lanes`: the vector code, shared by all vector widths.
//! 6. `avx2`, `avx512`, and on 64-bit Arm `neon`: the operations of each instruction set.
//! 7. `planes`: the bilinear filter for maps of floats.
//! 8. `resizer`: [`Resizer`], which chooses the best instruction set and writes the image.
//!
//! The filter is separable, so each output row is computed in two passes instead of one sum over a
//! rectangle. With the default and the nearest filter, the first pass computes the weighted sum of
//! several source rows, a row that stays in the L1 cache. The second pass computes each output
//! pixel as a weighted sum of pixels of that row. The other filters resize source rows horizontally
//! first, and keep the rows that the next output row reads. The sums are sums of integers, so every
//! pixel is the same on every machine.

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

pub(crate) use planes::Planes;
pub use resizer::Resizer;
