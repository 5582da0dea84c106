#![allow(unsafe_code)]
//! Thread priority.
//!
//! **Invariants**
//! 1. `nice` accepts any argument. On Linux it affects only the calling thread.

/// Increment of the `nice` value. If a worker competes with another thread for a core, the worker
/// gets about a tenth of the other thread's time.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread. Does nothing on systems other than Linux, where
/// `nice` changes the whole process.
pub(super) fn lower() {
    #[cfg(target_os = "linux")]
    // SAFETY: invariant 1. If the call fails, the thread keeps its priority.
    let _ = unsafe { libc::nice(NICE) };
    #[cfg(not(target_os = "linux"))]
    let _ = NICE;
}
