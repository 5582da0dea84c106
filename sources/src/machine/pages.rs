//! Loads pages of a memory map before they are touched.
//!
//! Touching a mapped page that cannot be loaded, because the file was truncated or the disk failed,
//! kills the process with `SIGBUS`. `MADV_POPULATE_READ` (Linux 5.14 and newer) loads pages and
//! reports a failure as an error. The call replaces one page fault per 64 KiB, so its cost is not
//! measurable for 110 KB samples. For 3 KB samples, it is about 0.5 µs, compared with 20 µs for
//! decoding. The call does not protect later accesses. If a file is truncated while a worker
//! decodes one of its samples, the process still dies. Other systems have no such call, so
//! truncating an open file can kill the process there.
//!
//! **One read per sample.** `MADV_POPULATE_READ` loads pages one by one, which is fast where the
//! system reads ahead around a fault. LMDB's map is marked for random access, so each page would
//! cost a separate blocking read. `MADV_WILLNEED` requests all pages in advance, which makes
//! thumbnails from a cold LMDB load 1.8 times as fast (`benches/RESULTS.md`), but the call takes
//! time even if every page is in memory. `MADV_WILLNEED` is therefore used for every large sample.
//! For a small sample, it is used only if the sample spans several pages of a map for random
//! access, and only on reader threads, which are active only when reads are slow.
//!
//! # Invariants
//! 1. Every page in a range passed to the kernel contains a part of a live slice, and the advice
//!    changes none of its bytes.
#![allow(unsafe_code)]

use std::cell::Cell;

#[cfg(target_os = "linux")]
use crate::error::Error;
use crate::error::Result;

/// Minimum size of a sample, in bytes, for requesting its pages in advance on any thread. Smaller
/// samples gain nothing where the system reads ahead around a fault.
#[cfg(target_os = "linux")]
const MIN_REQUESTED_BYTES: usize = 32 << 10;

thread_local! {
    static IS_READER: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a reader thread. Readers are active only when reads are slow, so the
/// pages that they touch are probably not in memory.
pub fn mark_reader_thread() {
    IS_READER.set(true);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapAccess {
    /// The system reads the touched page and the pages around it.
    Usual,
    /// The system reads only the touched page.
    Random,
}

/// Loads the pages that contain `bytes`, a slice of a memory map with the policy `access`. On
/// failure, touching `bytes` would kill the process.
#[cfg(target_os = "linux")]
pub(crate) fn load_pages(bytes: &[u8], access: MapAccess) -> Result<()> {
    use std::sync::LazyLock;
    static PAGE_BYTES: LazyLock<usize> = LazyLock::new(|| {
        // SAFETY: `sysconf` takes and returns plain integers.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    });
    if bytes.is_empty() {
        return Ok(());
    }
    let offset_in_page = bytes.as_ptr().addr() % *PAGE_BYTES;
    let start = bytes.as_ptr().wrapping_sub(offset_in_page).cast_mut().cast();
    let len = offset_in_page + bytes.len();
    if bytes.len() >= MIN_REQUESTED_BYTES || (access == MapAccess::Random && len > *PAGE_BYTES && IS_READER.get()) {
        // With random access, loading 110 KB takes 0.3 ms with this call and 46 ms without. The
        // call is a hint, so ignore its result. SAFETY: invariant 1.
        unsafe { libc::madvise(start, len, libc::MADV_WILLNEED) };
    }
    // SAFETY: invariant 1.
    if unsafe { libc::madvise(start, len, libc::MADV_POPULATE_READ) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT | libc::ENOMEM | libc::EHWPOISON) => Err(Error::in_source(format!(
            "{} bytes of the memory map cannot be read: the file was truncated while open, or the disk failed \
             ({error})",
            bytes.len()
        ))),
        // The kernel may be too old for this advice and return `EINVAL`, for example.
        _ => Ok(()),
    }
}

/// Does nothing, because this system cannot load pages without the risk of a signal.
#[cfg(not(target_os = "linux"))]
pub(crate) fn load_pages(_bytes: &[u8], _access: MapAccess) -> Result<()> {
    Ok(())
}
