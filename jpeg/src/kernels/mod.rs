//! [`Kernels`] contains the functions that convert coefficients to pixels. There is a version for
//! each instruction set, and every version produces exactly the same pixels as `scalar`.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod backend;
mod functions;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod idct;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod rows;
mod scalar;

pub(crate) use backend::Backend;
pub(crate) use functions::{EXPAND_PADDING, Kernels, value_bytes};
pub(super) use functions::{PADDING, Transform};
pub use scalar::inverse_transform;
