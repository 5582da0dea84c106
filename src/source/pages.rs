//! Pages of a memory map, brought in before they are touched.
//!
//! Touching a mapped page that cannot be had (the file was cut short, the disk failed) kills the
//! process with `SIGBUS`. Linux 5.14 and newer can be asked to bring pages in and to say when it
//! cannot (`MADV_POPULATE_READ`), which turns that into an error. It is one system call in place of
//! a page fault every 64 KiB: nothing to be seen at 110 KB a sample, about half a µs at 3 KB, where
//! decoding takes 20. It says what is there now: a file that is cut short after the call and before
//! the last use of the bytes, which is all the while that a sample is decoded, still kills the
//! process. Workers that are busy have such samples in hand nearly always. On other systems nothing
//! is asked, and the risk of every memory map remains.
//!
//! **One read for a sample.** Populating faults pages in one after the other. Where the system
//! reads around a fault that is fine. LMDB's map is marked random: there each page is a read of its
//! own, waited for before the next one. So pages are asked for in one request before
//! (`MADV_WILLNEED`): always for large samples, and for small ones where reads are known to wait,
//! since the request costs something where all pages are there. Thumbnails from a cold LMDB come
//! 1.8 times as fast with it (`benches/RESULTS.md`).
//!
//! # Invariants
//! 1. The ranges given to the kernel are whole pages that hold a part of a live slice, and the
//!    advice given changes no byte of them.
#![allow(unsafe_code)]

use std::cell::Cell;

#[cfg(target_os = "linux")]
use crate::error::Error;
use crate::error::Result;

/// From this size on pages not in memory are asked for in one request beforehand; below, there is
/// no gain over faulting them in, as long as the system reads around a fault.
#[cfg(target_os = "linux")]
const READ_AHEAD: usize = 32 << 10;

thread_local! {
    /// Whether the thread reads for others.
    static AHEAD: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread reads for others from now on, since reads wait: what it reads is most likely
/// not in memory.
pub(crate) fn reads_ahead() {
    AHEAD.set(true);
}

/// Policy by which the system reads the pages of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    /// With pages around the one that is touched.
    Usual,
    /// Page by page.
    Random,
}

/// Brings the pages of `bytes` into memory, which is of a map that is read as `map` says.
///
/// # Errors
/// If they cannot be had. Touching `bytes` would then kill the process.
#[cfg(target_os = "linux")]
pub(super) fn fetch(bytes: &[u8], map: Map) -> Result<()> {
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
        // Where the map is marked random populating alone takes 46 ms for 110 KB instead of 0.3 ms.
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

/// Nothing to ask on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn fetch(_bytes: &[u8], _map: Map) -> Result<()> {
    Ok(())
}
