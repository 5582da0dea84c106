//! Host buffer to GPU: the prefetch ring.
//!
//! A batch crosses the bus as u8 pixels on a copy stream and is converted on a second stream. An
//! event hands it over: the consumer's stream waits for it, and the host never does. `README.md` says
//! what the tests without a GPU can and cannot show.
//!
//! 1. `spec`: the arrays on the host and on the device. It computes all of device memory in
//!    advance.
//! 2. `gpu`: the trait `Gpu`, through which the ring and its batches use a device.
//! 3. `ring`: the thread that copies ahead, and the order of waits.
//! 4. `handoff`: keeps page-locked host batches that return while a device may still read them;
//!    `locked`: their memory.
//! 5. `batch`: [`DeviceBatch`] in the consumer's hands, and its [`DeviceTensor`]s.
//! 6. `dlpack`: the same memory for other frameworks, without a copy; `copy`: a copy of a field in
//!    its own memory.
//! 7. `nvidia`: the CUDA driver, with its `Gpu`.
//!
//! The ring and its batches know only the trait. They can therefore be tested on a simulated device
//! (`tests::sim`), whose streams are threads with delays.

// Without a vendor's feature only the tests with the simulated device use the ring.
#![cfg_attr(not(feature = "_device"), allow(dead_code, unused_imports))]

mod batch;
mod copy;
mod dlpack;
mod gpu;
mod handoff;
mod locked;
#[cfg(feature = "cuda")]
#[doc(hidden)] // it is the public module `cuda`
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
