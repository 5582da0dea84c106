//! The CUDA driver. Only this module uses `cudarc`.
//!
//! The CUDA toolkit is not needed. The driver is loaded at run time, and the kernels are PTX,
//! committed next to their source. Without a driver every entry point returns
//! [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) with an explanation, and never panics.
//!
//! The types of [`cudarc`] in the interface of this crate are the program's own: the stream of
//! [`Loader::cuda`](crate::Loader::cuda), [`DecoderBuilder::cuda`](crate::DecoderBuilder::cuda) and
//! [`HostBatch::release_on`](crate::HostBatch::release_on), and the view of
//! [`Tensor::view`](crate::device::Tensor::view). Batches in host memory name none of them.
//!
//! 1. `driver`: finds the driver, and translates its error codes. `exit`: ends its calls when the
//!    process exits.
//! 2. `capture`: [`stream`] creates a stream, [`borrowed_stream`] wraps one of another library;
//!    detects captures of CUDA graphs.
//! 3. `event`: marks of work. `deferred_free`: frees memory without making the program wait.
//! 4. `pinned`: page-locked host memory. `memory`: device memory, one block per loader.
//! 5. `stream`: streams, and copies in them.
//! 6. `devices`: marks all work of a program at once. `host`: page-locked batches on the host.
//! 7. `kernel`: one entry point of the committed PTX, loaded and queued.
//! 8. `convert`: the fused kernel, from u8 pixels to the input of a model; labels as rows of
//!    shares; effects on pixels.
//! 9. `decode`: the kernels that decode JPEGs.
//! 10. `gpu`: the ring's device, on top of these; `view`: cudarc's views of batches.
//! 11. `headers`: tests that the C declarations of the records equal the Rust ones.

mod capture;
mod convert;
mod decode;
#[cfg(test)]
#[allow(unsafe_code)] // it launches kernels
mod decode_tests;
mod deferred_free;
mod devices;
mod driver;
mod event;
#[allow(unsafe_code)] // it registers a handler for the exit of the process
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
pub(crate) use host::{keeper, page_locked};
pub(crate) use internal::Stream;
pub use view::DeviceElement;
pub use {capture::borrowed_stream, capture::stream, cudarc, driver::available};

/// Internals of loaders on a device, which the crate's own tests, benchmarks and program also use.
/// The version number does not cover them.
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
