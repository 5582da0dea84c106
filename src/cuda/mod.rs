//! The CUDA driver. Only this module names `cudarc`.
//!
//! The toolkit is not needed. The driver is looked up at run time, and the kernels are PTX
//! committed beside their source. Without a driver every entry point returns
//! [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) with a sentence that says so, and never panics.
//!
//! 1. `driver`: finds the driver, and puts its error codes into words.
//! 2. `capture`: [`stream`] makes a stream, [`borrowed_stream`] takes another library's; captures of
//!    CUDA graphs are detected.
//! 3. `event`: marks of work. `later`: frees memory without making the program wait.
//! 4. `pinned`: page-locked host memory. `memory`: device memory, one block a loader.
//! 5. `stream`: streams, and the copies in them.
//! 6. `devices`: all work of a program, marked at once.
//! 7. `ops`: the record of what the fused kernel does to one sample.
//! 8. `decode_ops`: the record of what the decode kernels do to one sample.
//! 9. `kernel`: one entry point of the committed PTX, loaded and queued.
//! 10. `convert`: the fused kernel, from u8 pixels to what a model takes; labels as rows of shares.
//! 11. `decode`: the kernels that decode JPEGs.

#[cfg(feature = "cuda")]
mod capture;
#[cfg(feature = "cuda")]
mod convert;
#[cfg(feature = "cuda")]
mod decode;
mod decode_ops;
#[cfg(feature = "cuda")]
mod devices;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod event;
#[cfg(feature = "cuda")]
mod kernel;
#[cfg(feature = "cuda")]
mod later;
#[cfg(feature = "cuda")]
mod memory;
mod ops;
#[cfg(feature = "cuda")]
mod pinned;
#[cfg(feature = "cuda")]
mod stream;

/// Whether all work of a program could be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
#[doc(hidden)]
pub enum Recorded {
    /// It is.
    Yes,
    /// A stream is being captured.
    NotNow,
    /// The driver is older than CUDA 12.5 (driver 555).
    Never,
}

/// What came of marking all work of a program.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) enum Marked<M> {
    /// It is marked.
    At(M),
    /// Not now: a stream is being captured.
    Capturing,
    /// Not without waiting for it.
    Unable,
}

#[cfg(feature = "cuda")]
pub(crate) use devices::{Devices, Mark};
#[cfg(feature = "cuda")]
pub use {capture::borrowed_stream, capture::stream, cudarc, driver::available};

/// The parts of loaders on a device. The crate's own tests, benchmarks and program use them too.
/// The version number does not cover them.
#[doc(hidden)]
pub mod internal {
    pub use super::decode_ops::DecodeOps;
    pub use super::ops::SampleOps;
    #[cfg(feature = "cuda")]
    pub use super::{
        convert::{Convert, Launch, SoftLabels},
        decode::{Decode, DecodeAt, Stage},
        driver::Context,
        event::Event,
        memory::Memory,
        pinned::Pinned,
        stream::Stream,
    };
}

pub(crate) use decode_ops::{DecodeOps, Encoded};
#[cfg(feature = "cuda")]
pub(crate) use driver::Entered;
#[cfg(feature = "cuda")]
pub(crate) use internal::{Context, Convert, Decode, DecodeAt, Event, Launch, Memory, Pinned, SoftLabels, Stream};
pub(crate) use ops::SampleOps;
