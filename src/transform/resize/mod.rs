//! Crop, resize and flip in one pass.
//!
//! 1. `axis`: the filter along one axis, as fixed-point coefficients.
//! 2. `scalar`: the portable code. The vector code produces the same bits.
//! 3. `table`: the filter of a row, laid out for vectors.
//! 4. `kernels`: the functions that each instruction set implements.
//! 5. `lanes`: the vector code, written once for all widths.
//! 6. `avx2`, `avx512`, and on 64-bit Arm `neon`: the operations for each vector width.
//! 7. `planes`: the same filter for maps of floats.
//! 8. `resizer`: [`Resizer`], which chooses the best instruction set and writes the image.
//!
//! The filter is separable, so each output row is computed in two passes instead of one sum over a
//! rectangle. The first pass adds up source rows into one row, which stays in the L1 cache. The
//! second pass adds up pixels of that row and writes the output. The cost per output pixel is the
//! number of vertical taps, times the horizontal scale, plus the number of horizontal taps. The
//! order of additions is fixed, so rounding, and therefore every pixel, is the same on every
//! machine.

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
