use super::spec::Spec;
use crate::batch::{DlDevice, LaunchStats, SlotMemory};
use crate::error::{Error, ErrorKind, Result};

/// A device with streams of work, which run concurrently with the host, and events, which order the
/// work. Clones refer to the same device.
///
/// Only [`memory`](Gpu::memory), [`slot`](Gpu::slot), [`kernels`](Gpu::kernels),
/// [`faults`](Gpu::faults), [`synchronize`](Gpu::synchronize) and [`download`](Gpu::download) may
/// block.
#[allow(unsafe_code)] // `ring` upholds the contract of `upload`
pub trait Gpu: Clone + Send + Sync + 'static {
    type Stream: Send + Sync + PartialEq;
    type Event: Send + Sync;
    type Buffer: Send + Sync;
    type Kernels: Send + Sync;
    type Faults: Send;
    /// A guard that makes device calls cheaper on the thread that created it. It does not delay the
    /// exit of the process.
    type CallGuard;

    fn dlpack_device(ordinal: usize) -> DlDevice;
    fn ordinal(&self) -> usize;

    fn call_guard(&self) -> Result<Self::CallGuard>;
    /// Allocates device memory. Dropping the buffer frees the memory once all work that was
    /// submitted before the drop is done.
    fn memory(&self, bytes: usize) -> Result<Self::Buffer>;
    fn address(&self, memory: &Self::Buffer, offset: usize, bytes: usize) -> u64;
    /// Allocates page-locked host memory for a slot, so that uploads are asynchronous.
    fn slot(&self, bytes: usize) -> Result<SlotMemory>;
    fn stream(&self) -> Result<Self::Stream>;
    /// Creates a high-priority stream. The device prefers its pending kernels to pending kernels of
    /// streams from [`stream`](Gpu::stream).
    fn urgent_stream(&self) -> Result<Self::Stream>;
    /// Wraps a stream handle of a different library.
    ///
    /// # Safety
    /// The stream must belong to this device, and must outlive the result.
    unsafe fn borrowed(&self, stream: usize) -> Result<Self::Stream>;
    fn event(&self) -> Result<Self::Event>;
    /// Creates an event that also records the time at which it completes.
    fn timed_event(&self) -> Result<Self::Event>;
    /// Returns the milliseconds between two timed events, which must have completed.
    fn elapsed_ms(&self, begin: &Self::Event, end: &Self::Event) -> Result<f32>;
    fn kernels(&self, spec: &Spec) -> Result<Self::Kernels>;

    /// Allocates page-locked host memory for `count` fault flags.
    fn faults(&self, count: usize) -> Result<Self::Faults>;

    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;
    /// Makes later work in `stream` wait for the most recent recording of `event`, if there is one.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<()>;
    fn is_done(&self, event: &Self::Event) -> Result<bool>;
    /// Records `event` after the work that is queued in all streams of the device's context,
    /// including the ring's.
    fn record_all(&self, event: &Self::Event) -> Result<Recorded>;
    /// Returns whether `stream` is being captured. If so, new work becomes part of a CUDA graph.
    fn is_capturing(&self, stream: &Self::Stream) -> Result<bool>;
    /// Returns whether the driver supports [`record_all`](Gpu::record_all).
    fn can_record_all(&self) -> bool;
    /// Waits for all work of the device's context. Returns false immediately if a known stream is
    /// being captured. Called only if the driver does not support [`record_all`](Gpu::record_all).
    fn synchronize_all(&self) -> Result<bool>;
    /// Waits for all work in `stream`. Called only during shutdown.
    fn synchronize(&self, stream: &Self::Stream) -> Result<()>;

    /// Queues a copy of `from` to offset `offset` of `memory`.
    ///
    /// # Safety
    /// `from` must stay allocated and unchanged until an event that is recorded in `stream` after
    /// this call has completed.
    unsafe fn upload(&self, stream: &Self::Stream, memory: &Self::Buffer, offset: usize, from: &[u8]) -> Result<()>;
    fn clear(&self, stream: &Self::Stream, memory: &Self::Buffer, offset: usize, bytes: usize) -> Result<()>;
    /// Queues a copy of the `count` fault flags at `offset` to the start of `out`.
    ///
    /// # Safety
    /// `out` must stay allocated and must not be read until an event that is recorded in `stream`
    /// after this call has completed.
    unsafe fn fetch(
        &self,
        stream: &Self::Stream,
        memory: &Self::Buffer,
        offset: usize,
        count: usize,
        out: &mut Self::Faults,
    ) -> Result<()>;
    fn is_fault(&self, faults: &Self::Faults, index: usize) -> bool;

    /// Queues a copy of `from[offset..offset + bytes]` to the start of `dest`.
    ///
    /// # Safety
    /// Both buffers must stay allocated until an event that is recorded in `stream` after this call
    /// has completed.
    unsafe fn copy(
        &self,
        stream: &Self::Stream,
        dest: &Self::Buffer,
        from: &Self::Buffer,
        offset: usize,
        bytes: usize,
    ) -> Result<()>;
    /// Copies bytes of `memory` to `out` once all earlier work in `stream` is done, and waits for
    /// the copy.
    fn download(&self, stream: &Self::Stream, memory: &Self::Buffer, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Queues the decoding of one image field. Samples without a decode record are skipped.
    fn decode(&self, stream: &Self::Stream, memory: &Self::Buffer, kernels: &Self::Kernels, job: Decode) -> Result<()>;
    fn compute(&self, stream: &Self::Stream, memory: &Self::Buffer, kernels: &Self::Kernels, job: Job) -> Result<()>;
}

/// The result of recording an event for all work of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Recorded {
    Yes,
    /// The event cannot be recorded while a stream is being captured.
    NotNow,
    /// The driver cannot record such an event, because it is older than CUDA 12.5 (driver 555).
    Never,
}

/// Returns the error for work that must not become part of a captured graph.
pub(crate) fn capturing(advice: &str) -> Error {
    Error::new(ErrorKind::Capturing, format!("the stream is being captured into a CUDA graph: {advice}"))
}

/// The computation of one array of a batch. All offsets are in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub(crate) array: usize,
    /// Offset of the input: u8 images of shape (N, H, W, 3), or labels.
    pub(crate) from: usize,
    pub(crate) output: usize,
    pub(crate) records: Option<usize>,
    /// Number of images or labels.
    pub(crate) count: usize,
}

/// The decoding of one image field. All offsets are in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Decode {
    /// Index of the image field in [`Decoding`](super::spec::Decoding).
    pub(crate) image: usize,
    /// Height and width of an image.
    #[cfg_attr(not(test), allow(dead_code))] // the real kernels are loaded for a fixed size
    pub(crate) size: (usize, usize),
    pub(crate) records: usize,
    pub(crate) encoded: usize,
    pub(crate) encoded_bytes: usize,
    /// Offset of u8 images of shape (N, H, W, 3).
    pub(crate) pixels: usize,
    pub(crate) coefficients: usize,
    pub(crate) planes: usize,
    pub(crate) axes: usize,
    pub(crate) tables: usize,
    pub(crate) starts: usize,
    pub(crate) faults: usize,
    pub(crate) count: usize,
    /// Statistics of the samples, which determine the launch sizes.
    pub(crate) launch_stats: LaunchStats,
}
