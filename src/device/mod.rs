//! Host buffer to GPU: the prefetch ring.
//!
//! A batch crosses the bus as u8 pixels on a copy stream and is converted on a second stream. An
//! event hands it over: the consumer's stream waits for it, the host never does. `README.md` beside
//! `cuda` says what the tests without a GPU can and cannot show.
//!
//! 1. `spec`: what crosses and what arrives. It computes every byte of device memory in advance.
//! 2. `ring`: the thread that copies ahead, and the order of waits.
//! 3. `handoff`: page-locked host batches on their way back, which a device may still read.
//! 4. `batch`: [`CudaBatch`] in the consumer's hands, and its [`Tensor`]s.
//! 5. `dlpack`: the same memory for other frameworks, without a copy.
//! 6. `nvidia`: the ring's `Gpu`, by way of [`cuda`](crate::cuda).
//!
//! The ring uses the trait `Gpu`. So its order of waits is tested with a simulated device (`sim`),
//! whose streams are threads with delays.

// Without the feature only the tests with the simulated device use the ring.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, unused_imports))]

#[cfg(feature = "cuda")]
mod batch;
#[cfg(feature = "cuda")]
mod dlpack;
mod handoff;
#[cfg(feature = "cuda")]
mod nvidia;
mod ring;
#[cfg(test)]
mod sim;
mod spec;

pub(crate) use crate::cuda::Recorded;
use crate::error::Result;

#[cfg(feature = "cuda")]
pub use batch::{CudaBatch, Element, Tensor};
#[cfg(feature = "cuda")]
pub use dlpack::{DlManagedTensorVersioned, DlTensor, DlpackTensor};
pub(crate) use handoff::Handoff;
#[cfg(feature = "cuda")]
pub(crate) use nvidia::Nvidia;
pub use ring::DeviceStats;
pub(crate) use ring::{CAPTURE, FullSlot, Gauge, Held, Ring};
pub(crate) use spec::{Shares, Spec, Target};

/// What the ring needs from an accelerator: streams of work that run beside the host, and events
/// that order them.
///
/// All calls return at once, except [`memory`](Gpu::memory), [`kernels`](Gpu::kernels) and
/// [`synchronize`](Gpu::synchronize).
#[allow(unsafe_code)] // `upload` has a contract, which `ring` keeps
pub(crate) trait Gpu: Send + Sync + 'static {
    type Stream: Send + Sync;
    type Event: Send + Sync;
    type Memory: Send + Sync;
    type Kernels: Send + Sync;
    /// While this value lives, calls of the same thread cost less.
    type Stay;
    /// What the consumer receives.
    type Batch: From<Held<Self>>
    where
        Self: Sized;

    fn stay(&self) -> Result<Self::Stay>;
    /// One block of device memory.
    fn memory(&self, bytes: usize) -> Result<Self::Memory>;
    fn stream(&self) -> Result<Self::Stream>;
    fn event(&self) -> Result<Self::Event>;
    /// An event that takes the device's time when it is passed.
    fn timed_event(&self) -> Result<Self::Event>;
    /// Milliseconds from one passed event to another, both with timing.
    fn elapsed_ms(&self, begin: &Self::Event, end: &Self::Event) -> Result<f32>;
    /// Prepares what [`compute`](Gpu::compute) needs for `spec`.
    fn kernels(&self, spec: &Spec) -> Result<Self::Kernels>;

    /// Marks the work queued in `stream` so far.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;
    /// Lets later work in `stream` wait for the current mark. An event that was never recorded
    /// causes no wait.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<()>;
    fn is_done(&self, event: &Self::Event) -> Result<bool>;
    /// Marks the work of all streams of the program, including the ring's.
    fn record_all(&self, event: &Self::Event) -> Result<Recorded>;
    /// Whether `stream` is being captured, so that new work goes into a graph.
    fn is_capturing(&self, stream: &Self::Stream) -> Result<bool>;
    /// Blocks the host until all work in `stream` is done. Only for shutting down.
    fn synchronize(&self, stream: &Self::Stream) -> Result<()>;

    /// Queues a copy of `from` to `offset`.
    ///
    /// # Safety
    /// `from` stays allocated and unchanged until an event recorded in `stream` after this call is
    /// done.
    unsafe fn upload(&self, stream: &Self::Stream, memory: &Self::Memory, offset: usize, from: &[u8]) -> Result<()>;
    /// Queues the making of one array of a batch.
    fn compute(&self, stream: &Self::Stream, memory: &Self::Memory, kernels: &Self::Kernels, job: Job) -> Result<()>;
}

/// Offsets in device memory for making one array of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// Number of the array in the spec.
    pub(crate) array: usize,
    /// What it is made of: u8 pictures, (N, H, W, 3), or labels.
    pub(crate) from: usize,
    /// Where it lies.
    pub(crate) to: usize,
    /// One record a sample.
    pub(crate) records: Option<usize>,
    /// Number of samples.
    pub(crate) count: usize,
}
