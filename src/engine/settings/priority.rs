//! Lowers the priority of the worker threads, so that they yield to the training program.
//!
//! **Invariants**
//! 1. `nice` accepts any argument. On Linux, it affects only the calling thread.

#![allow(unsafe_code)]

/// Increment of the `nice` value. A worker that competes for a core with a thread of normal
/// priority runs about a tenth as long as that thread.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread on Linux. On other systems, `nice` affects the whole
/// process, so this does nothing.
pub(super) fn lower() {
    #[cfg(target_os = "linux")]
    // SAFETY: invariant 1. If the call fails, the thread keeps its priority.
    let _ = unsafe { libc::nice(NICE) };
    #[cfg(not(target_os = "linux"))]
    let _ = NICE;
}
