#![allow(unsafe_code)]
//! A copy of a field in its own device memory.
//!
//! **Invariants**
//! 1. The copy is queued after the batch's own work, and the batch's slot is reused after the copy,
//!    because `use_on` has named the stream to the ring.
//! 2. The memory is freed after all work submitted to the device before the drop (`cuda::Memory`,
//!    invariant 1), so the streams that used it need not be known.

use std::fmt;

use super::CudaBatch;
use crate::cuda::{Event, Memory, Stream};
use crate::error::Result;

/// A copy of a field of a [`CudaBatch`] in its own device memory, made by [`CudaBatch::copy_on`].
/// It does not occupy the batch's slot. Dropping it frees the memory after the device's pending
/// work.
pub struct CudaCopy {
    memory: Memory,
    done: Event,
}

impl CudaBatch {
    /// Copies the field `name` on a stream of another library, given its handle. That stream waits
    /// for the batch. `None` if there is no such field. The batch may be dropped at once.
    ///
    /// # Safety
    /// Those of [`use_on`](CudaBatch::use_on).
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device does not have enough memory
    /// left. [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) while the stream is being
    /// captured. [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub unsafe fn copy_on(&self, name: &str, stream: usize) -> Result<Option<CudaCopy>> {
        let Some(tensor) = self.field(name) else { return Ok(None) };
        let from = &self.0.shared.memory;
        let bytes = tensor.len() * tensor.dtype().bytes();
        let memory = Memory::new(from.context(), bytes)?;
        // SAFETY: guaranteed by the caller.
        let on = unsafe { Stream::borrowed(from.context(), stream) }?;
        on.refuse_capture("copy the batch before the capture")?;
        let done = Event::new(from.context())?;
        // SAFETY: guaranteed by the caller.
        unsafe { self.use_on(stream) }?;
        // SAFETY: invariants 1 and 2; the field lies in the batch's slot.
        unsafe { on.copy(&memory, from, tensor.offset(), bytes) }?;
        done.record(&on)?;
        Ok(Some(CudaCopy { memory, done }))
    }
}

impl CudaCopy {
    /// The `CUdeviceptr`.
    pub fn device_ptr(&self) -> u64 {
        self.memory.at(0, self.memory.len())
    }

    /// Makes a stream of another library, given its handle, wait for the copy.
    ///
    /// # Safety
    /// The stream must belong to the primary context of the device.
    ///
    /// # Errors
    /// Those of [`CudaBatch::copy_on`].
    pub unsafe fn use_on(&self, stream: usize) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let on = unsafe { Stream::borrowed(self.memory.context(), stream) }?;
        on.refuse_capture("use the copy before the capture")?;
        on.wait(&self.done)
    }
}

impl fmt::Debug for CudaCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaCopy").field(&self.memory).finish()
    }
}
