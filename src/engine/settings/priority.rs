#![allow(unsafe_code)]
//! Priority of threads.
//!
//! **Invariants**
//! 1. `nice` has no arguments that could be invalid, and on Linux it changes the calling thread
//!    alone.

/// Increment of the `nice` value. A worker then gets a tenth of the CPU time of a thread
/// that wants the same core.
const NICE: i32 = 10;

/// Lets other threads of the machine run before this one. Does nothing on systems other than Linux,
/// where `nice` changes the whole process.
pub(super) fn lower() {
    #[cfg(target_os = "linux")]
    // SAFETY: invariant 1. The thread keeps its priority if the call fails.
    let _ = unsafe { libc::nice(NICE) };
    #[cfg(not(target_os = "linux"))]
    let _ = NICE;
}
