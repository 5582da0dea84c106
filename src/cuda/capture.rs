#![allow(unsafe_code)]
//! CUDA graphs: which of the program's streams are being captured.
//!
//! While a stream is captured, some calls are impossible without spoiling the capture: a mark of
//! all work in the context ([`Event::record_all`](super::Event::record_all)) is one of them. The
//! driver cannot be asked for a list of captures. So the crate remembers the streams that it was
//! shown, and asks each of them. The legacy default stream answers for all blocking streams of its
//! context.
//!
//! **Invariants**
//! 1. A handle is asked for only while its `CudaStream` lives.

use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::{CudaStream, sys};

use super::driver::{Context, Doing, Entered, available_for_batches};
use crate::error::Result;

/// Streams of the program that it made with [`stream`](super::stream) or gave to a loader.
static KNOWN: Mutex<Vec<Weak<CudaStream>>> = Mutex::new(Vec::new());

/// A new non-blocking stream on device `ordinal`, for programs that have none of their own yet.
///
/// # Errors
/// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) without a driver, or without that device.
pub fn stream(ordinal: usize) -> Result<Arc<CudaStream>> {
    available_for_batches()?;
    let _restore = Entered::nowhere();
    let stream =
        Context::new(ordinal)?.cudarc().new_stream().doing(|| format!("making a stream on device {ordinal}"))?;
    know(&stream);
    Ok(stream)
}

/// A stream of another library's on device `ordinal`, by its handle (`CUstream`, `cudaStream_t`):
/// for programs whose streams are PyTorch's, say. 0 and 1 are the legacy default stream. It belongs
/// to the device's primary context.
///
/// ```no_run
/// # let handle = 0;
/// // SAFETY: the legacy default stream is always there.
/// let stream = unsafe { warpfeed::cuda::borrowed_stream(0, handle) }?;
/// let batches = warpfeed::Loader::new("train").cuda(&stream)?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Safety
/// The stream lives as long as the result and its clones, and all loaders and batches that they
/// were given to.
///
/// # Errors
/// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) without a driver, or without that device.
pub unsafe fn borrowed_stream(ordinal: usize, stream: usize) -> Result<Arc<CudaStream>> {
    available_for_batches()?;
    let _restore = Entered::nowhere();
    let context = Context::new(ordinal)?;
    // SAFETY: the caller's promise.
    let stream = unsafe { context.cudarc().wrap_borrowed_stream(stream as sys::CUstream) };
    know(&stream);
    Ok(stream)
}

/// Remembers a stream of the program's.
pub(super) fn know(stream: &Arc<CudaStream>) {
    let mut known = KNOWN.lock().expect("nothing panics while holding it");
    if !known.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(stream))) {
        known.retain(|stream| stream.strong_count() > 0);
        known.push(Arc::downgrade(stream));
    }
}

/// Whether work that is queued in `stream` now goes into a graph. Its context is current.
pub(super) fn is_capturing(stream: sys::CUstream) -> bool {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the caller's stream lives (invariant 1), or is the legacy stream; the driver writes
    // the status during the call.
    match unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) } {
        sys::CUresult::CUDA_SUCCESS => status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        other => other == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    }
}

/// Whether a stream of `context` that the crate knows of is being captured. The context is current.
pub(super) fn any_capture(context: &Context) -> bool {
    /// `CU_STREAM_LEGACY` of cuda.h.
    const LEGACY: usize = 1;
    if is_capturing(LEGACY as sys::CUstream) {
        return true;
    }
    let known = KNOWN.lock().expect("nothing panics while holding it");
    let alive = known.iter().filter_map(Weak::upgrade);
    alive.filter(|stream| stream.context() == context.cudarc()).any(|stream| is_capturing(stream.cu_stream()))
}
