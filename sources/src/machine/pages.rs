//! Loads pages of a memory map before they are touched.
//!
//! Touching a mapped page that cannot be loaded (because the file was truncated or the disk failed)
//! kills the process with `SIGBUS`. `MADV_POPULATE_READ` (Linux 5.14 and newer) loads pages and
//! reports a failure as an error. One system call replaces one page fault per 64 KiB. For samples
//! of 110 KB, the cost of the call is not measurable; for samples of 3 KB it is about 0.5 µs,
//! compared with 20 µs for decoding. The check is valid only at the time of the call: truncating a
//! file while a sample is being decoded from it still kills the process, and busy workers are
//! nearly always decoding. Other systems have no such check, so the usual risk of memory maps
//! remains.
//!
//! **One read per sample.** `MADV_POPULATE_READ` loads pages one by one. This is fast if the system
//! reads ahead around a fault. However, LMDB's map is marked for random access, so each page costs
//! a separate blocking read. `MADV_WILLNEED` requests all pages in advance. It is used for all
//! large samples, and for small samples only on reader threads, because the call costs time even if
//! all pages are in memory. Reader threads run only when reads are slow. With this call, thumbnails
//! from a cold LMDB load 1.8 times as fast (`benches/RESULTS.md`).
//!
//! # Invariants
//! 1. Each range passed to the kernel consists of whole pages that contain part of a live slice,
//!    and the advice changes none of their bytes.
#![allow(unsafe_code)]

use std::cell::Cell;

#[cfg(target_os = "linux")]
use crate::error::Error;
use crate::error::Result;

/// Minimum size in bytes of a sample for which all pages are requested in advance. Smaller samples
/// gain nothing if the system reads ahead around a fault.
#[cfg(target_os = "linux")]
const READ_AHEAD: usize = 32 << 10;

thread_local! {
    /// Whether this thread is a reader thread.
    static AHEAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a reader thread. Readers run when reads are slow, so the pages that
/// they read are probably not in memory.
pub fn reads_ahead() {
    AHEAD.set(true);
}

/// Read-ahead policy of a memory map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Map {
    /// The system also reads the pages around the touched page.
    Usual,
    /// The system reads only the touched page.
    Random,
}

/// Loads the pages of `bytes`, which is a slice of a memory map with the policy `map`.
///
/// # Errors
/// If the pages cannot be loaded. In that case, touching `bytes` would kill the process.
#[cfg(target_os = "linux")]
pub(crate) fn fetch(bytes: &[u8], map: Map) -> Result<()> {
    use std::sync::LazyLock;
    static PAGE: LazyLock<usize> = LazyLock::new(|| {
        // SAFETY: `sysconf` takes and returns plain integers.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    });
    if bytes.is_empty() {
        return Ok(());
    }
    let before = bytes.as_ptr().addr() % *PAGE;
    let start = bytes.as_ptr().wrapping_sub(before).cast_mut().cast();
    let len = before + bytes.len();
    if bytes.len() >= READ_AHEAD || (map == Map::Random && len > *PAGE && AHEAD.get()) {
        // In a map marked for random access, `MADV_POPULATE_READ` alone takes 46 ms for 110 KB,
        // instead of 0.3 ms.
        // SAFETY: invariant 1. The result is ignored, because the call is only a hint.
        unsafe { libc::madvise(start, len, libc::MADV_WILLNEED) };
    }
    // SAFETY: invariant 1.
    if unsafe { libc::madvise(start, len, libc::MADV_POPULATE_READ) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT | libc::ENOMEM | libc::EHWPOISON) => Err(Error::in_source(format!(
            "{} bytes of the memory map cannot be read: the file was cut short while open, or the disk failed ({error})",
            bytes.len()
        ))),
        // EINVAL means that the kernel does not support this advice.
        _ => Ok(()),
    }
}

/// Does nothing, because this system has no such check.
#[cfg(not(target_os = "linux"))]
pub(crate) fn fetch(_bytes: &[u8], _map: Map) -> Result<()> {
    Ok(())
}
