//! The device as the ring sees it.

use super::spec::Spec;
use crate::batch::{DlDevice, Largest, SlotMemory};
use crate::error::{Error, ErrorKind, Result};

/// An accelerator for the ring and its batches: streams of work that run concurrently with the
/// host, and events that order them. Clones refer to the same device.
///
/// All calls return at once, except [`memory`](Gpu::memory), [`slot`](Gpu::slot),
/// [`kernels`](Gpu::kernels), [`synchronize`](Gpu::synchronize) and [`download`](Gpu::download).
#[allow(unsafe_code)] // `upload` has a contract, which `ring` keeps
pub trait Gpu: Clone + Send + Sync + 'static {
    type Stream: Send + Sync + PartialEq;
    type Event: Send + Sync;
    type Buffer: Send + Sync;
    type Kernels: Send + Sync;
    /// Host memory for the fault flags of decoded images.
    type Faults: Send;
    /// Makes calls of the same thread cheaper while it lives. It does not hold up the exit.
    type Stay;

    /// The place of its memory for other frameworks, given the device's number.
    const PLACE: fn(usize) -> DlDevice;
    /// The device's number.
    fn ordinal(&self) -> usize;

    fn stay(&self) -> Result<Self::Stay>;
    /// Allocates one block of device memory. Dropping it frees it after all work submitted before.
    fn memory(&self, bytes: usize) -> Result<Self::Buffer>;
    /// Address of `bytes` bytes at `offset`.
    fn address(&self, memory: &Self::Buffer, offset: usize, bytes: usize) -> u64;
    /// Allocates host memory for a slot, from which uploads do not wait.
    fn slot(&self, bytes: usize) -> Result<SlotMemory>;
    fn stream(&self) -> Result<Self::Stream>;
    /// Wraps a stream of another library, given its handle.
    ///
    /// # Safety
    /// The stream belongs to this device, and outlives the result.
    unsafe fn borrowed(&self, stream: usize) -> Result<Self::Stream>;
    fn event(&self) -> Result<Self::Event>;
    /// Creates an event that records the device's time when it is passed.
    fn timed_event(&self) -> Result<Self::Event>;
    /// Milliseconds between two passed events, both with timing.
    fn elapsed_ms(&self, begin: &Self::Event, end: &Self::Event) -> Result<f32>;
    /// Prepares the kernels that [`compute`](Gpu::compute) needs for `spec`.
    fn kernels(&self, spec: &Spec) -> Result<Self::Kernels>;

    /// Allocates memory for `count` numbers.
    fn faults(&self, count: usize) -> Result<Self::Faults>;

    /// Marks the work queued in `stream` so far.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;
    /// Makes later work in `stream` wait for the current mark. An event that was never recorded
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
    /// `from` stays allocated and unchanged until the device has passed an event recorded in
    /// `stream` after this call.
    unsafe fn upload(&self, stream: &Self::Stream, memory: &Self::Buffer, offset: usize, from: &[u8]) -> Result<()>;
    /// Queues the clearing of `bytes` bytes.
    fn clear(&self, stream: &Self::Stream, memory: &Self::Buffer, offset: usize, bytes: usize) -> Result<()>;
    /// Queues a copy of the numbers from `offset` on to `to`.
    ///
    /// # Safety
    /// `to` stays allocated and is not read until the device has passed an event recorded in
    /// `stream` after this call.
    unsafe fn fetch(
        &self,
        stream: &Self::Stream,
        memory: &Self::Buffer,
        offset: usize,
        to: &mut Self::Faults,
    ) -> Result<()>;
    /// Whether fault flag `index` is set.
    fn is_fault(&self, faults: &Self::Faults, index: usize) -> bool;

    /// Queues a copy of `bytes` bytes from `offset` in `from` to the start of `to`.
    ///
    /// # Safety
    /// Both stay allocated until the device has passed an event recorded in `stream` after this
    /// call.
    unsafe fn copy(
        &self,
        stream: &Self::Stream,
        to: &Self::Buffer,
        from: &Self::Buffer,
        offset: usize,
        bytes: usize,
    ) -> Result<()>;
    /// Copies the bytes at `offset` to the host after all earlier work in `stream`, and waits.
    fn download(&self, stream: &Self::Stream, memory: &Self::Buffer, offset: usize, to: &mut [u8]) -> Result<()>;

    /// Queues the decoding of one image of each sample whose record says so.
    fn decode(&self, stream: &Self::Stream, memory: &Self::Buffer, kernels: &Self::Kernels, job: Decode) -> Result<()>;
    /// Queues the computation of one array of a batch.
    fn compute(&self, stream: &Self::Stream, memory: &Self::Buffer, kernels: &Self::Kernels, job: Job) -> Result<()>;
}

/// Result of marking all work of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Recorded {
    /// The work is marked.
    Yes,
    /// A stream is being captured.
    NotNow,
    /// The driver is too old: older than CUDA 12.5 (driver 555).
    Never,
}

/// The error of a call that would become part of a graph, with the `advice`.
pub(crate) fn capturing(advice: &str) -> Error {
    Error::new(ErrorKind::Capturing, format!("the stream is being captured into a CUDA graph: {advice}"))
}

/// Offsets in device memory for the computation of one array of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// Number of the array in the spec.
    pub(crate) array: usize,
    /// Offset of the input: u8 images, (N, H, W, 3), or labels.
    pub(crate) from: usize,
    /// Offset of the output.
    pub(crate) to: usize,
    /// Offset of the records, one per sample.
    pub(crate) records: Option<usize>,
    /// Number of samples.
    pub(crate) count: usize,
}

/// Offsets in device memory for decoding one image of each sample, and maxima over the samples.
#[derive(Debug, Clone, Copy)]
pub struct Decode {
    /// Number of the image in [`Decoding`](super::spec::Decoding).
    pub(crate) image: usize,
    /// Height and width of its output.
    #[cfg_attr(not(test), allow(dead_code))] // the kernels were loaded for it
    pub(crate) size: (usize, usize),
    pub(crate) records: usize,
    pub(crate) encoded: usize,
    pub(crate) encoded_bytes: usize,
    /// Offset of the output: u8 images, (N, H, W, 3).
    pub(crate) pixels: usize,
    pub(crate) coefficients: usize,
    pub(crate) planes: usize,
    pub(crate) axes: usize,
    pub(crate) tables: usize,
    pub(crate) starts: usize,
    pub(crate) faults: usize,
    /// Number of samples.
    pub(crate) count: usize,
    pub(crate) largest: Largest,
}
