#![allow(unsafe_code)]
//! Copies a field of a batch to separately allocated device memory.
//!
//! **Invariants**
//! 1. The copy is queued after the batch's own work. The batch's slot is reused only after the
//!    copy, because `use_on` has passed the stream to the ring.
//! 2. The memory is freed after all work submitted to the device before the drop (`Gpu::memory`),
//!    so the code need not know which streams used it.

use std::fmt;

use super::batch::DeviceBatch;
use super::gpu::{Gpu, capturing};
use crate::error::Result;

/// A copy of a batch's field in separate device memory, made by [`DeviceBatch::copy_on`]. The copy
/// does not occupy the batch's slot. Dropping the copy frees its memory after the device's pending
/// work.
pub struct DeviceCopy<G: Gpu> {
    gpu: G,
    memory: G::Buffer,
    bytes: usize,
    done: G::Event,
}

impl<G: Gpu> DeviceBatch<G> {
    /// Copies the field `name` on a stream of another library, given the stream's handle. The
    /// stream waits for the batch. The batch may be dropped immediately after this call. Returns
    /// `None` if there is no such field.
    ///
    /// # Safety
    /// Same as [`use_on`](DeviceBatch::use_on).
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has too little free memory.
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) if the stream is being captured.
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub unsafe fn copy_on(&self, name: &str, stream: usize) -> Result<Option<DeviceCopy<G>>> {
        let Some(tensor) = self.field(name) else { return Ok(None) };
        let (gpu, from) = (&self.0.shared.gpu, &self.0.shared.memory);
        let bytes = tensor.len() * tensor.dtype().bytes();
        let memory = gpu.memory(bytes)?;
        // SAFETY: guaranteed by the caller.
        let on = unsafe { gpu.borrowed(stream) }?;
        if gpu.is_capturing(&on)? {
            return Err(capturing("copy the batch before the capture"));
        }
        let done = gpu.event()?;
        // SAFETY: guaranteed by the caller.
        unsafe { self.use_on(stream) }?;
        // SAFETY: invariants 1 and 2; the field is inside the batch's slot.
        unsafe { gpu.copy(&on, &memory, from, tensor.offset(), bytes) }?;
        gpu.record(&done, &on)?;
        Ok(Some(DeviceCopy { gpu: gpu.clone(), memory, bytes, done }))
    }
}

impl<G: Gpu> DeviceCopy<G> {
    /// Returns the device address (`CUdeviceptr`).
    pub fn device_ptr(&self) -> u64 {
        self.gpu.address(&self.memory, 0, self.bytes)
    }

    /// Makes a stream of another library, given its handle, wait for the copy.
    ///
    /// # Safety
    /// The stream must belong to the primary context of the device.
    ///
    /// # Errors
    /// Same as [`DeviceBatch::copy_on`].
    pub unsafe fn use_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let on = unsafe { self.gpu.borrowed(stream) }?;
        if self.gpu.is_capturing(&on)? {
            return Err(capturing("use the copy before the capture"));
        }
        self.gpu.wait(&on, &self.done)
    }
}

impl<G: Gpu> fmt::Debug for DeviceCopy<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceCopy({} bytes on device {})", self.bytes, self.gpu.ordinal())
    }
}
