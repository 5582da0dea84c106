#![allow(unsafe_code)]
//! Page-locked host memory.
//!
//! **Invariants**
//! 1. `start` comes from `cuMemHostAlloc` with `len` bytes and is passed to `cuMemFreeHost` once,
//!    in `drop`.
//! 2. The bytes are initialised, because they are zeroed when allocated.
//! 3. Code that starts an asynchronous copy from the memory keeps the `Pinned` alive and unchanged
//!    until the copy is done, as an event after it shows. `Stream::upload` is `unsafe` because of
//!    this contract, which the prefetch ring keeps.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use cudarc::driver::{result, sys};

use super::driver::{Context, Doing};
use super::later::{FREED_WITHIN, later, settle};
use crate::error::{Error, Result};

/// A zeroed block of page-locked host memory, portable across contexts.
///
/// Allocating it takes about 0.3 ms per megabyte and synchronizes the device. It is therefore
/// allocated when a loader opens, never while it runs.
pub struct Pinned {
    start: NonNull<u8>,
    len: usize,
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
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        let _here = context.enter()?;
        if len == 0 {
            return Err(Error::config("page-locked memory of 0 bytes"));
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
        Ok(Pinned { start, len, context: context.clone() })
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
        let start = self.start.as_ptr() as usize;
        later(self.context.clone(), move || {
            // SAFETY: invariant 1. An error means that the context has failed, and its memory is
            // released with the process.
            let _ = unsafe { result::free_host(start as *mut std::ffi::c_void) };
        });
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.len)
    }
}
