//! Host buffer to GPU: the prefetch ring.
//!
//! A batch crosses the bus as u8 pixels on a copy stream and is converted on a second stream. An
//! event hands it over: the consumer's stream waits for it, and the host never does. `README.md` in
//! `cuda` says what the tests without a GPU can and cannot show.
//!
//! 1. `spec`: the arrays on the host and on the device. It computes all of device memory in
//!    advance.
//! 2. `gpu`: the trait `Gpu`, through which the ring uses a device.
//! 3. `ring`: the thread that copies ahead, and the order of waits.
//! 4. `handoff`: keeps page-locked host batches that return while a device may still read them.
//! 5. `nvidia`: the ring's `Gpu`, on top of [`cuda`](crate::cuda).
//! 6. `batch`: [`CudaBatch`] in the consumer's hands, and its [`Tensor`]s.
//! 7. `dlpack`: the same memory for other frameworks, without a copy; `copy`: a copy of a field in
//!    its own memory.
//!
//! The ring knows only the trait. Its order of waits can therefore be tested on a simulated device
//! (`sim`), whose streams are threads with delays.

// Without the feature only the tests with the simulated device use the ring.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, unused_imports))]

#[cfg(feature = "cuda")]
mod batch;
#[cfg(feature = "cuda")]
mod copy;
#[cfg(feature = "cuda")]
mod dlpack;
mod gpu;
mod handoff;
#[cfg(feature = "cuda")]
mod nvidia;
mod ring;
#[cfg(test)]
pub(crate) mod sim;
mod spec;
#[cfg(test)]
pub(crate) mod zoo;

#[cfg(feature = "cuda")]
pub use crate::batch::{DlManagedTensorVersioned, DlTensor, DlpackTensor};
#[cfg(feature = "cuda")]
pub use batch::{CudaBatch, Element, Tensor};
#[cfg(feature = "cuda")]
pub use copy::CudaCopy;
pub(crate) use gpu::{Decode, Gpu, Job};
pub(crate) use handoff::Handoff;
#[cfg(feature = "cuda")]
pub(crate) use nvidia::Nvidia;
pub use ring::DeviceStats;
#[cfg(feature = "cuda")]
pub(crate) use ring::Form;
pub(crate) use ring::{CAPTURE, FullSlot, Gauge, Held, HostFeed, Repair, Ring};
pub(crate) use spec::{Shares, Spec, Target};
