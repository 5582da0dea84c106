//! Finds the CUDA driver, enters its contexts, and converts its errors.
//!
//! **Invariants**
//! 1. No function of cudarc that resolves a driver symbol runs before [`available`] has returned
//!    `Ok` in this process, because cudarc panics if libcuda cannot be opened. A [`Context`] exists
//!    only after that.
//! 2. Every raw driver call for an object in this folder runs while an [`Entered`] of its context
//!    is alive on the calling thread. `exit` counts the `Entered` as a call in progress, so that
//!    the exit of the process waits for the call. The outermost `Entered` of a thread may
//!    [rest](Entered::resting), because each call enters again.
//! 3. An [`Entered`] restores the current context and the capture mode of the thread, so the
//!    program's own calls on that thread are not affected.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::error::Error as _;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaStream, result, sys};

use super::exit::{self, Pass};
use crate::error::{Error, ErrorKind, Result};

/// Checks that a CUDA driver can be opened. The result is cached.
///
/// # Errors
/// [`ErrorKind::Cuda`] with the message of the dynamic linker, if there is no driver.
pub fn available() -> Result<()> {
    library().as_ref().map(|_| ()).map_err(|why| Error::new(ErrorKind::Cuda, format!("no NVIDIA driver found ({why})")))
}

fn library() -> &'static Result<libloading::Library, String> {
    static DRIVER: OnceLock<Result<libloading::Library, String>> = OnceLock::new();
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    DRIVER.get_or_init(|| {
        // SAFETY: the initializers of libcuda have no preconditions.
        unsafe { libloading::Library::new(name) }
            .map_err(|e| e.source().map_or_else(|| format!("{name}: {e}"), ToString::to_string))
    })
}

/// Returns whether the driver can record an event for all work of a context (`cuCtxRecordEvent`,
/// since CUDA 12.5, driver 555). cudarc panics if the symbol is missing.
pub(super) fn can_record_all() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        library().as_ref().is_ok_and(|library| {
            // SAFETY: the symbol is only looked up, not called.
            unsafe { library.get::<unsafe extern "C" fn()>(b"cuCtxRecordEvent\0") }.is_ok()
        })
    })
}

/// Returns the number of devices, or 0 without a driver or while the process exits.
pub(super) fn device_count() -> usize {
    let Ok(_pass) = initialize() else { return 0 };
    result::device::get_count().map_or(0, |count| count.max(0) as usize)
}

/// Opens and initializes the driver. The driver must not be called after the result is dropped.
/// Fails if there is no driver, or if the process is exiting.
fn initialize() -> Result<Pass> {
    available()?;
    let pass = exit::pass().ok_or_else(exiting_error)?;
    // If this fails, the next call fails as well and reports the error.
    let _ = result::init();
    Ok(pass)
}

pub(super) fn available_for_batches() -> Result<()> {
    available().map_err(|e| Error::new(e.kind(), format!("{}; use .host() for batches in host memory", e.cause())))
}

/// A device's context, which the program's own streams share.
#[derive(Clone, PartialEq, Eq)]
pub struct Context(Option<Arc<CudaContext>>);

impl Drop for Context {
    /// Restores the thread's current context, which cudarc changes when its last handle is dropped.
    fn drop(&mut self) {
        if let Some(context) = self.0.take().filter(|context| Arc::strong_count(context) == 1) {
            let restore = Entered::save_state();
            if restore.is_refused() {
                // The driver releases the context when the process ends.
                std::mem::forget(context);
            } else {
                drop(context);
            }
        }
    }
}

impl Context {
    /// Opens the primary context of device `ordinal`. The whole process shares this context. Fails
    /// if there is no driver or no such device.
    pub fn new(ordinal: usize) -> Result<Self> {
        let _pass = initialize()?;
        let restore = Entered::save_state();
        if restore.is_refused() {
            return Err(exiting_error());
        }
        let context = CudaContext::new(ordinal).doing(|| format!("opening device {ordinal}"))?;
        exit::register_exit_handler();
        Ok(Context(Some(context)))
    }

    /// Returns the primary context of device `ordinal`, or `None` if the program does not use it.
    pub(super) fn if_active(ordinal: usize) -> Result<Option<Self>> {
        let _pass = initialize()?;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the driver writes both results before the call returns.
        let state =
            unsafe { sys::cuDevicePrimaryCtxGetState(ordinal as sys::CUdevice, &raw mut flags, &raw mut active) };
        state.result().doing(|| format!("querying whether device {ordinal} is in use"))?;
        (active != 0).then(|| Context::new(ordinal)).transpose()
    }

    /// Returns the context of `stream`. Fails if there is no driver, or if the context is no longer
    /// usable.
    pub fn from_stream(stream: &Arc<CudaStream>) -> Result<Self> {
        available_for_batches()?;
        let context = Context(Some(stream.context().clone()));
        exit::register_exit_handler();
        context.enter()?;
        Ok(context)
    }

    /// Makes this context current on the calling thread until the result is dropped. Fails if the
    /// process is exiting. Unlike cudarc's `bind_to_thread`, this does not consume an error that
    /// cudarc has stored for the program.
    pub(crate) fn enter(&self) -> Result<Entered> {
        let mut entered = Entered::save_state();
        if entered.is_refused() {
            return Err(exiting_error());
        }
        let current = self.cudarc().cu_ctx();
        if entered.previous != current {
            // SAFETY: the context lives as long as the `Arc` in `self`.
            unsafe { result::ctx::set_current(current) }
                .doing(|| format!("binding the context of device {}", self.ordinal()))?;
        }
        entered.current = current;
        Ok(entered)
    }

    /// Returns cudarc's handle.
    pub fn cudarc(&self) -> &Arc<CudaContext> {
        self.0.as_ref().expect("the handle is taken only in `drop`")
    }

    /// Returns the index of the device.
    pub fn ordinal(&self) -> usize {
        self.cudarc().ordinal()
    }

    /// Returns the name of the device, such as `NVIDIA H200`.
    pub fn name(&self) -> Result<String> {
        let _entered = self.enter()?;
        result::device::get_name(self.cudarc().cu_device())
            .doing(|| format!("querying the name of device {}", self.ordinal()))
    }

    /// Returns the free and total device memory in bytes.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        result::mem_get_info().doing(|| format!("querying the memory of device {}", self.ordinal()))
    }
}

fn exiting_error() -> Error {
    Error::new(ErrorKind::Cuda, "the process is exiting")
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(device {})", self.ordinal())
    }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A scope in which a context is current on one thread. Dropping it restores the previous context
/// and capture mode of the thread.
pub struct Entered {
    previous: sys::CUcontext,
    current: sys::CUcontext,
    /// The previous capture mode, or `None` in a nested scope or if the driver did not return it.
    mode: Option<sys::CUstreamCaptureMode>,
    /// False if the process is exiting. Driver calls are then forbidden.
    is_entered: bool,
    /// Counts the scope as a call in progress. `None` if the scope is resting or was not entered.
    pass: Option<Pass>,
    _on_this_thread: PhantomData<*const ()>,
}

impl Entered {
    /// Saves the state of the thread without changing the context, and switches the thread to the
    /// relaxed capture mode. In the default capture mode, querying an event invalidates a capture
    /// that a different thread has started (measured on driver 580).
    ///
    /// If the process is exiting, the result is [refused](Self::is_refused).
    pub(super) fn save_state() -> Self {
        let depth = DEPTH.replace(DEPTH.get() + 1);
        let Some(pass) = exit::pass() else {
            let null = std::ptr::null_mut();
            let (mode, pass) = (None, None);
            return Entered {
                previous: null,
                current: null,
                mode,
                is_entered: false,
                pass,
                _on_this_thread: PhantomData,
            };
        };
        let previous = result::ctx::get_current().ok().flatten().unwrap_or(std::ptr::null_mut());
        Entered {
            previous,
            current: previous,
            mode: (depth == 0)
                .then(|| exchange_capture_mode(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED))
                .flatten(),
            is_entered: true,
            pass: Some(pass),
            _on_this_thread: PhantomData,
        }
    }

    /// Returns whether driver calls are forbidden because the process is exiting.
    pub(super) fn is_refused(&self) -> bool {
        !self.is_entered
    }

    /// Lets a thread keep the scope while it is idle. A resting scope does not count as a call in
    /// progress, so the process can exit. Each driver call must enter again.
    pub(crate) fn resting(mut self) -> Self {
        self.pass = None;
        self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if self.is_refused() {
            return;
        }
        let Some(_pass) = self.pass.take().or_else(exit::pass) else { return };
        self.mode.map(exchange_capture_mode);
        let now = result::ctx::get_current().ok().flatten().unwrap_or(self.current);
        if now != self.previous {
            // SAFETY: this context, or no context, was current on this thread before.
            let _ = unsafe { result::ctx::set_current(self.previous) };
        }
    }
}

fn exchange_capture_mode(mut mode: sys::CUstreamCaptureMode) -> Option<sys::CUstreamCaptureMode> {
    // SAFETY: the driver reads and writes the mode during the call. This code is not reached
    // without a driver (invariant 1).
    let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    exchanged.result().is_ok().then_some(mode)
}

pub(super) trait Doing<T> {
    fn doing<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Doing<T> for Result<T, DriverError> {
    fn doing<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| {
            let words =
                |text: Result<&std::ffi::CStr, DriverError>| text.ok().map(|t| t.to_string_lossy().into_owned());
            let name = words(e.error_name()).unwrap_or_else(|| format!("code {}", e.0 as u32));
            let meaning = words(e.error_string()).unwrap_or_else(|| "unknown to the driver".into());
            let advice = if ends_context(e) {
                "; the cause is an earlier kernel or copy of this process, which can no longer use the device: restart \
                 the process, with CUDA_LAUNCH_BLOCKING=1 to find the call that fails"
            } else {
                ""
            };
            Error::new(ErrorKind::Cuda, format!("{}: {name} ({meaning}){advice}", operation().into()))
        })
    }
}

/// Returns whether the error came from earlier work and makes the context unusable, so that all
/// later calls fail with the same error.
fn ends_context(error: DriverError) -> bool {
    use sys::CUresult as Code;
    matches!(
        error.0,
        Code::CUDA_ERROR_ILLEGAL_ADDRESS
            | Code::CUDA_ERROR_LAUNCH_FAILED
            | Code::CUDA_ERROR_LAUNCH_TIMEOUT
            | Code::CUDA_ERROR_ASSERT
            | Code::CUDA_ERROR_HARDWARE_STACK_ERROR
            | Code::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | Code::CUDA_ERROR_MISALIGNED_ADDRESS
            | Code::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | Code::CUDA_ERROR_INVALID_PC
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resting_context_does_not_count_as_a_call() {
        if let Err(e) = available() {
            return crate::require::missing("cuda", e);
        }
        let context = Context::new(0).unwrap();
        let current = || result::ctx::get_current().ok().flatten();
        let before = current();
        let guard = context.enter().unwrap().resting();
        let nested = context.enter().unwrap();
        assert!(exit::calls_in_progress() > 0);
        drop(nested);
        assert_eq!(current(), Some(context.cudarc().cu_ctx()));
        // Other tests make calls concurrently.
        let since = std::time::Instant::now();
        while exit::calls_in_progress() > 0 {
            assert!(since.elapsed().as_secs() < 60, "a resting context counts as a call");
            std::thread::yield_now();
        }
        drop(guard);
        assert_eq!(current(), before);
    }

    #[test]
    fn a_missing_driver_is_reported_in_one_sentence() {
        if available().is_ok() {
            return crate::require::missing("no-driver", "this machine has a driver");
        }
        let e = crate::device::nvidia::stream(0).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Cuda);
        let text = e.to_string();
        // The dynamic linker of Windows does not name the library.
        let cause = if cfg!(windows) { "" } else { "libcuda.so.1: " };
        assert!(text.starts_with(&format!("cuda: no NVIDIA driver found ({cause}")), "{text}");
        assert!(text.ends_with("; use .host() for batches in host memory"), "{text}");
        for e in [Context::new(0).unwrap_err(), available().unwrap_err()] {
            assert!(
                e.to_string().ends_with(')'),
                "a caller that only wants page-locked memory has already called .host(): {e}"
            );
        }
    }
}
