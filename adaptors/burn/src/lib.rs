//! [burn](https://docs.rs/burn) tensors from the batches of
//! [warpfeed](https://docs.rs/warpfeed), and a `DataLoader` for burn's `Learner`.
//!
//! ```
//! use burn_core::tensor::Device;
//! use warpfeed::{Augment, Dtype, Layout, Loader, Normalize};
//! use warpfeed_burn::ToBurn;
//!
//! # fn main() -> warpfeed::Result<()> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
//! let device = Device::default();
//! let mut batches = Loader::new("datasets/mini")
//!     .batch_size(16)
//!     .shuffle(42)
//!     .augment(Augment::train(64))
//!     .normalize(Normalize::IMAGENET)
//!     .dtype(Dtype::F32)
//!     .layout(Layout::Nchw)
//!     .host()?;
//! for batch in batches.epoch(0) {
//!     let (images, labels) = batch?.to_burn(&device)?;
//!     assert_eq!(images.dims(), [labels.dims()[0], 3, 64, 64]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Batches are passed to burn without a copy in host memory: burn's `Bytes` hold the loader's slot.
//! The slot returns to the loader when burn drops the last of them.
//!
//! | back end | copies | the slot returns |
//! |---|---|---|
//! | flex (CPU) | none: the tensor is the slot. A back end that writes to it copies it first | with the tensor |
//! | CUDA, page-locked batches ([`Loader::pinned`](warpfeed::Loader::pinned)) | one, across the bus | after the copy |
//! | CUDA, pageable memory | one by the driver in host memory, one across the bus | after the copy |
//!
//! On the CPU every tensor that you keep therefore occupies a slot. While all slots are occupied,
//! workers have none to fill, and the loader reports that after
//! [`Loader::timeout`](warpfeed::Loader::timeout).
//!
//! Only `HostBatch` is supported. CubeCL, on which burn's GPU back ends are built, owns all device
//! memory and computes on a private stream, so it cannot use a `CudaBatch`.

mod data_loader;
mod share;

pub use data_loader::{BatchLoader, data_loader};
pub use share::{BurnBatch, ToBurn};

/// The code of README.md, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
