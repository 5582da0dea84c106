#![allow(unsafe_code)]
//! Timed waits without timer slack.
//!
//! **Invariant** `prctl(PR_SET_TIMERSLACK)` accepts any argument, and affects only the calling
//! thread.

/// Makes timed waits of this thread end on time. By default, Linux lets them end up to 50 us late,
/// so that it can end several waits together. Does nothing on other systems.
pub(super) fn wake_on_time() {
    #[cfg(target_os = "linux")]
    // SAFETY: the invariant. If the call fails, waits only end later.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
