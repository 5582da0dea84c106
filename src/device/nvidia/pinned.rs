#![allow(unsafe_code)]
//! Page-locked host memory.
//!
//! Large blocks are mapped, filled by several threads and then registered with the driver, because
//! `cuMemHostAlloc` fills page after page on one thread. Small blocks, and large ones that the
//! driver cannot register, come from `cuMemHostAlloc`. So do all blocks where a driver before CUDA
//! 12.5 cannot mark the work of a context.
//!
//! **Invariants**
//! 1. `start` points to `len` bytes that the driver has locked. `drop` unlocks them once, and then
//!    frees them. A mapping that cannot be unlocked stays, because the driver would go on copying
//!    its pages for whatever is mapped there next.
//! 2. The bytes are initialized: the system zeroes mapped pages, and allocated ones are zeroed
//!    here.
//! 3. Code that starts an asynchronous copy from the memory keeps the `Pinned` alive and unchanged
//!    until the copy is done, as an event after it shows. `Stream::upload` is `unsafe` because of
//!    this contract, which the prefetch ring keeps.
//! 4. A child process shares a mapping, as the driver's own are, or lacks it. If it had a copy, the
//!    first write after `fork` would move the page here, and the device would read the old one.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use cudarc::driver::{result, sys};

use super::deferred_free::{FREED_WITHIN, free_when_idle, settle};
#[cfg(target_os = "linux")]
use super::driver::marks_contexts;
use super::driver::{Context, Doing};
use crate::error::{Error, Result};

/// Size from which blocks are mapped.
#[cfg(target_os = "linux")]
const MAPPED_FROM: usize = 4 << 20;
/// Size of huge pages.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;
/// Bytes that a thread fills at least.
#[cfg(target_os = "linux")]
const SHARE: usize = 8 << 20;
/// Maximum number of threads that fill a block. With eight, the system's allocator of huge pages
/// takes three times as long.
#[cfg(target_os = "linux")]
const THREADS: usize = 4;

/// What a child process made by `fork` finds at the address of page-locked memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFork {
    /// The same memory. For memory that callers may still hold after a fork.
    Shared,
    /// Nothing: an access ends the child with `SIGSEGV`. Allocating large blocks takes a third of
    /// the time, because the system uses huge pages. Small blocks are shared, and so are all blocks
    /// where the system cannot hide memory from children.
    Absent,
}

/// A zeroed block of page-locked host memory, portable across contexts.
///
/// Allocating it may synchronize the device. It is therefore allocated when a loader opens, never
/// while it runs.
pub struct Pinned {
    start: NonNull<u8>,
    len: usize,
    /// Whether `start` is mapped, and not allocated by the driver.
    is_mapped: bool,
    context: Context,
}

// SAFETY: only this value owns the memory (invariant 1), and page-locked memory is not tied to a
// thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access is read-only, through `&[u8]`.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates `len` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if the driver cannot allocate that much. The
    /// message names the options that need less.
    pub fn new(context: &Context, len: usize, after_fork: AfterFork) -> Result<Self> {
        #[cfg(not(target_os = "linux"))]
        let _ = after_fork;
        let _here = context.enter()?;
        if len == 0 {
            return Err(Error::config("page-locked memory of 0 bytes"));
        }
        // The driver does not promise that unlocking waits for copies, as freeing does. So the memory
        // must be freed after a mark of all work.
        #[cfg(target_os = "linux")]
        if marks_contexts()
            && let Some(start) = mapped(len, after_fork)
        {
            return Ok(Pinned { start, len, is_mapped: true, context: context.clone() });
        }
        // SAFETY: the context is bound, and the result is checked before use.
        let lock = || unsafe { result::malloc_host(len, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start = lock().or_else(|e| if settle(FREED_WITHIN) { lock() } else { Err(e) }).doing(|| {
            format!(
                "page-locking {:.1} MB of host memory (a smaller batch, a smaller prefetch or .pinned(false) needs less)",
                len as f64 / 1e6
            )
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::config("cuMemHostAlloc returned null"))?;
        // SAFETY: `len` bytes were just allocated at `start`.
        unsafe { start.write_bytes(0, len) };
        Ok(Pinned { start, len, is_mapped: false, context: context.clone() })
    }
}

/// Maps and locks `len` bytes. `None` if the block is small, or if the system or the driver
/// refuses.
#[cfg(target_os = "linux")]
fn mapped(len: usize, after_fork: AfterFork) -> Option<NonNull<u8>> {
    if len < MAPPED_FROM {
        return None;
    }
    let visible = match after_fork {
        AfterFork::Shared => libc::MAP_SHARED,
        AfterFork::Absent => libc::MAP_PRIVATE,
    };
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, visible | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the system's choice touches no other memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let at = start as usize;
    // Where the system cannot do this, locking fills the pages, which only takes longer.
    let advise = |begin: usize, end: usize, advice| {
        let (begin, end) = (len.min(begin), len.min(end));
        // SAFETY: the range lies in the mapping, and the advice changes no contents.
        unsafe { libc::madvise((at + begin) as *mut std::ffi::c_void, end - begin, advice) }
    };
    if after_fork == AfterFork::Absent && advise(0, len, libc::MADV_DONTFORK) != 0 {
        // SAFETY: the mapping was made above, and nothing uses it.
        unsafe { libc::munmap(start, len) };
        return mapped(len, AfterFork::Shared);
    }
    advise(0, len, libc::MADV_HUGEPAGE);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (len / SHARE).clamp(1, cores.min(THREADS));
    let share = len.div_ceil(threads).next_multiple_of(HUGE);
    let fill = |part: usize| advise(part * share, (part + 1) * share, libc::MADV_POPULATE_WRITE);
    std::thread::scope(|scope| {
        let fill = &fill;
        for part in 1..threads {
            // Locking fills the share of a thread that cannot be started.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || fill(part));
        }
        fill(0);
    });
    // SAFETY: the caller has bound the context, and the range is mapped.
    let locked = unsafe { sys::cuMemHostRegister_v2(start, len, sys::CU_MEMHOSTREGISTER_PORTABLE) };
    if locked.result().is_err() {
        // SAFETY: the mapping was made above, and nothing uses it.
        unsafe { libc::munmap(start, len) };
        return None;
    }
    NonNull::new(start.cast())
}

/// Unlocks and frees a mapping.
///
/// # Safety
/// [`mapped`] made the mapping of `len` bytes at `start`, and nothing uses it.
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
        // SAFETY: invariants 1 and 2. `&mut self` makes the access exclusive on the host, and
        // invariant 3 makes it exclusive of the device.
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
            // SAFETY: invariant 1. An error means that the context has failed, and its memory is
            // released with the process.
            let _ = unsafe { result::free_host(start) };
        });
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.len)
    }
}
