//! Vendor-specific types: the device batch, its tensors, and streams.

#[cfg(feature = "cuda")]
use warpfeed::cuda::{borrowed_stream, cudarc::driver::CudaStream};
#[cfg(feature = "cuda")]
pub(crate) use warpfeed::{CudaBatch as DeviceBatch, device::Tensor as DeviceTensor};

#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
pub(crate) fn stream(ordinal: usize, stream: usize) -> warpfeed::Result<std::sync::Arc<CudaStream>> {
    // SAFETY: `warpfeed/_loader.py` and `warpfeed/_decoder.py` pass a PyTorch stream, which lives
    // as long as the process, or the legacy default stream.
    unsafe { borrowed_stream(ordinal, stream) }
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn stream(_: usize, _: usize) -> warpfeed::Result<std::convert::Infallible> {
    Err(warpfeed::Error::new(
        warpfeed::ErrorKind::Cuda,
        "this build of the package does not support CUDA; use device=\"cpu\"",
    ))
}
