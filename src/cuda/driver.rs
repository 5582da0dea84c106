#![allow(unsafe_code)]
//! Finds the driver and reports its errors.
//!
//! **Invariants**
//! 1. No function of cudarc that resolves a driver symbol runs before [`available`] has returned
//!    `Ok` in this process: cudarc panics when libcuda cannot be opened. A [`Context`] exists only
//!    after that.
//! 2. Every raw driver call in this folder runs while an [`Entered`] of its object's context lives
//!    on the calling thread.
//! 3. An [`Entered`] leaves the thread as it found it: the same current context, the same capture
//!    mode. The program's own calls on that thread see no difference.

use std::cell::Cell;
use std::error::Error as _;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaStream, result, sys};

use crate::error::{Error, ErrorKind, Result};

/// Whether a CUDA driver can be opened. The answer is looked up once a process.
///
/// # Errors
/// [`ErrorKind::Cuda`] with what the dynamic linker said.
pub fn available() -> Result<()> {
    library().as_ref().map(|_| ()).map_err(|why| Error::new(ErrorKind::Cuda, format!("no NVIDIA driver found ({why})")))
}

/// The driver's library, which stays loaded, or why it is missing.
fn library() -> &'static Result<libloading::Library, String> {
    static DRIVER: OnceLock<Result<libloading::Library, String>> = OnceLock::new();
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    DRIVER.get_or_init(|| {
        // SAFETY: libcuda's initialisers have no preconditions.
        unsafe { libloading::Library::new(name) }
            // What the linker said, which names the library, is the error's source.
            .map_err(|e| e.source().map_or_else(|| format!("{name}: {e}"), ToString::to_string))
    })
}

/// Whether the driver can mark all work of a context with one event: `cuCtxRecordEvent`, from CUDA
/// 12.5 (driver 555) on. cudarc panics where a symbol is missing.
pub(super) fn marks_contexts() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        library().as_ref().is_ok_and(|library| {
            // SAFETY: the symbol is looked up and not called.
            unsafe { library.get::<unsafe extern "C" fn()>(b"cuCtxRecordEvent\0") }.is_ok()
        })
    })
}

/// Number of devices; 0 without a driver.
pub(super) fn device_count() -> usize {
    // SAFETY: `available` said that there is a driver (invariant 1); initialising it again does
    // nothing.
    let count = available().ok().and_then(|()| result::init().and_then(|()| result::device::get_count()).ok());
    count.map_or(0, |count| count.max(0) as usize)
}

/// [`available`] for batches on a device. Without a driver the error names the alternative.
pub(super) fn available_for_batches() -> Result<()> {
    available().map_err(|e| Error::new(e.kind(), format!("{}; use .host() for batches in host memory", e.cause())))
}

/// One device's context, shared with the program's own streams.
#[derive(Clone, PartialEq, Eq)]
pub struct Context(Option<Arc<CudaContext>>);

impl Drop for Context {
    /// The last handle makes its device current to let it go.
    fn drop(&mut self) {
        if let Some(context) = self.0.take().filter(|context| Arc::strong_count(context) == 1) {
            let _restore = Entered::nowhere();
            drop(context);
        }
    }
}

impl Context {
    /// The primary context of device `ordinal`, which is the one that programs share.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] without a driver, or without that device.
    pub fn new(ordinal: usize) -> Result<Self> {
        available()?;
        // Before this call a thread lacks a capture mode to return to. A failure here repeats
        // below.
        let _ = result::init();
        let _restore = Entered::nowhere();
        let context = CudaContext::new(ordinal).doing(|| format!("opening device {ordinal}"))?;
        Ok(Context(Some(context)))
    }

    /// The primary context of device `ordinal` if a program already uses it. The question does not
    /// create it.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] from the driver.
    pub(super) fn if_active(ordinal: usize) -> Result<Option<Self>> {
        available()?;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: both results are written before the call returns.
        let state =
            unsafe { sys::cuDevicePrimaryCtxGetState(ordinal as sys::CUdevice, &raw mut flags, &raw mut active) };
        state.result().doing(|| format!("asking whether device {ordinal} is in use"))?;
        (active != 0).then(|| Context::new(ordinal)).transpose()
    }

    /// The context that `stream` belongs to.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the context is no longer usable.
    pub fn of(stream: &Arc<CudaStream>) -> Result<Self> {
        available_for_batches()?;
        let context = Context(Some(stream.context().clone()));
        context.enter()?;
        Ok(context)
    }

    /// Makes it the calling thread's context until the result is dropped.
    ///
    /// cudarc's `bind_to_thread` would also take an error that cudarc keeps for the program. The
    /// program must find that error.
    pub(crate) fn enter(&self) -> Result<Entered> {
        let mut entered = Entered::nowhere();
        let here = self.cudarc().cu_ctx();
        if entered.before != here {
            // SAFETY: the context lives as long as the `Arc` in `self`.
            unsafe { result::ctx::set_current(here) }
                .doing(|| format!("binding the context of device {}", self.ordinal()))?;
        }
        entered.now = here;
        Ok(entered)
    }

    /// cudarc's handle.
    pub fn cudarc(&self) -> &Arc<CudaContext> {
        self.0.as_ref().expect("the handle leaves in drop only")
    }

    /// The device's number.
    pub fn ordinal(&self) -> usize {
        self.cudarc().ordinal()
    }

    /// The device's name, such as `NVIDIA H200`.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the driver does not say.
    pub fn name(&self) -> Result<String> {
        result::device::get_name(self.cudarc().cu_device())
            .doing(|| format!("asking for the name of device {}", self.ordinal()))
    }

    /// Free and total bytes of device memory.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the driver does not say.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _here = self.enter()?;
        result::mem_get_info().doing(|| format!("asking for the memory of device {}", self.ordinal()))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(device {})", self.ordinal())
    }
}

thread_local! {
    /// How many stays there are on this thread, one within the other.
    static STAYS: Cell<u32> = const { Cell::new(0) };
}

/// A stay in a context, on one thread. It ends with the context and the capture mode that the
/// thread had before.
pub(crate) struct Entered {
    before: sys::CUcontext,
    now: sys::CUcontext,
    /// None where the driver would not say, and within another stay.
    mode: Option<sys::CUstreamCaptureMode>,
    _on_this_thread: PhantomData<*const ()>,
}

impl Entered {
    /// Notes where the thread is, and makes its calls harmless to captures of other streams: in the
    /// mode that threads begin with, asking whether an event is done invalidates a capture that
    /// another thread has begun (measured on driver 580).
    pub(super) fn nowhere() -> Self {
        let before = result::ctx::get_current().ok().flatten().unwrap_or(std::ptr::null_mut());
        Entered {
            before,
            now: before,
            mode: (STAYS.replace(STAYS.get() + 1) == 0)
                .then(|| exchange(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED))
                .flatten(),
            _on_this_thread: PhantomData,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        STAYS.set(STAYS.get() - 1);
        self.mode.map(exchange);
        let now = result::ctx::get_current().ok().flatten().unwrap_or(self.now);
        if now != self.before {
            // SAFETY: it was this thread's context before, or none.
            let _ = unsafe { result::ctx::set_current(self.before) };
        }
    }
}

/// Sets the thread's capture mode; gives the one before.
fn exchange(mut mode: sys::CUstreamCaptureMode) -> Option<sys::CUstreamCaptureMode> {
    // SAFETY: the driver reads and writes the mode during the call. Without a driver nothing here
    // is reached (invariant 1).
    let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    exchanged.result().is_ok().then_some(mode)
}

/// A driver call's result, with what was being done when it failed.
pub(super) trait Doing<T> {
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Doing<T> for Result<T, DriverError> {
    fn doing<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| {
            let words =
                |text: Result<&std::ffi::CStr, DriverError>| text.ok().map(|t| t.to_string_lossy().into_owned());
            let name = words(e.error_name()).unwrap_or_else(|| format!("code {}", e.0 as u32));
            let meaning = words(e.error_string()).unwrap_or_else(|| "unknown to the driver".into());
            Error::new(ErrorKind::Cuda, format!("{}: {name} ({meaning})", what().into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there is a driver this says nothing; `tests/gpu.rs` goes on from there.
    #[test]
    fn a_missing_driver_is_one_sentence_and_no_panic() {
        if available().is_ok() {
            return eprintln!("skipped: this machine has a driver");
        }
        let e = crate::cuda::stream(0).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Cuda);
        let text = e.to_string();
        assert!(text.starts_with("cuda: no NVIDIA driver found (libcuda.so.1: "), "{text}");
        assert!(text.ends_with("; use .host() for batches in host memory"), "{text}");
        for e in [Context::new(0).unwrap_err(), available().unwrap_err()] {
            assert!(
                e.to_string().ends_with(')'),
                "who asks for page-locked memory alone has called .host() already: {e}"
            );
        }
    }
}
