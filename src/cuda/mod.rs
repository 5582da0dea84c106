//! The CUDA driver, and the only place that names `cudarc`.
//!
//! Nothing here needs a toolkit: the driver is looked up at run time, and the kernels are PTX committed beside their source. Without a
//! driver every entry point returns [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) with a sentence that says so; nothing panics.
//!
//! 1. `driver`: is there a driver; its error codes in words; [`stream`] to begin with.
//! 2. `pinned`: page-locked host memory, [`Pinned`].
//! 3. `memory`: device memory, one [`Memory`] a loader.
//! 4. `stream`: [`Stream`] and [`Event`], and the copies between them.
//! 5. `convert`: the fused kernel, from u8 pixels to what a model takes, [`Convert`].
//! 6. [`occupancy`]: how many warps a multiprocessor holds; needs no GPU.

pub mod occupancy;

#[cfg(feature = "cuda")]
mod convert;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
mod pinned;
#[cfg(feature = "cuda")]
mod stream;

#[cfg(feature = "cuda")]
pub use {
    convert::{Convert, SoftLabels},
    cudarc,
    driver::{Context, available, stream},
    memory::Memory,
    pinned::{PinMode, Pinned},
    stream::{Event, Stream},
};
