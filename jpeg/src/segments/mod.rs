//! Finds the restart segments that a window needs, and copies their bytes without stuffed zeros.

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
