//! Device batches on NVIDIA GPUs. Only this module uses `cudarc`.
//!
//! The CUDA toolkit is not needed, because the driver is loaded at run time, and the kernels are
//! committed as PTX, next to their source. Without a driver, functions that need one return an
//! [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) error, and do not panic.
//!
//! The public interface uses types of [`cudarc`] only where they help the program: the streams of
//! [`stream`], [`borrowed_stream`], [`Loader::cuda`](crate::Loader::cuda),
//! [`DecoderBuilder::cuda`](crate::DecoderBuilder::cuda) and
//! [`HostBatch::release_on`](crate::HostBatch::release_on), and the view of
//! [`Tensor::view`](crate::device::Tensor::view).

mod capture;
mod convert;
mod decode;
#[cfg(test)]
#[allow(unsafe_code)] // launches kernels
mod decode_tests;
mod deferred_free;
mod devices;
mod driver;
mod event;
#[allow(unsafe_code)] // registers a handler for process exit
mod exit;
mod gpu;
#[cfg(test)]
mod headers;
mod host;
mod kernel;
mod memory;
mod pinned;
mod stream;
mod view;

pub(crate) use cudarc::driver::CudaStream;
pub(crate) use gpu::Nvidia;
pub(crate) use host::{make_reclaimer, page_locked};
pub(crate) use internal::Stream;
pub use view::DeviceElement;
pub use {capture::borrowed_stream, capture::stream, cudarc, driver::available};

/// Internals of device loaders for the project's own tests, benchmarks and command-line tool.
/// Semantic versioning does not cover them. If a driver call fails, functions that return a
/// `Result` return an [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) error, except that a failed
/// allocation of device memory is an [`ErrorKind::Memory`](crate::ErrorKind::Memory) error.
#[doc(hidden)]
pub mod internal {
    pub use super::{
        convert::{Convert, Launch, Retouch, SoftLabels},
        decode::{Decode, DecodeAt, Stage},
        driver::Context,
        event::Event,
        exit::calls_in_progress,
        memory::DeviceBuffer,
        pinned::{AfterFork, Pinned},
        stream::Stream,
    };
    pub use crate::batch::records::{DecodeOps, SampleOps};
}
