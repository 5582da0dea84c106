//! Allocates device memory.
//!
//! **Invariants**
//! 1. `start` comes from `cuMemAlloc` with at least `len` bytes, and `drop` passes it to
//!    `cuMemFree`, at most once. `cuMemFree` waits for the pending work of the device, so no kernel
//!    uses the memory when it is freed.
//! 2. Every address that leaves this module is inside the block, because `at` checks the range.
//! 3. `slice` never frees the block, because `drop` leaks the slice.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, DeviceRepr, result, sys};

use super::capture;
use super::deferred_free::{FREE_TIMEOUT, free_when_idle, wait_until_freed};
use super::driver::{Context, Doing};
use crate::error::{Error, ErrorKind, Result};

/// A block of device memory. A loader allocates one block when it is opened, and frees it after the
/// loader and all its batches have been dropped. A [`CudaCopy`](crate::device::CudaCopy) has its
/// own block.
pub struct DeviceBuffer {
    start: sys::CUdeviceptr,
    len: usize,
    context: Context,
    /// The whole block as a [`CudaSlice`], from which views borrow.
    slice: OnceLock<ManuallyDrop<CudaSlice<u8>>>,
}

impl DeviceBuffer {
    /// Allocates `len` uninitialized bytes. The start is aligned to at least 256 bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the allocation fails, usually because the device does not have
    /// enough free memory. The message contains the requested and the free memory, and suggests
    /// what to change. [`ErrorKind::Cuda`] if the context is no longer usable.
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        let _entered = context.enter()?;
        // SAFETY: the context is bound. Users of the block write every byte before they read it.
        let take = || unsafe { result::malloc_sync(len.max(1)) };
        let start = take().or_else(|e| if wait_until_freed(FREE_TIMEOUT) { take() } else { Err(e) });
        let is_out_of_memory = start.is_err_and(|e| e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let operation = || format!("allocating {:.1} MB on device {}", len as f64 / 1e6, context.ordinal());
        let start = start.doing(operation).map_err(|e| {
            if !is_out_of_memory {
                return e;
            }
            let free_text = context.memory().map_or_else(
                |_| "the free memory is unknown".to_owned(),
                |(free, total)| format!("{:.1} of {:.1} MB are free", free as f64 / 1e6, total as f64 / 1e6),
            );
            Error::new(
                ErrorKind::Memory,
                format!(
                    "{}; {free_text}: lower batch_size or prefetch (max_in_flight of a decoder), or free memory that \
                     this program or other programs use on the device",
                    e.cause()
                ),
            )
        })?;
        Ok(DeviceBuffer { start, len, context: context.clone(), slice: OnceLock::new() })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the block is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the context of the block.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the device address of the range `offset..offset + bytes`.
    ///
    /// # Panics
    /// If the range is not inside the block, which would be a bug in this crate.
    pub fn at(&self, offset: usize, bytes: usize) -> u64 {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "{bytes} bytes at offset {offset} exceed the {} bytes of device memory",
            self.len
        );
        self.start + offset as u64
    }
}

impl DeviceBuffer {
    /// Returns a cudarc view of `len` elements at offset `offset`, which must be a multiple of 256.
    /// Every bit pattern must be a valid `T`.
    pub(crate) fn view<T: DeviceRepr>(&self, stream: &Arc<CudaStream>, offset: usize, len: usize) -> CudaView<'_, T> {
        let bytes = len * size_of::<T>();
        self.at(offset, bytes);
        let slice = self.slice.get_or_init(|| {
            let _entered = self.context.enter();
            // Creating the slice would consume an error that cudarc has stored for the program, and
            // panic. So save the error first.
            let status = stream.context().check_err();
            // SAFETY: the block has `len` bytes at `start` (invariant 1), and the slice never frees
            // them (invariant 3).
            let slice = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr(self.start, self.len) });
            stream.context().record_err(status);
            slice
        });
        // SAFETY: every bit pattern is a valid element, and the offset is aligned.
        let view = unsafe { slice.slice(offset..offset + bytes).transmute(len) };
        view.expect("the slice has exactly `len` elements")
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let (start, slice) = (self.start, self.slice.take());
        free_when_idle(self.context.clone(), move || {
            if let Some(slice) = slice {
                // `leak` makes the stream wait for all uses of the slice. During a capture, that
                // wait would become part of the graph.
                while capture::is_capturing(slice.stream().cu_stream()) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                ManuallyDrop::into_inner(slice).leak();
            }
            // SAFETY: invariant 1. An error means that the context has failed, and its memory is
            // lost anyway.
            let _ = unsafe { result::memory_free(start) };
        });
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes on device {})", self.len, self.context.ordinal())
    }
}
