//! Copies a field of a batch to separate device memory.
//!
//! **Invariants**
//! 1. The stream waits for the batch before the copy. `use_on` registers the stream as a user of
//!    the batch, so the slot is reused only after the copy.
//! 2. The memory is freed only after all work that was submitted to the device before the drop, on
//!    any stream, is done (`Gpu::memory`).

#![allow(unsafe_code)]

use std::fmt;

use super::batch::DeviceBatch;
use super::gpu::{Gpu, capturing};
use crate::error::Result;

/// A copy of a batch's field in separate device memory; see [`DeviceBatch::copy_on`]. It does not
/// occupy a slot. After the copy is dropped, its memory is freed once the device's pending work is
/// done.
pub struct DeviceCopy<G: Gpu> {
    gpu: G,
    memory: G::Buffer,
    bytes: usize,
    done: G::Event,
}

impl<G: Gpu> DeviceBatch<G> {
    /// Copies the field `name` on `stream`, a stream handle of a different library. The stream
    /// waits for the batch, but the host does not, and the batch may be dropped immediately. Like
    /// [`use_on`](DeviceBatch::use_on), this call registers the stream as a user of the batch.
    /// Returns `None` if there is no such field.
    ///
    /// # Safety
    /// See [`use_on`](DeviceBatch::use_on).
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device does not have enough free
    /// memory. [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) if the stream is being
    /// captured. [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub unsafe fn copy_on(&self, name: &str, stream: usize) -> Result<Option<DeviceCopy<G>>> {
        let Some(tensor) = self.field(name) else { return Ok(None) };
        let (gpu, from) = (&self.0.shared.gpu, &self.0.shared.memory);
        let bytes = tensor.len() * tensor.dtype().bytes();
        let memory = gpu.memory(bytes)?;
        // SAFETY: guaranteed by the caller.
        let stream_view = unsafe { gpu.borrowed(stream) }?;
        if gpu.is_capturing(&stream_view)? {
            return Err(capturing("copy the batch before the capture"));
        }
        let done = gpu.event()?;
        // SAFETY: guaranteed by the caller.
        unsafe { self.use_on(stream) }?;
        // SAFETY: invariants 1 and 2; the field lies inside the batch's slot.
        unsafe { gpu.copy(&stream_view, &memory, from, tensor.offset(), bytes) }?;
        gpu.record(&done, &stream_view)?;
        Ok(Some(DeviceCopy { gpu: gpu.clone(), memory, bytes, done }))
    }
}

impl<G: Gpu> DeviceCopy<G> {
    /// Returns the device address (`CUdeviceptr`).
    pub fn device_ptr(&self) -> u64 {
        self.gpu.address(&self.memory, 0, self.bytes)
    }

    /// Makes `stream`, a stream handle of a different library, wait for the copy.
    ///
    /// # Safety
    /// `stream` must be a stream in the primary context of the device.
    ///
    /// # Errors
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) if the stream is being captured.
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub unsafe fn use_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let stream_view = unsafe { self.gpu.borrowed(stream) }?;
        if self.gpu.is_capturing(&stream_view)? {
            return Err(capturing("use the copy before the capture"));
        }
        self.gpu.wait(&stream_view, &self.done)
    }
}

impl<G: Gpu> fmt::Debug for DeviceCopy<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceCopy({} bytes on device {})", self.bytes, self.gpu.ordinal())
    }
}
