use cudarc::driver::{CudaView, DeviceRepr};

use super::gpu::Nvidia;
use crate::batch;
use crate::device::DeviceTensor;
use crate::error::{Error, Result};

impl<'a> DeviceTensor<'a, Nvidia> {
    /// Returns a cudarc view of the tensor, for kernel launches, copies and cudarc's library
    /// wrappers.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if `T` is not the tensor's dtype.
    pub fn view<T: DeviceElement>(&self) -> Result<CudaView<'a, T>> {
        if T::DTYPE != self.dtype() {
            let (requested, is) = (T::DTYPE.name(), self.dtype().name());
            return Err(Error::config(format!("cannot view this tensor as {requested}: its dtype is {is}")));
        }
        let shared = self.shared();
        let stream = shared.consumer.cudarc().expect("the loader was opened with the program's stream");
        Ok(shared.memory.view(stream, self.offset(), self.len()))
    }
}

/// A Rust type that the elements of a [`Tensor`](crate::device::Tensor) can have.
pub trait DeviceElement: batch::Element + DeviceRepr {}

impl<T: batch::Element + DeviceRepr> DeviceElement for T {}
