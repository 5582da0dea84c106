#![allow(unsafe_code)]
//! The block size of a kernel, chosen by the driver's own occupancy calculator.
//!
//! **Invariants**
//! 1. A `CUfunction` given here belongs to a module that is loaded, and its context is bound.

use cudarc::driver::result::occupancy;
use cudarc::driver::sys;

/// The block size at which the driver puts most warps on a multiprocessor, at most `limit`; `limit`
/// itself if it does not say.
pub(super) fn driver_block(kernel: sys::CUfunction, limit: u32) -> u32 {
    // SAFETY: invariant 1; no callback is given because dynamic shared memory is not used.
    let chosen = unsafe { occupancy::max_potential_block_size(kernel, None, 0, limit as i32) };
    chosen.ok().and_then(|(_, block)| u32::try_from(block).ok()).filter(|&b| b >= 32).map_or(limit, |b| b / 32 * 32)
}
