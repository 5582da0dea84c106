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
//! The loader reuses a fixed number of batch buffers, called slots. burn's `Bytes` refer directly
//! to a slot, so images are not copied in host memory, with two exceptions: the CPU backend
//! converts `u8` images to floats, and the CUDA driver copies pageable batches. The loader refills
//! the slot after the last reference to it is dropped.
//!
//! | backend | copies | slot released |
//! |---|---|---|
//! | flex (CPU), floating-point images | none: the tensor shares the slot's memory; writing to the tensor copies it first | when the tensor is dropped |
//! | flex (CPU), `u8` images | one, with the conversion to floats | after the conversion |
//! | CUDA, page-locked batches ([`Loader::pinned`](warpfeed::Loader::pinned)) | one, across the bus | after the copy |
//! | CUDA, pageable memory | one by the driver in host memory, one across the bus | after the copy |
//!
//! If your tensors keep all slots in use, the next batch fails after
//! [`Loader::held_batches_timeout`](warpfeed::Loader::held_batches_timeout).
//!
//! Only `HostBatch` is supported. burn's CubeCL backends cannot use a `CudaBatch`, because CubeCL
//! allocates all device memory itself and computes on its own stream.

mod data_loader;
mod share;

pub use data_loader::{BatchLoader, data_loader};
pub use share::{BurnBatch, ToBurn};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
