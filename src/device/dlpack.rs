#![allow(unsafe_code)]
//! Exports batches on a device through DLPack; see [`batch::dlpack`](crate::batch::DlpackTensor).

use std::ffi::c_void;
use std::sync::Arc;

use super::batch::DeviceBatch;
use super::gpu::Gpu;
use crate::batch::DlpackTensor;

impl<G: Gpu> DeviceBatch<G> {
    /// Exports the field `name` (`image`, `label`, ...). Several fields of one batch may be
    /// exported. The batch's memory is reused after the batch and all of its exports are gone.
    ///
    /// The tensor is ready once the loader's stream reaches this point. A consumer on a different
    /// stream must first make its stream wait for the loader's, as DLPack's
    /// `__dlpack__(stream=...)` does. The consumer may release the tensor while its own work is
    /// still queued. The memory is reused once all work submitted to the device before the release,
    /// on any stream, is done. Drivers older than CUDA 12.5 cannot record an event for this work.
    /// With such a driver, the consumer must make the loader's stream wait for its own stream
    /// before it releases the tensor.
    pub fn dlpack(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        let tensor = self.field(name)?;
        self.0.export();
        let (data, device) = (tensor.device_ptr() as *mut c_void, G::PLACE(tensor.device()));
        // SAFETY: a batch keeps its memory on the device, and the ring reuses it only after the
        // work that `export` makes it wait for.
        Some(unsafe { DlpackTensor::new(data, device, tensor.dtype(), tensor.shape(), self.clone()) })
    }
}
