//! Page-locked host memory.
//!
//! `cuMemHostAlloc` touches one page after the other on a single thread, which would take most of
//! the time to open a loader. So on Linux, large blocks are mapped, touched by several threads, and
//! then registered with the driver. `cuMemHostAlloc` allocates small blocks, and blocks that the
//! driver can't register. It also allocates all blocks on other systems, and on drivers before CUDA
//! 12.5, which cannot record an event for all work of a context.
//!
//! **Invariants**
//! 1. `start` points to `len` bytes that the driver has locked. `drop` unlocks them, once, and then
//!    frees them. A mapping that cannot be unlocked is leaked: if its addresses were reused, the
//!    driver would still transfer the old pages instead of the new ones.
//! 2. The bytes are initialized: the system zeroes mapped pages, and this module zeroes allocated
//!    ones.
//! 3. The `Pinned` stays alive and unchanged until an event recorded after each asynchronous copy
//!    from the memory has completed. For copies by the prefetch ring, this is the safety contract
//!    of `Stream::upload`. For copies that a program queues from a host batch, `device/handoff.rs`
//!    ensures this.
//! 4. After `fork`, the child either shares a mapping, as it shares the driver's own allocations,
//!    or does not have it at all. Copy-on-write must never happen: the parent's first write would
//!    move the page, and the device would keep reading the old one.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use cudarc::driver::{DriverError, result, sys};

use super::deferred_free::{FREE_TIMEOUT, free_when_idle, wait_until_freed};
#[cfg(target_os = "linux")]
use super::driver::can_record_all;
use super::driver::{Context, Doing};
use crate::error::{Error, Result};

#[cfg(target_os = "linux")]
const MAPPED_FROM: usize = 4 << 20;
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;
/// Minimum number of bytes per thread that touches a block.
#[cfg(target_os = "linux")]
const MIN_SHARE: usize = 8 << 20;
/// Maximum number of threads that touch a block. With eight threads, Linux takes three times as
/// long to allocate huge pages.
#[cfg(target_os = "linux")]
const MAX_THREADS: usize = 4;

/// Visibility of page-locked memory in a child process created by `fork`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFork {
    /// The child shares the memory. Use this for memory that the program may still hold after a
    /// fork.
    Shared,
    /// The memory is absent in the child, and an access ends the child with `SIGSEGV`. Large blocks
    /// are then allocated three times as fast, because huge pages can be used. Blocks from
    /// `cuMemHostAlloc` are always shared. So are all blocks if the system cannot hide memory from
    /// child processes.
    Absent,
}

/// A zeroed block of page-locked host memory, which every context can use.
///
/// The allocation may synchronize the device, so a loader allocates its slots when it is opened.
pub struct Pinned {
    start: NonNull<u8>,
    len: usize,
    is_mapped: bool,
    context: Context,
}

// SAFETY: this value owns the memory (invariant 1), which is not tied to a thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access is read-only, through `&[u8]`.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates `len` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if the driver cannot allocate `len` bytes. If
    /// memory ran out, the message suggests what to change.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if `len` is 0.
    pub fn new(context: &Context, len: usize, after_fork: AfterFork) -> Result<Self> {
        #[cfg(not(target_os = "linux"))]
        let _ = after_fork;
        let _entered = context.enter()?;
        if len == 0 {
            return Err(Error::config("cannot page-lock 0 bytes"));
        }
        // `cuMemFreeHost` waits for copies, but `cuMemHostUnregister` need not. So a mapping may be
        // unregistered only after an event for all work, which old drivers can't record.
        #[cfg(target_os = "linux")]
        if can_record_all()
            && let Some(start) = map_and_lock(len, after_fork)
        {
            return Ok(Pinned { start, len, is_mapped: true, context: context.clone() });
        }
        // SAFETY: the context is bound, and the result is checked before use.
        let lock = || unsafe { result::malloc_host(len, sys::CU_MEMHOSTALLOC_PORTABLE) };
        // A null pointer without an error also means that memory is missing.
        let lock = || {
            let start = lock()?;
            NonNull::new(start.cast::<u8>()).ok_or(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))
        };
        let start = lock().or_else(|e| if wait_until_freed(FREE_TIMEOUT) { lock() } else { Err(e) });
        let is_out_of_memory = start.is_err_and(|e| e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let start = start.doing(|| format!("page-locking {:.1} MB of host memory", len as f64 / 1e6)).map_err(|e| {
            if !is_out_of_memory {
                return e;
            }
            let cause = format!("{}; lower batch_size or prefetch (max_in_flight of a decoder)", e.cause());
            Error::new(e.kind(), cause)
        })?;
        // SAFETY: `len` bytes were just allocated at `start`.
        unsafe { start.write_bytes(0, len) };
        Ok(Pinned { start, len, is_mapped: false, context: context.clone() })
    }
}

/// Maps a block, touches its pages on several threads, and registers it with the driver. Returns
/// `None` if the block is small, or if the system cannot map it or the driver cannot register it.
#[cfg(target_os = "linux")]
fn map_and_lock(len: usize, after_fork: AfterFork) -> Option<NonNull<u8>> {
    if len < MAPPED_FROM {
        return None;
    }
    let visible = match after_fork {
        AfterFork::Shared => libc::MAP_SHARED,
        AfterFork::Absent => libc::MAP_PRIVATE,
    };
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, visible | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the system chooses does not affect other memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let address = start as usize;
    // Apart from `MADV_DONTFORK`, the advice only saves time. Without it, locking touches the
    // pages.
    let advise = |begin: usize, end: usize, advice| {
        let (begin, end) = (len.min(begin), len.min(end));
        // SAFETY: the range is inside the mapping, and the advice does not change its contents.
        unsafe { libc::madvise((address + begin) as *mut std::ffi::c_void, end - begin, advice) }
    };
    if after_fork == AfterFork::Absent && advise(0, len, libc::MADV_DONTFORK) != 0 {
        // SAFETY: the mapping was created above, and nothing uses it.
        unsafe { libc::munmap(start, len) };
        return map_and_lock(len, AfterFork::Shared);
    }
    advise(0, len, libc::MADV_HUGEPAGE);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (len / MIN_SHARE).clamp(1, cores.min(MAX_THREADS));
    let share = len.div_ceil(threads).next_multiple_of(HUGE_PAGE);
    let fill = |part: usize| advise(part * share, (part + 1) * share, libc::MADV_POPULATE_WRITE);
    std::thread::scope(|scope| {
        let fill = &fill;
        for part in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || fill(part));
        }
        fill(0);
    });
    // SAFETY: the caller has bound the context, and the range is mapped.
    let locked = unsafe { sys::cuMemHostRegister_v2(start, len, sys::CU_MEMHOSTREGISTER_PORTABLE) };
    if locked.result().is_err() {
        // SAFETY: the mapping was created above, and nothing uses it.
        unsafe { libc::munmap(start, len) };
        return None;
    }
    NonNull::new(start.cast())
}

/// Unregisters and unmaps a block.
///
/// # Safety
/// [`map_and_lock`] must have returned `start` for `len` bytes, and nothing may use the mapping
/// anymore.
#[cfg(target_os = "linux")]
unsafe fn unmap(start: *mut std::ffi::c_void, len: usize) {
    // SAFETY: guaranteed by the caller.
    if unsafe { sys::cuMemHostUnregister(start) }.result().is_ok() {
        // SAFETY: the driver no longer uses the mapping.
        unsafe { libc::munmap(start, len) };
    }
}

impl Deref for Pinned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: invariants 1 and 2.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: invariants 1 and 2. `&mut self` excludes other accesses on the host, and
        // invariant 3 excludes accesses by the device.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let (start, _len, is_mapped) = (self.start.as_ptr() as usize, self.len, self.is_mapped);
        free_when_idle(self.context.clone(), move || {
            let start = start as *mut std::ffi::c_void;
            if is_mapped {
                #[cfg(target_os = "linux")]
                // SAFETY: invariant 1.
                unsafe {
                    unmap(start, _len);
                }
                return;
            }
            // SAFETY: invariant 1. An error means that the context has failed. The memory is then
            // released when the process exits.
            let _ = unsafe { result::free_host(start) };
        });
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.len)
    }
}
