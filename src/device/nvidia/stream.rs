//! Streams, and copies between host and device.
//!
//! This module uses raw handles instead of cudarc's objects. Creating a stream through cudarc turns
//! on cudarc's event tracking for all slices in the program. Also, cudarc's launches and views
//! allocate, but a loader must not allocate after it has been opened.
//!
//! **Invariants**
//! 1. A handle created here is destroyed only in `drop`. The driver allows this while work is
//!    pending. A stream of the program is kept alive by its `Arc`, and never destroyed here.
//! 2. A call never combines handles of different contexts: `Stream`, `Event` and `DeviceBuffer`
//!    each store a context, and every call that combines a stream with one of the others checks
//!    that the contexts match. The caller of `copy` guarantees that both buffers have the same
//!    context.
//! 3. Addresses come from [`DeviceBuffer::at`], which checks the range.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaStream, result, sys};

use super::capture;
use super::driver::{Context, Doing, Entered};
use super::event::Event;
use super::memory::DeviceBuffer;
use crate::error::{Error, ErrorKind, Result};

/// A CUDA stream: a queue of work for the device.
pub struct Stream {
    raw: sys::CUstream,
    context: Context,
    lender: Option<Arc<CudaStream>>,
}

// SAFETY: the driver accepts stream calls from any thread, and the handle is never changed.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a non-blocking stream with the lowest priority, which is the default for streams.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_priority(context, 0)
    }

    /// Creates a non-blocking stream with the highest priority, so that its short kernels run
    /// before the pending blocks of a long kernel.
    pub fn urgent(context: &Context) -> Result<Self> {
        let _entered = context.enter()?;
        let (_, greatest) = result::stream::get_priority_range().doing(|| "querying the range of stream priorities")?;
        Self::with_priority(context, greatest)
    }

    fn with_priority(context: &Context, priority: i32) -> Result<Self> {
        let _entered = context.enter()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let raw = result::stream::create_with_priority(kind, priority).doing(|| "creating a stream")?;
        Ok(Stream { raw, context: context.clone(), lender: None })
    }

    /// Wraps a stream that the program owns. Fails if the stream's context is no longer usable.
    pub fn lent(stream: &Arc<CudaStream>) -> Result<Self> {
        let context = Context::from_stream(stream)?;
        capture::remember(stream);
        Ok(Stream { raw: stream.cu_stream(), context, lender: Some(stream.clone()) })
    }

    /// Wraps a stream handle of a different library.
    ///
    /// # Safety
    /// The stream must belong to `context`, and outlive the result.
    pub(crate) unsafe fn borrowed(context: &Context, raw: usize) -> Result<Self> {
        let _entered = context.enter()?;
        // SAFETY: guaranteed by the caller.
        Self::lent(&unsafe { context.cudarc().wrap_borrowed_stream(raw as sys::CUstream) })
    }

    /// Returns whether the stream is being captured. If so, queued work becomes part of a CUDA
    /// graph. Fails if the context is no longer usable.
    pub fn is_capturing(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        Ok(capture::is_capturing(self.raw))
    }

    /// Returns the `CUstream` as an address.
    pub fn raw(&self) -> usize {
        self.raw as usize
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.raw
    }

    /// Returns the context of the stream.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns cudarc's stream, if the program owns this stream.
    pub fn cudarc(&self) -> Option<&Arc<CudaStream>> {
        self.lender.as_ref()
    }

    /// Makes later work in this stream wait for the most recent recording of `event`. Costs the
    /// host about 0.1 µs, and never blocks it.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _entered = self.same_context(event.context())?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are alive (invariant 1) and belong to the bound context (invariant
        // 2).
        unsafe { result::stream::wait_event(self.raw, event.handle(), flags) }
            .doing(|| "making a stream wait for an event")
    }

    /// Queues a copy of `from` to offset `offset` of `to`.
    ///
    /// # Safety
    /// `from` must stay allocated and unchanged until the copy is done: record an event after this
    /// call, and wait for that event. Streams and events must order the copy with all other
    /// accesses to `to` on the device.
    pub unsafe fn upload(&self, to: &DeviceBuffer, offset: usize, from: &[u8]) -> Result<()> {
        let _entered = self.same_context(to.context())?;
        let address = to.at(offset, from.len());
        // SAFETY: the range is checked (invariant 3), and the caller guarantees the lifetime of
        // `from`.
        unsafe { result::memcpy_htod_async(address, from, self.raw) }
            .doing(|| format!("copying {} bytes to the device", from.len()))
    }

    /// Waits for all earlier work in the stream, and copies `out.len()` bytes from offset `offset`
    /// of `from`. Intended for tests and examples.
    pub fn download(&self, out: &mut [u8], from: &DeviceBuffer, offset: usize) -> Result<()> {
        // SAFETY: `out` is borrowed until the copy is done.
        unsafe { self.fetch(out, from, offset)? };
        self.synchronize()
    }

    /// Queues a copy of `out.len()` bytes from offset `offset` of `from`. If `out` is not
    /// page-locked, waits for the copy.
    ///
    /// # Safety
    /// `out` must stay allocated, and must not be accessed in any other way, until an event
    /// recorded after this call has completed. Streams and events must order the copy with all
    /// other writes to `from` on the device.
    pub unsafe fn fetch(&self, out: &mut [u8], from: &DeviceBuffer, offset: usize) -> Result<()> {
        let _entered = self.same_context(from.context())?;
        let address = from.at(offset, out.len());
        // SAFETY: the range is checked (invariant 3), and the caller guarantees the lifetime of
        // `out`.
        unsafe { result::memcpy_dtoh_async(out, address, self.raw) }
            .doing(|| format!("copying {} bytes to the host", out.len()))
    }

    /// Queues a copy of `from[offset..offset + bytes]` to the start of `to`.
    ///
    /// # Safety
    /// Both buffers must belong to the stream's context, and must stay allocated until an event
    /// recorded after this call has completed. Streams and events must order the copy with all
    /// other writes to `from` and all other accesses to `to`.
    pub unsafe fn copy(&self, to: &DeviceBuffer, from: &DeviceBuffer, offset: usize, bytes: usize) -> Result<()> {
        let _entered = self.same_context(from.context())?;
        let (to, from) = (to.at(0, bytes), from.at(offset, bytes));
        // SAFETY: the ranges are checked (invariant 3), and the caller guarantees the lifetimes and
        // the order.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.raw) }
            .doing(|| format!("copying {bytes} bytes on the device"))
    }

    /// Queues an operation that sets `memory[offset..offset + bytes]` to zero.
    ///
    /// # Safety
    /// Streams and events must order the operation with all other accesses to these bytes on the
    /// device.
    pub unsafe fn clear(&self, memory: &DeviceBuffer, offset: usize, bytes: usize) -> Result<()> {
        let _entered = self.same_context(memory.context())?;
        let address = memory.at(offset, bytes);
        // SAFETY: the range is checked (invariant 3), and the caller guarantees the order.
        unsafe { result::memset_d8_async(address, 0, bytes, self.raw) }
            .doing(|| format!("clearing {bytes} bytes on the device"))
    }

    /// Blocks the host until all work in the stream is done. Fails if earlier work failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle is alive (invariant 1).
        unsafe { result::stream::synchronize(self.raw) }.doing(|| "waiting for a stream")
    }

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

/// `record` is in this module, because `event` precedes `stream` in the module order.
impl Event {
    /// Records the event after the work that is queued in `stream`.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = stream.same_context(self.context())?;
        // SAFETY: both handles are alive (`Stream`, `Event`: invariant 1) and belong to the bound
        // context (invariant 2).
        unsafe { result::event::record(self.handle(), stream.raw) }.doing(|| "recording an event")
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw && self.context == other.context
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            // If this was the last `Arc`, cudarc's drop changes the thread's current context, so
            // restore it.
            let restore = Entered::save_state();
            if restore.is_refused() {
                std::mem::forget(lender);
            } else {
                drop(lender);
            }
        } else if let Ok(_entered) = self.context.enter() {
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
