//! Detects whether a stream of the user's program is being captured into a CUDA graph.
//!
//! Recording an event for all work of a context ([`Event::record_all`](super::Event::record_all))
//! would invalidate a capture. The driver can't list captures, so this module remembers and queries
//! the streams that it has seen. A query of the legacy default stream covers all blocking streams
//! of its context.
//!
//! **Invariants**
//! 1. A handle is queried only while its `CudaStream` or `Stream` is alive.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::{CudaStream, sys};

use super::driver::{Context, Doing, Entered, available_for_batches};
use crate::error::Result;

/// The streams that the program created with [`stream`](super::stream) or passed to the crate.
static KNOWN_STREAMS: Mutex<Vec<Weak<CudaStream>>> = Mutex::new(Vec::new());

/// Creates a non-blocking stream on device `ordinal`, for programs that do not have a stream yet.
///
/// # Errors
/// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if there is no driver or no such device, or if a
/// driver call fails.
pub fn stream(ordinal: usize) -> Result<Arc<CudaStream>> {
    available_for_batches()?;
    let _restore = Entered::save_state();
    let stream =
        Context::new(ordinal)?.cudarc().new_stream().doing(|| format!("creating a stream on device {ordinal}"))?;
    remember(&stream);
    Ok(stream)
}

/// Wraps a stream that a different library, such as PyTorch, has created. `stream` is its handle
/// (`CUstream` or `cudaStream_t`), where 0 and 1 mean the legacy default stream. The stream must
/// belong to the primary context of device `ordinal`.
///
/// ```no_run
/// # let handle = 0;
/// // SAFETY: the legacy default stream always exists.
/// let stream = unsafe { warpfeed::cuda::borrowed_stream(0, handle) }?;
/// let batches = warpfeed::Loader::new("train").cuda(&stream)?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Safety
/// The stream must outlive the result, its clones, and all loaders and batches that use them.
///
/// # Errors
/// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if there is no driver or no such device, or if a
/// driver call fails.
pub unsafe fn borrowed_stream(ordinal: usize, stream: usize) -> Result<Arc<CudaStream>> {
    available_for_batches()?;
    let _restore = Entered::save_state();
    let context = Context::new(ordinal)?;
    // SAFETY: guaranteed by the caller.
    let stream = unsafe { context.cudarc().wrap_borrowed_stream(stream as sys::CUstream) };
    remember(&stream);
    Ok(stream)
}

pub(super) fn remember(stream: &Arc<CudaStream>) {
    let mut streams = KNOWN_STREAMS.lock().expect("no code panics while holding this lock");
    if !streams.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(stream))) {
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }
}

/// Returns whether `stream` is being captured. Also returns `true` for the legacy default stream if
/// a blocking stream is being captured. The context of the stream must be current.
pub(super) fn is_capturing(stream: sys::CUstream) -> bool {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive (invariant 1) or is the legacy stream. The driver writes the
    // status during the call.
    match unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) } {
        sys::CUresult::CUDA_SUCCESS => status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        other => other == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    }
}

/// Returns whether any known stream of `context` is being captured. The context must be current.
pub(super) fn any_capture(context: &Context) -> bool {
    /// `CU_STREAM_LEGACY` of cuda.h.
    const LEGACY: usize = 1;
    if is_capturing(LEGACY as sys::CUstream) {
        return true;
    }
    let streams = KNOWN_STREAMS.lock().expect("no code panics while holding this lock");
    let alive = streams.iter().filter_map(Weak::upgrade);
    alive.filter(|stream| stream.context() == context.cudarc()).any(|stream| is_capturing(stream.cu_stream()))
}
