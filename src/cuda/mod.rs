//! The CUDA driver. Only this module uses `cudarc`.
//!
//! The CUDA toolkit is not needed. The driver is loaded at run time, and the kernels are PTX,
//! committed next to their source. Without a driver every entry point returns
//! [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) with an explanation, and never panics.
//!
//! 1. `driver`: finds the driver, and translates its error codes. `ending`: ends its calls when the
//!    process exits.
//! 2. `capture`: [`stream`] creates a stream, [`borrowed_stream`] wraps one of another library;
//!    detects captures of CUDA graphs.
//! 3. `event`: marks of work. `later`: frees memory without making the program wait.
//! 4. `pinned`: page-locked host memory. `memory`: device memory, one block per loader.
//! 5. `stream`: streams, and copies in them.
//! 6. `devices`: marks all work of a program at once.
//! 7. `ops`: the record of how the device transforms one sample.
//! 8. `decode_ops`: the record of how the device decodes one sample.
//! 9. `kernel`: one entry point of the committed PTX, loaded and queued.
//! 10. `convert`: the fused kernel, from u8 pixels to the input of a model; labels as rows of
//!     shares; effects on pixels.
//! 11. `decode`: the kernels that decode JPEGs.
//! 12. `headers`: tests that the C declarations of the records equal the Rust ones.

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
#[allow(unsafe_code)] // it registers a handler for the exit of the process
mod ending;
#[cfg(feature = "cuda")]
mod event;
#[cfg(test)]
mod headers;
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

/// Result of marking all work of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
#[doc(hidden)]
pub enum Recorded {
    /// The work is marked.
    Yes,
    /// A stream is being captured.
    NotNow,
    /// The driver is older than CUDA 12.5 (driver 555).
    Never,
}

/// Result of marking all work of a program.
#[derive(Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) enum Marked<M> {
    /// The work is marked.
    At(M),
    /// Not now: a stream is being captured.
    Capturing,
    /// The driver cannot mark it without waiting for it.
    Unable,
}

#[cfg(feature = "cuda")]
pub(crate) use devices::{Devices, Mark};
#[cfg(feature = "cuda")]
pub use {capture::borrowed_stream, capture::stream, cudarc, driver::available};

/// Internals of loaders on a device, which the crate's own tests, benchmarks and program also use.
/// The version number does not cover them.
#[doc(hidden)]
pub mod internal {
    pub use super::decode_ops::DecodeOps;
    pub use super::ops::SampleOps;
    #[cfg(feature = "cuda")]
    pub use super::{
        convert::{Convert, Launch, Retouch, SoftLabels},
        decode::{Decode, DecodeAt, Stage},
        driver::Context,
        ending::calls_in_progress,
        event::Event,
        memory::Memory,
        pinned::{AfterFork, Pinned},
        stream::Stream,
    };
}

pub(crate) use decode_ops::{DecodeOps, Encoded};
#[cfg(feature = "cuda")]
pub(crate) use driver::Entered;
#[cfg(feature = "cuda")]
pub(crate) use internal::{
    AfterFork, Context, Convert, Decode, DecodeAt, Event, Launch, Memory, Pinned, Retouch, SoftLabels, Stream,
};
pub(crate) use ops::SampleOps;
