//! The prefetch ring, which moves batches from host memory to a GPU.
//!
//! A batch crosses the bus as u8 pixels on a copy stream and is converted on a second stream. An
//! event then hands the batch over: the consumer's stream waits for the event, but the host never
//! does. `README.md` explains the design, and what tests without a GPU can and cannot show.
//!
//! 1. `spec`: the arrays on the host and on the device, and the layout of device memory, which is
//!    computed in advance.
//! 2. `gpu`: the trait `Gpu`, through which the ring and its batches use a device.
//! 3. `ring`: the thread that copies batches ahead of the consumer, and the order of waits.
//! 4. `handoff`: holds page-locked host batches that are returned while a device may still read
//!    them; `locked`: allocates their memory.
//! 5. `batch`: [`DeviceBatch`], which the consumer holds, and its [`DeviceTensor`]s.
//! 6. `dlpack`: exports the same memory to other frameworks; `copy`: copies a field into separate
//!    memory.
//! 7. `nvidia`: implements `Gpu` with the CUDA driver.
//!
//! The ring and its batches depend only on the trait `Gpu`. They can therefore be tested on a
//! simulated device (`tests::sim`) with one thread per stream and random delays.

// Without a vendor's feature, only tests use the ring, on the simulated device.
#![cfg_attr(not(feature = "_device"), allow(dead_code, unused_imports))]

mod batch;
mod copy;
mod dlpack;
mod gpu;
mod handoff;
mod locked;
#[cfg(feature = "cuda")]
#[doc(hidden)] // public as the module `cuda`
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
/// A copy of a field of a [`CudaBatch`], made by [`CudaBatch::copy_on`].
#[cfg(feature = "cuda")]
pub type CudaCopy = DeviceCopy<nvidia::Nvidia>;

pub(crate) use gpu::{Decode, Gpu, Job};
pub(crate) use locked::page_locked;
#[cfg(test)]
pub(crate) use ring::Form;
pub(crate) use ring::{CAPTURE, FullSlot, Gauge, Held, HostFeed, Repair, Ring};
pub(crate) use spec::{Shares, Spec, Target};
