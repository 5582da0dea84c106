//! Device batches, and the prefetch ring that uploads them.
//!
//! Batches are uploaded on one stream, and decoded and converted on other streams, so copies and
//! kernels of different batches overlap. The consumer's stream waits for an event. The host does
//! not wait for the conversion.
//! `README.md` describes the design, and explains what tests can show without a GPU.
//!
//! The ring and its batches depend only on the `Gpu` trait. Tests run them on a simulated device
//! (`tests::sim`) with one thread per stream and random delays.

// Without a vendor's feature, only tests use the ring.
#![cfg_attr(not(feature = "_device"), allow(dead_code, unused_imports))]

mod batch;
mod copy;
mod dlpack;
mod gpu;
mod handoff;
mod locked;
#[cfg(feature = "cuda")]
#[doc(hidden)] // public as the `cuda` module
pub mod nvidia;
mod ring;
mod spec;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::batch::{DlManagedTensorVersioned, DlTensor, DlpackTensor};
pub use batch::{DeviceBatch, DeviceTensor};
pub use copy::DeviceCopy;
pub use handoff::UploadStream;
#[cfg(feature = "cuda")]
pub use nvidia::DeviceElement;
pub use ring::DeviceStats;

/// A batch in the memory of an NVIDIA GPU.
#[cfg(feature = "cuda")]
pub type CudaBatch = DeviceBatch<nvidia::Nvidia>;
/// A field of a [`CudaBatch`].
#[cfg(feature = "cuda")]
pub type Tensor<'a> = DeviceTensor<'a, nvidia::Nvidia>;
/// A copy of a field of a [`CudaBatch`]; see [`CudaBatch::copy_on`].
#[cfg(feature = "cuda")]
pub type CudaCopy = DeviceCopy<nvidia::Nvidia>;

pub(crate) use gpu::{Decode, Gpu, Job};
pub(crate) use locked::page_locked;
#[cfg(test)]
pub(crate) use ring::Variant;
pub(crate) use ring::{CAPTURE, ConsumerBatch, DeviceCounters, FullSlot, HostFeed, Repair, Ring};
pub(crate) use spec::{SoftLabels, Spec, Target};
