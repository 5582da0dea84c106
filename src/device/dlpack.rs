#![allow(unsafe_code)]
//! DLPack for batches on a device; see [`batch::dlpack`](crate::batch::DlpackTensor).

use std::ffi::c_void;
use std::sync::Arc;

use super::batch::DeviceBatch;
use super::gpu::Gpu;
use crate::batch::DlpackTensor;

impl<G: Gpu> DeviceBatch<G> {
    /// Exports the field `name` (`image`, `label`, ...). You may export several fields of one
    /// batch. The batch's memory is reused after the batch and all of its exports are gone.
    ///
    /// The tensor is ordered by the loader's stream. A consumer on another stream must first make
    /// its stream wait for the loader's, as DLPack's `__dlpack__(stream=...)` does. It may release
    /// the tensor while its work is queued. The memory is reused after all work submitted to the
    /// device before the release, on any stream. Drivers older than CUDA 12.5 cannot mark this
    /// work; there the consumer must join the loader's stream before it releases the tensor.
    pub fn dlpack(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        let tensor = self.field(name)?;
        self.0.export();
        let (data, device) = (tensor.device_ptr() as *mut c_void, G::PLACE(tensor.device()));
        // SAFETY: a batch keeps its memory on the device, and the ring reuses it only after the
        // work that `export` makes it wait for.
        Some(unsafe { DlpackTensor::new(data, device, tensor.dtype(), tensor.shape(), self.clone()) })
    }
}
