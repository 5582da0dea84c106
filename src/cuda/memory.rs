#![allow(unsafe_code)]
//! Device memory.
//!
//! **Invariants**
//! 1. `start` comes from `cuMemAlloc` with `len` bytes and is given to `cuMemFree` once, in `drop`.
//!    `cuMemFree` waits for the work that the device still has, so memory is never taken from under
//!    a running kernel, whichever stream it runs on.
//! 2. Every offset given out lies inside: `at` checks.
//! 3. cudarc's `slice` over the block never frees it: it is leaked before the block is freed.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, DeviceRepr, result, sys};

use super::capture;
use super::driver::{Context, Doing};
use super::later::{FREED_WITHIN, later, settle};
use crate::error::{Error, ErrorKind, Result};

/// One block of device memory. It is taken when a loader opens and freed when the loader's last
/// batch is gone.
pub struct Memory {
    start: sys::CUdeviceptr,
    len: usize,
    context: Context,
    /// What cudarc's views point to, made when the first is asked for.
    slice: OnceLock<ManuallyDrop<CudaSlice<u8>>>,
}

impl Memory {
    /// `len` bytes, not initialised; the start is aligned to at least 256 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the device has too little left, with both numbers and the options
    /// that would need less.
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        let _here = context.enter()?;
        // SAFETY: the context is bound; the contents are written before they are read by whoever
        // lays out the block.
        let take = || unsafe { result::malloc_sync(len.max(1)) };
        let start = take().or_else(|e| if settle(FREED_WITHIN) { take() } else { Err(e) });
        let start = start.doing(|| "allocating").map_err(|e| {
            let free = context.memory().map_or(0, |(free, _)| free);
            let (want, free, device) = (len as f64 / 1e6, free as f64 / 1e6, context.ordinal());
            Error::new(
                ErrorKind::Memory,
                format!("{want:.1} MB wanted on device {device}, {free:.1} MB free: {}; a smaller batch or .prefetch(n) needs less", e.cause()),
            )
        })?;
        Ok(Memory { start, len, context: context.clone(), slice: OnceLock::new() })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The device address of `bytes` bytes at `offset`.
    ///
    /// # Panics
    /// If they do not lie inside the block: the layout is the crate's own, so that is a bug in it.
    pub fn at(&self, offset: usize, bytes: usize) -> u64 {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "{bytes} bytes at {offset} of {} on the device",
            self.len
        );
        self.start + offset as u64
    }
}

impl Memory {
    /// cudarc's view of `len` elements at `offset`, which is a multiple of 256. All bytes are a
    /// valid `T`.
    pub(crate) fn view<T: DeviceRepr>(&self, stream: &Arc<CudaStream>, offset: usize, len: usize) -> CudaView<'_, T> {
        let bytes = len * size_of::<T>();
        self.at(offset, bytes);
        let slice = self.slice.get_or_init(|| {
            let _here = self.context.enter();
            // cudarc would take an error that it keeps for the program, and panic. The error must
            // stay for the program.
            let kept = stream.context().check_err();
            // SAFETY: the block is `len` bytes at `start` (invariant 1), and this never frees it
            // (invariant 3).
            let slice = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr(self.start, self.len) });
            stream.context().record_err(kept);
            slice
        });
        // SAFETY: the elements are numbers, of which every pattern of bits is one, and the offset
        // aligns them.
        let view = unsafe { slice.slice(offset..offset + bytes).transmute(len) };
        view.expect("the bytes were counted for `len` elements")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (start, slice) = (self.start, self.slice.take());
        later(self.context.clone(), move || {
            if let Some(slice) = slice {
                // cudarc makes the slice's stream wait for its uses, which would go into a capture.
                while capture::is_capturing(slice.stream().cu_stream()) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                ManuallyDrop::into_inner(slice).leak();
            }
            // SAFETY: invariant 1. An error means that the context has failed, and the memory goes
            // with it.
            let _ = unsafe { result::memory_free(start) };
        });
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes on device {})", self.len, self.context.ordinal())
    }
}
