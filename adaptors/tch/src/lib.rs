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
//! A tensor *is* the loader's memory, without a copy. It holds the slot of its batch, and so do all
//! tensors that share its storage (`shallow_clone`, `view`, `narrow`, tensors that a graph saved
//! for the backward pass). The slot is refilled after the last of them has been dropped.
//!
//! - Every tensor that you keep occupies a slot. While all slots are occupied, workers have none to
//!   fill, and the loader reports that after [`Loader::timeout`](warpfeed::Loader::timeout).
//!   `images.copy()` is an owned copy: keep that instead.
//! - You may write to a tensor (`images.fill_(0.0)`), because its memory is refilled for every
//!   batch.
//! - `images.to_device(Device::Cuda(0))` uploads, in one copy. From page-locked memory
//!   ([`Loader::pinned`](warpfeed::Loader::pinned)) it may be asynchronous, and the batch may be
//!   dropped at once.
//!
//! | batch | tensor | copies after decoding |
//! |---|---|---|
//! | `HostBatch` | on the CPU, the slot itself | none |
//! | `HostBatch`, then `to_device` | on the device | one, across the bus, by libtorch |
//! | `CudaBatch` | on its device, the slot itself | one, across the bus, by the loader |
//!
//! # CUDA
//!
//! With the feature `cuda`, open the loader with [`stream`], which libtorch uses.
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
//! A loader with another stream is also correct: libtorch's stream then waits for each batch.
//! Whenever a tensor is dropped, on whichever thread or stream, its memory is written again only
//! after all work submitted to the device before the drop.
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

/// The code of README.md, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
