#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use super::batch::DeviceBatch;
use super::gpu::Gpu;
use crate::batch::DlpackTensor;

impl<G: Gpu> DeviceBatch<G> {
    /// Exports the field `name`, such as `image` or `label`, or returns `None` if there is no such
    /// field. The memory is reused only after the batch and all exports of its fields have been
    /// dropped.
    ///
    /// The tensor is ready for work that is queued in the loader's stream after this call. A
    /// receiver on a different stream must first make its stream wait for the loader's stream. In
    /// Python, `__dlpack__(stream=...)` does this for the receiver.
    ///
    /// The receiver may release the tensor while its work is still queued: the memory is reused
    /// once all work that was submitted to the device before the release is done. Drivers older
    /// than CUDA 12.5 cannot record an event for the work of all streams. With such a driver, the
    /// receiver must make the loader's stream wait for its own stream before it releases the
    /// tensor.
    pub fn dlpack(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        let tensor = self.field(name)?;
        self.0.export();
        let (data, device) = (tensor.device_ptr() as *mut c_void, G::dlpack_device(tensor.device()));
        // SAFETY: the batch keeps the memory alive. Because of `export`, the ring reuses the memory
        // only after all work that was submitted to the device before the drop has finished. With a
        // driver older than CUDA 12.5, it waits only for the loader's stream, which the receiver
        // must order after its own work (see above).
        Some(unsafe { DlpackTensor::new(data, device, tensor.dtype(), tensor.shape(), self.clone()) })
    }
}
