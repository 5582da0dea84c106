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
//! Batches are not copied in host memory, because burn's `Bytes` refer directly to the loader's
//! slot. The slot returns to the loader when burn drops the last reference.
//!
//! | backend | copies | the slot is released |
//! |---|---|---|
//! | flex (CPU) | none: the tensor shares the slot's memory; writing to the tensor copies it first | when the tensor is dropped |
//! | CUDA, page-locked batches ([`Loader::pinned`](warpfeed::Loader::pinned)) | one, across the bus | after the copy |
//! | CUDA, pageable memory | one by the driver in host memory, one across the bus | after the copy |
//!
//! Therefore every tensor that you keep on the CPU occupies a slot. While all slots are occupied,
//! workers have no slot to fill, and the loader reports this after
//! [`Loader::timeout`](warpfeed::Loader::timeout).
//!
//! Only `HostBatch` is supported. burn's GPU backends are built on CubeCL, which owns all device
//! memory and computes on a private stream. Therefore they cannot use a `CudaBatch`.

mod data_loader;
mod share;

pub use data_loader::{BatchLoader, data_loader};
pub use share::{BurnBatch, ToBurn};

/// The code of README.md, as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
