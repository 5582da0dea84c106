//! Crop, resize and flip in one pass.
//!
//! 1. `axis`: the filter along one axis as fixed-point coefficients.
//! 2. `scalar`: the portable code. The vector code gives the same bits.
//! 3. `table`: the filter of a row, laid out for vectors.
//! 4. `kernels`: the functions of an instruction set.
//! 5. `lanes`: the vector code, written once for all widths.
//! 6. `avx2`, `avx512`, and on 64-bit Arm `neon`: the widths.
//! 7. `planes`: the same filter for maps of floats.
//! 8. `resizer`: [`Resizer`], which chooses the best of them and writes the image.
//!
//! Each output row takes two sums. The first adds source rows into one row, which stays in the L1
//! cache. The second adds pixels of that row into the output. This order never changes, so rounding
//! and all pixels are the same on every machine.

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
