//! Copies of device batches as candle tensors, and the stream that candle uses.

use std::sync::Arc;

use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Device, Error, Result, Storage, Tensor};
use warpfeed::cuda::cudarc::driver::{CudaStream, DeviceSlice};
use warpfeed::device::{self, DeviceElement};
use warpfeed::{CudaBatch, Dtype};

use crate::convert::{Fields, unsupported_dtype};

/// `CU_STREAM_PER_THREAD` in `cuda.h`.
const PER_THREAD_STREAM: usize = 2;

/// Returns the stream that candle uses on `device`, to pass to
/// [`Loader::cuda`](warpfeed::Loader::cuda).
///
/// # Errors
/// If `device` is not a CUDA device, or uses the per-thread default stream, as a device from
/// `Device::new_cuda` does. The handle of that stream denotes a different stream on each thread, so
/// a batch that is dropped on a different thread would record its event on the wrong stream.
/// `Device::new_cuda_with_stream` creates a device with a separate stream.
pub fn stream(device: &Device) -> Result<Arc<CudaStream>> {
    let stream = device.as_cuda_device()?.cuda_stream();
    if stream.cu_stream() as usize == PER_THREAD_STREAM {
        let cause = "it uses the per-thread default stream; use Device::new_cuda_with_stream";
        return Err(Error::msg(format!("device {}: {cause}", stream.context().ordinal())));
    }
    Ok(stream)
}

impl Fields for CudaBatch {
    type View<'a> = device::Tensor<'a>;

    fn image_view(&self) -> device::Tensor<'_> {
        self.images()
    }

    fn label_view(&self) -> warpfeed::Result<device::Tensor<'_>> {
        self.labels()
    }

    fn field_view(&self, name: &str) -> Option<device::Tensor<'_>> {
        self.field(name)
    }

    fn count_view(&self, name: &str) -> Option<device::Tensor<'_>> {
        self.counts(name)
    }

    fn names(&self) -> Vec<&str> {
        self.fields().map(|field| field.name.as_str()).collect()
    }

    fn valid_bytes(&self) -> Vec<u8> {
        self.valid().map(u8::from).collect()
    }

    fn tensor(&self, name: &str, view: device::Tensor<'_>, device: &Device) -> Result<Tensor> {
        let cuda = match device {
            Device::Cuda(cuda) if cuda.cuda_stream().context().ordinal() == view.device() => cuda,
            _ => {
                let (actual, requested) = (view.device(), device.location());
                return Err(Error::msg(format!("{name}: the batch is on CUDA device {actual}, not on {requested:?}")));
            }
        };
        match view.dtype() {
            Dtype::U8 => copy::<u8>(&view, cuda),
            Dtype::F32 => copy::<f32>(&view, cuda),
            Dtype::F64 => copy::<f64>(&view, cuda),
            Dtype::F16 => copy::<half::f16>(&view, cuda),
            Dtype::Bf16 => copy::<half::bf16>(&view, cuda),
            Dtype::I16 => copy::<i16>(&view, cuda),
            Dtype::I32 => copy::<i32>(&view, cuda),
            Dtype::I64 => copy::<i64>(&view, cuda),
            other => Err(unsupported_dtype(name, other)),
        }
    }
}

/// Copies `field` on candle's stream. If the loader uses a different stream, candle's stream waits
/// for the batch, and the loader's stream waits for the copy. The batch may therefore be dropped
/// immediately.
fn copy<T: DeviceElement + CudaDType>(field: &device::Tensor<'_>, device: &CudaDevice) -> Result<Tensor> {
    let source = field.view::<T>().map_err(Error::wrap)?;
    let (loader_stream, candle_stream) = (source.stream().clone(), device.cuda_stream());
    let on_different_streams = loader_stream.cu_stream() != candle_stream.cu_stream();
    if on_different_streams {
        candle_stream.join(&loader_stream).w()?;
    }
    let memory = candle_stream.clone_dtod(&source).w()?;
    if on_different_streams {
        loader_stream.join(&candle_stream).w()?;
    }
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(memory, device.clone()));
    Ok(Tensor::from_storage(storage, field.shape().to_vec(), BackpropOp::none(), false))
}
