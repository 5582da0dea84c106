//! Loads pages of a memory map before they are touched.
//!
//! Touching a mapped page that cannot be loaded (the file was truncated, the disk failed) kills the
//! process with `SIGBUS`. `MADV_POPULATE_READ` (Linux 5.14 and newer) loads pages and reports
//! failure as an error. One system call replaces a page fault every 64 KiB. Its cost is not
//! measurable for samples of 110 KB. For samples of 3 KB it is about 0.5 µs, where decoding takes
//! 20 µs. The check holds only at the time of the call: truncating a file while a sample is decoded
//! from it still kills the process. Busy workers hold such a sample nearly all the time. On other
//! systems there is no check, and the risk of every memory map remains.
//!
//! **One read for a sample.** Populating loads pages one after the other. This is fast if the
//! system reads ahead around a fault. LMDB's map is marked random, so each page is a separate read
//! that is waited for. `MADV_WILLNEED` requests all pages at once beforehand: always for large
//! samples, and for small ones if reads are known to wait, because the request costs time even if
//! all pages are in memory. Thumbnails from a cold LMDB load 1.8 times as fast with it
//! (`benches/RESULTS.md`).
//!
//! # Invariants
//! 1. The ranges given to the kernel are whole pages that contain part of a live slice, and the
//!    advice changes none of their bytes.
#![allow(unsafe_code)]

use std::cell::Cell;

#[cfg(target_os = "linux")]
use crate::error::Error;
use crate::error::Result;

/// Minimum size of a sample whose pages are requested beforehand in every map. For smaller samples,
/// this gains nothing if the system reads ahead around a fault.
#[cfg(target_os = "linux")]
const READ_AHEAD: usize = 32 << 10;

thread_local! {
    /// Whether the thread is a reader.
    static AHEAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a reader. Readers run when reads wait, so their pages are most
/// likely not in memory.
pub fn reads_ahead() {
    AHEAD.set(true);
}

/// Policy by which the system reads the pages of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Map {
    /// Together with the pages around the touched one.
    Usual,
    /// Page by page.
    Random,
}

/// Loads the pages of `bytes`, part of a map with policy `map`.
///
/// # Errors
/// If they cannot be loaded. Touching `bytes` would then kill the process.
#[cfg(target_os = "linux")]
pub(crate) fn fetch(bytes: &[u8], map: Map) -> Result<()> {
    use std::sync::LazyLock;
    static PAGE: LazyLock<usize> = LazyLock::new(|| {
        // SAFETY: takes and returns plain numbers.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    });
    if bytes.is_empty() {
        return Ok(());
    }
    let before = bytes.as_ptr().addr() % *PAGE;
    let start = bytes.as_ptr().wrapping_sub(before).cast_mut().cast();
    let len = before + bytes.len();
    if bytes.len() >= READ_AHEAD || (map == Map::Random && len > *PAGE && AHEAD.get()) {
        // In a map marked random, populating alone takes 46 ms for 110 KB instead of 0.3 ms.
        // SAFETY: invariant 1. A failure of this hint has no effect.
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
        // EINVAL: a kernel that does not know the advice.
        _ => Ok(()),
    }
}

/// This system has no such check.
#[cfg(not(target_os = "linux"))]
pub(crate) fn fetch(_bytes: &[u8], _map: Map) -> Result<()> {
    Ok(())
}
