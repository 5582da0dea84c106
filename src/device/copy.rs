#![allow(unsafe_code)]
//! A field of a batch in device memory of its own.
//!
//! **Invariants**
//! 1. The copy is queued after the batch's own work, and the batch's slot is written again after the
//!    copy: `use_on` has told the ring of the stream.
//! 2. The memory is freed when the device has done all work that it has been given by then
//!    (`cuda::Memory`, invariant 1), so that no stream that used it need be known.

use std::fmt;

use super::CudaBatch;
use crate::cuda::{Event, Memory, Stream};
use crate::error::Result;

/// A field of a [`CudaBatch`] in device memory of its own. It keeps no batch; see
/// [`CudaBatch::copy_on`]. Dropping it frees the memory when the device has finished its work.
pub struct CudaCopy {
    memory: Memory,
    done: Event,
}

impl CudaBatch {
    /// Copies the field `name` on a stream of another library, by its handle: that stream waits for
    /// the batch. `None` if there is no such field. The batch may be dropped at once.
    ///
    /// # Safety
    /// As [`use_on`](CudaBatch::use_on).
    ///
    /// # Errors
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has too little left.
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) while the stream is being captured.
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    pub unsafe fn copy_on(&self, name: &str, stream: usize) -> Result<Option<CudaCopy>> {
        let Some(tensor) = self.field(name) else { return Ok(None) };
        let from = &self.0.shared.memory;
        let bytes = tensor.len() * tensor.dtype().bytes();
        let memory = Memory::new(from.context(), bytes)?;
        // SAFETY: the caller's promise.
        let on = unsafe { Stream::borrowed(from.context(), stream) }?;
        on.refuse_capture("copy the batch before the capture")?;
        let done = Event::new(from.context())?;
        // SAFETY: the caller's promise.
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

    /// Lets a stream of another library, by its handle, wait for the copy.
    ///
    /// # Safety
    /// The stream belongs to the primary context of the device.
    ///
    /// # Errors
    /// As [`CudaBatch::copy_on`].
    pub unsafe fn use_on(&self, stream: usize) -> Result<()> {
        // SAFETY: the caller's promise.
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
