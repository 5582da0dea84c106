#![allow(unsafe_code)]
//! Waits that end on time.
//!
//! **Invariant** `prctl(PR_SET_TIMERSLACK)` has no arguments that could be invalid, and changes the
//! calling thread alone.

/// Lets timed waits of this thread end on time. Linux ends them up to 50 us late otherwise, so that
/// it can end several at once. Does nothing on other systems.
pub(super) fn wake_on_time() {
    #[cfg(target_os = "linux")]
    // SAFETY: the invariant. The thread waits longer if the call fails.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
