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
//! The batch itself goes to burn, without a copy in host memory: burn's `Bytes` hold the loader's
//! slot. The slot goes back when burn drops the last of them.
//!
//! | back end | copies | the slot goes back |
//! |---|---|---|
//! | flex (CPU) | none: the tensor is the slot. A back end that writes to it copies it first | with the tensor |
//! | CUDA, page-locked batches ([`Loader::pinned`](warpfeed::Loader::pinned)) | one, across the bus | after the copy |
//! | CUDA, ordinary memory | one by the driver in host memory, one across the bus | after the copy |
//!
//! So on the CPU a tensor that you keep keeps a slot. While all slots are kept, workers have nothing
//! to fill, and the loader says so after [`Loader::timeout`](warpfeed::Loader::timeout).
//!
//! Only `HostBatch` is taken. CubeCL, below burn's GPU back ends, owns all device memory and
//! computes in a private stream, so it cannot take a `CudaBatch`.

mod data_loader;
mod share;

pub use data_loader::{BatchLoader, data_loader};
pub use share::{BurnBatch, ToBurn};

/// The code of README.md, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
