#![allow(unsafe_code)]
//! Streams, events and copies.
//!
//! This module uses raw handles instead of cudarc's objects, for two reasons. Making a stream
//! through cudarc turns on its event tracking for every slice of the program. cudarc's launches and
//! views allocate, and the loader must not allocate after opening.
//!
//! **Invariants**
//! 1. A handle made here is destroyed once, in `drop`; the driver allows that while work is
//!    pending. A stream that was lent by the program is kept alive by the `Arc` in it and never
//!    destroyed here.
//! 2. Handles of one context only meet handles of the same context: `Stream` and `Event` carry
//!    theirs, and every call compares them.
//! 3. Addresses come from [`Memory::at`], which checks the range.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaStream, result, sys};

use super::Recorded;
use super::capture;
use super::driver::{Context, Doing, Entered, marks_contexts};
use super::memory::Memory;
use crate::error::{Error, ErrorKind, Result};

/// A queue of work on the device.
pub struct Stream {
    raw: sys::CUstream,
    context: Context,
    lender: Option<Arc<CudaStream>>,
}

// SAFETY: the driver's stream calls may be made from any thread; the handle is never mutated.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A non-blocking stream of the greatest priority. Its few short kernels run before the waiting
    /// blocks of a long kernel.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn new(context: &Context) -> Result<Self> {
        let _here = context.enter()?;
        let (_, greatest) =
            result::stream::get_priority_range().doing(|| "asking for the range of stream priorities")?;
        let kind = result::stream::StreamKind::NonBlocking;
        let raw = result::stream::create_with_priority(kind, greatest).doing(|| "making a stream")?;
        Ok(Stream { raw, context: context.clone(), lender: None })
    }

    /// The program's own stream.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if its context is no longer usable.
    pub fn lent(stream: &Arc<CudaStream>) -> Result<Self> {
        let context = Context::of(stream)?;
        capture::know(stream);
        Ok(Stream { raw: stream.cu_stream(), context, lender: Some(stream.clone()) })
    }

    /// Whether work that is queued now goes into a CUDA graph.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the context is no longer usable.
    pub fn is_capturing(&self) -> Result<bool> {
        let _here = self.context.enter()?;
        Ok(capture::is_capturing(self.raw))
    }

    /// The `CUstream`, as an address.
    pub fn raw(&self) -> usize {
        self.raw as usize
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.raw
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// cudarc's stream, if it was lent.
    pub fn cudarc(&self) -> Option<&Arc<CudaStream>> {
        self.lender.as_ref()
    }

    /// An error if the stream is being captured, which says what to `do`.
    pub(crate) fn refuse_capture(&self, advice: &str) -> Result<()> {
        if self.is_capturing()? {
            let cause = format!("the stream is being captured into a CUDA graph; {advice}");
            return Err(Error::new(ErrorKind::Capturing, cause));
        }
        Ok(())
    }

    /// Lets later work in this stream wait for the work that `event` marks. Costs the host about
    /// 0.1 us and never blocks it.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _here = self.same_context(&event.context)?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles live (invariant 1) and belong to the bound context (invariant 2).
        unsafe { result::stream::wait_event(self.raw, event.raw, flags) }.doing(|| "making a stream wait for an event")
    }

    /// Copies `from` to `offset` in `to`, asynchronously.
    ///
    /// # Safety
    /// `from` stays allocated and unchanged until an event recorded in this stream after the call
    /// is done; and nothing else on the device reads or writes the target in between, other than in
    /// the order that streams and events give.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub unsafe fn upload(&self, to: &Memory, offset: usize, from: &[u8]) -> Result<()> {
        let _here = self.same_context(to.context())?;
        let address = to.at(offset, from.len());
        // SAFETY: the range is checked (invariant 3); the lifetime of `from` is the caller's
        // promise.
        unsafe { result::memcpy_htod_async(address, from, self.raw) }
            .doing(|| format!("copying {} bytes to the device", from.len()))
    }

    /// Copies `to.len()` bytes from `offset` in `from`, after everything before it in the stream,
    /// and waits. For tests and examples.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn download(&self, to: &mut [u8], from: &Memory, offset: usize) -> Result<()> {
        let _here = self.same_context(from.context())?;
        let address = from.at(offset, to.len());
        // SAFETY: the range is checked (invariant 3), and `to` is borrowed until the copy is done.
        unsafe { result::memcpy_dtoh_async(to, address, self.raw) }
            .doing(|| format!("copying {} bytes to the host", to.len()))?;
        self.synchronize()
    }

    /// Waits on the host until all work in the stream is done.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`], also for work that failed earlier.
    pub fn synchronize(&self) -> Result<()> {
        let _here = self.context.enter()?;
        // SAFETY: the handle lives (invariant 1).
        unsafe { result::stream::synchronize(self.raw) }.doing(|| "waiting for a stream")
    }

    /// Enters the context, and checks that `other` is the same (invariant 2).
    pub(super) fn same_context(&self, other: &Context) -> Result<Entered> {
        if self.context.cudarc() != other.cudarc() {
            let (a, b) = (self.context.ordinal(), other.ordinal());
            return Err(Error::new(
                ErrorKind::Cuda,
                format!("a stream of device {a} cannot use a context of device {b}"),
            ));
        }
        self.context.enter()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            // Where it was the last handle, cudarc makes the device current to destroy the stream.
            let _restore = Entered::nowhere();
            drop(lender);
        } else if let Ok(_here) = self.context.enter() {
            // SAFETY: invariant 1.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p} on device {})", self.raw, self.context.ordinal())
    }
}

/// A mark in a stream. It may be recorded again and again; a wait means the mark as it stood when
/// the wait was queued.
pub struct Event {
    raw: sys::CUevent,
    context: Context,
}

// SAFETY: the driver's event calls may be made from any thread; the handle is never mutated.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that orders, without a clock.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event that also takes the device's time.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn timed(context: &Context) -> Result<Self> {
        Self::with(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(context: &Context, flags: sys::CUevent_flags) -> Result<Self> {
        let _here = context.enter()?;
        let raw = result::event::create(flags).doing(|| "making an event")?;
        Ok(Event { raw, context: context.clone() })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Marks the work queued in `stream` so far.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _here = stream.same_context(&self.context)?;
        // SAFETY: both handles live (`Stream`, `Event`: invariant 1) and belong to the bound
        // context (invariant 2).
        unsafe { result::event::record(self.raw, stream.raw) }.doing(|| "recording an event")
    }

    /// Marks the work that the event's context has been given so far, in all its streams.
    /// Costs the host 0.3 to 2 us.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub fn record_all(&self) -> Result<Recorded> {
        let _here = self.context.enter()?;
        if !marks_contexts() {
            return Ok(Recorded::Never);
        }
        if capture::any_capture(&self.context) {
            return Ok(Recorded::NotNow);
        }
        // SAFETY: the context and its event live (invariant 1), and the symbol is there.
        let recorded = unsafe { sys::cuCtxRecordEvent(self.context.cudarc().cu_ctx(), self.raw) };
        if recorded == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED {
            static WARNED: std::sync::Once = std::sync::Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    "a CUDA graph capture of a stream that the loader has never been shown was invalidated by a page-locked batch; drop \
                     batches and take new ones outside of captures, make the stream with warpfeed::cuda::stream, or give the batch back \
                     with release_on"
                );
            });
            return Ok(Recorded::NotNow);
        }
        recorded
            .result()
            .doing(|| format!("marking the work of device {}", self.context.ordinal()))
            .map(|()| Recorded::Yes)
    }

    /// Whether the marked work is done. An event that was never recorded is.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`], also for work that failed earlier.
    pub fn is_done(&self) -> Result<bool> {
        let _here = self.context.enter()?;
        // SAFETY: the handle lives (invariant 1).
        match unsafe { result::event::query(self.raw) } {
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => other.doing(|| "asking whether an event is done").map(|()| true),
        }
    }

    /// Waits on the host until the marked work is done.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`], also for work that failed earlier.
    pub fn synchronize(&self) -> Result<()> {
        let _here = self.context.enter()?;
        // SAFETY: the handle lives (invariant 1).
        unsafe { result::event::synchronize(self.raw) }.doing(|| "waiting for an event")
    }

    /// Milliseconds on the device's clock from `self` to `end`, to half a microsecond. Both must be
    /// [`timed`](Event::timed) and done.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if one of them is not.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f32> {
        let _here = self.context.enter()?;
        // SAFETY: both handles live (invariant 1).
        unsafe { result::event::elapsed(self.raw, end.raw) }.doing(|| "reading the time between two events")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: invariant 1.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:p} on device {})", self.raw, self.context.ordinal())
    }
}
