//! [tch](https://docs.rs/tch) tensors from the batches of [warpfeed](https://docs.rs/warpfeed).
//!
//! ```no_run
//! use warpfeed::{Augment, Dtype, Layout, Loader, Normalize};
//! use warpfeed_tch::ToTch;
//!
//! # fn main() -> warpfeed::Result<()> {
//! let mut batches = Loader::new("train.lmdb")
//!     .batch_size(256)
//!     .shuffle(42)
//!     .augment(Augment::train(224))
//!     .normalize(Normalize::IMAGENET)
//!     .dtype(Dtype::F32)
//!     .layout(Layout::Nchw)
//!     .host()?;
//! for batch in batches.epoch(0) {
//!     let (images, labels) = batch?.to_tch()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A tensor shares the memory of a buffer of the loader (a "slot"), without a copy. The loader
//! refills the slot after you drop the last tensor that shares it: the tensor itself, a
//! `shallow_clone`, a `view`, or a tensor saved for the backward pass.
//!
//! - While your tensors keep all slots in use, the loader cannot load the next batch, and fails
//!   after [`Loader::held_batches_timeout`](warpfeed::Loader::held_batches_timeout). To keep the
//!   data, copy it with `images.copy()` and drop the tensor.
//! - You may write to a tensor (`images.fill_(0.0)`), because the loader never reads a delivered
//!   slot.
//! - `images.to_device(Device::Cuda(0))` uploads the images. From page-locked memory
//!   ([`Loader::pinned`](warpfeed::Loader::pinned)), `to_device_` can upload them asynchronously,
//!   and the tensor may be dropped immediately.
//!
//! | batch | tensor | copies after decoding |
//! |---|---|---|
//! | `HostBatch` | on the CPU, shares the slot's memory | none |
//! | `HostBatch`, then `to_device` | on the device | one, across the bus, by libtorch; the CUDA driver first copies pageable memory |
//! | `CudaBatch` | on the batch's device, shares the slot's memory | one, across the bus, by the loader; none if the GPU decodes |
//!
//! # CUDA
//!
//! With the `cuda` feature, pass libtorch's current stream, [`stream`]`(device)`, to
//! [`Loader::cuda`](warpfeed::Loader::cuda).
#![cfg_attr(feature = "cuda", doc = "```no_run")]
#![cfg_attr(not(feature = "cuda"), doc = "```ignore")]
//! use warpfeed_tch::{ToTch, stream};
//!
//! # fn main() -> warpfeed::Result<()> {
//! let mut batches = warpfeed::Loader::new("train.lmdb").batch_size(256).cuda(&stream(0)?)?;
//! for batch in batches.epoch(0) {
//!     let (images, labels) = batch?.to_tch()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! If the loader was opened with a different stream, libtorch's stream waits for each batch. A
//! tensor may be dropped on any thread at any time. The loader reuses the tensor's memory only
//! after the device has finished all work that was submitted before the drop.
#![cfg_attr(
    not(feature = "cuda"),
    doc = "",
    doc = "[`stream`]: https://docs.rs/warpfeed-tch/latest/warpfeed_tch/fn.stream.html"
)]

#[cfg(feature = "cuda")]
mod cuda;
mod libtorch;
mod share;

#[cfg(feature = "cuda")]
pub use cuda::stream;
pub use share::{TchBatch, ToTch};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
