//! Finds the restart segments that a window needs, and copies their bytes without stuffed zeros.
//!
//! 1. `needed`: lists the segments that a window needs.
//! 2. `unstuff`: copies one segment, in plain Rust. `avx512` contains the same function for
//!    AVX-512.
//! 3. `collect`: finds the segments and copies their bytes.
//! 4. `uncached`: copies bytes to a batch. On x86-64, the copy bypasses the CPU's caches, because
//!    only the device reads the bytes.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod collect;
mod needed;
pub(super) mod uncached;
mod unstuff;

pub(super) use collect::{CollectError, collect};
pub(super) use needed::{Segment, count_needed, list_needed};
pub(super) use unstuff::{Unstuff, unstuff};
