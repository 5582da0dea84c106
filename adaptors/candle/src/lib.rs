//! Copies batches of [warpfeed](https://docs.rs/warpfeed) into
//! [candle](https://docs.rs/candle-core) tensors.
//!
//! ```
//! use candle_core::Device;
//! use warpfeed::{Augment, Dtype, Layout, Loader, Normalize};
//! use warpfeed_candle::ToCandle;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
//! let device = Device::Cpu;
//! let mut batches = Loader::new("datasets/mini")
//!     .batch_size(16)
//!     .shuffle(42)
//!     .augment(Augment::train(64))
//!     .normalize(Normalize::IMAGENET)
//!     .dtype(Dtype::F32)
//!     .layout(Layout::Nchw)
//!     .host()?;
//! for batch in batches.epoch(0) {
//!     let (images, labels) = batch?.to_candle(&device)?;
//!     assert_eq!(images.dims4()?, (labels.dim(0)?, 3, 64, 64));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A candle tensor owns its memory and cannot refer to the loader's memory, so batches are copied.
//! You may keep the tensors. When you drop the batch, its memory returns to the loader.
//!
//! | batch | device of the tensor | copies |
//! |---|---|---|
//! | `HostBatch` | `Device::Cpu` | one, in host memory |
//! | `HostBatch` | a CUDA or Metal device | one, across the bus; asynchronous if the batch is page-locked ([`Loader::pinned`](warpfeed::Loader::pinned)); the CUDA driver first copies a pageable batch to a buffer in host memory |
//! | `CudaBatch` | the batch's device | one, on the device, on the tensor's stream |
//!
//! # CUDA
//!
//! The `cuda` feature needs `nvcc` to build candle's kernels. If you pass [`stream`]`(&device)?` to
//! `Loader::cuda`, the loader and candle share a stream, and their work needs no CUDA events for
//! synchronization.
#![cfg_attr(feature = "cuda", doc = "```no_run")]
#![cfg_attr(not(feature = "cuda"), doc = "```ignore")]
//! use candle_core::Device;
//! use warpfeed_candle::ToCandle;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // `Device::new_cuda` uses the per-thread stream, which `stream` rejects.
//! let device = Device::new_cuda_with_stream(0)?;
//! let stream = warpfeed_candle::stream(&device)?;
//! let mut batches = warpfeed::Loader::new("train.lmdb").batch_size(256).cuda(&stream)?;
//! for batch in batches.epoch(0) {
//!     let (images, labels) = batch?.to_candle(&device)?;
//! }
//! # Ok(())
//! # }
//! ```
#![cfg_attr(
    not(feature = "cuda"),
    doc = "\n[`stream`]: https://docs.rs/warpfeed-candle/latest/warpfeed_candle/fn.stream.html"
)]

mod convert;
#[cfg(feature = "cuda")]
mod cuda;
mod host;

pub use convert::ToCandle;
#[cfg(feature = "cuda")]
pub use cuda::stream;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
