//! Events, which mark a point in a stream or in all work of a context.
//!
//! **Invariants**
//! 1. Only `drop` destroys the handle. The driver allows this while work is pending.

#![allow(unsafe_code)]

use std::fmt;

use cudarc::driver::{result, sys};

use super::capture;
use super::driver::{Context, Doing, can_record_all};
use crate::device::gpu::Recorded;
use crate::error::Result;

/// A mark at a point in a stream. An event may be recorded repeatedly. A wait refers to the most
/// recent recording at the time the wait is queued.
pub struct Event {
    raw: sys::CUevent,
    context: Context,
}

// SAFETY: the driver accepts event calls from any thread, and the handle is never changed.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event that orders work without recording the time.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// Creates an event that also records the time at which it completes, on the device's clock.
    pub fn timed(context: &Context) -> Result<Self> {
        Self::with_flags(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with_flags(context: &Context, flags: sys::CUevent_flags) -> Result<Self> {
        let _entered = context.enter()?;
        let raw =
            result::event::create(flags).doing(|| format!("creating an event on device {}", context.ordinal()))?;
        Ok(Event { raw, context: context.clone() })
    }

    pub(super) fn handle(&self) -> sys::CUevent {
        self.raw
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Adds the device to the name of an operation, for messages.
    fn operation(&self, name: &str) -> String {
        format!("{name} on device {}", self.context.ordinal())
    }

    /// Records the event after the work that is queued in all streams of its context, unless a
    /// known stream is being captured (see `capture`). Costs the host 0.3 to 2 µs.
    pub fn record_all(&self) -> Result<Recorded> {
        let _entered = self.context.enter()?;
        if !can_record_all() {
            return Ok(Recorded::Never);
        }
        if capture::any_capture(&self.context) {
            return Ok(Recorded::NotNow);
        }
        // SAFETY: the context and the event are alive (invariant 1), and the symbol exists.
        let recorded = unsafe { sys::cuCtxRecordEvent(self.context.cudarc().cu_ctx(), self.raw) };
        if recorded == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED {
            static WARNED: std::sync::Once = std::sync::Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    "the release of a batch invalidated the CUDA graph capture of a stream that the loader does not \
                     know: drop batches and take new ones outside of captures, create the stream with \
                     warpfeed::cuda::stream, or return the batch with release_on"
                );
            });
            return Ok(Recorded::NotNow);
        }
        recorded.result().doing(|| self.operation("recording an event after all work")).map(|()| Recorded::Yes)
    }

    /// Returns whether the work before the event is done. Returns `true` if the event was never
    /// recorded, and an error if earlier work failed.
    pub fn is_done(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle is alive (invariant 1).
        match unsafe { result::event::query(self.raw) } {
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => result.doing(|| self.operation("checking whether the work is done")).map(|()| true),
        }
    }

    /// Blocks the host until the work before the event is done. Fails if earlier work failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle is alive (invariant 1).
        unsafe { result::event::synchronize(self.raw) }.doing(|| self.operation("waiting for the work"))
    }

    /// Returns the milliseconds from `self` to `end` on the device's clock, with a resolution of
    /// half a microsecond. Fails unless both events are [`timed`](Event::timed) and have completed.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f32> {
        let _entered = self.context.enter()?;
        // SAFETY: both handles are alive (invariant 1).
        unsafe { result::event::elapsed(self.raw, end.raw) }
            .doing(|| self.operation("reading the time between two events"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
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
