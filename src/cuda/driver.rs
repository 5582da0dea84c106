#![allow(unsafe_code)]
//! Is there a driver, and what did it say.
//!
//! **Invariants**
//! 1. No function of cudarc that resolves a driver symbol runs before [`available`] has returned `Ok` in this process: cudarc panics when
//!    libcuda cannot be opened. A [`Context`] exists only after that.
//! 2. Every raw driver call in this folder runs with the context of its object bound to the calling thread ([`Context::bind`]).

use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaStream};

use crate::error::{Error, ErrorKind, Result};

/// Whether a CUDA driver can be opened. The answer is looked up once a process.
///
/// # Errors
/// [`ErrorKind::Cuda`] with what the dynamic linker said.
pub fn available() -> Result<()> {
    static DRIVER: OnceLock<Result<(), String>> = OnceLock::new();
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    let found = DRIVER.get_or_init(|| {
        // SAFETY: libcuda's initialisers have no preconditions. The handle is leaked on purpose: the driver stays loaded anyhow, and
        // unloading it while cudarc holds a handle of its own would gain nothing.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => {
                std::mem::forget(library);
                Ok(())
            }
            // What the linker said, which names the library, is the error's source.
            Err(e) => Err(e.source().map_or_else(|| format!("{name}: {e}"), ToString::to_string)),
        }
    });
    found.clone().map_err(|why| Error::new(ErrorKind::Cuda, format!("no NVIDIA driver found ({why})")))
}

/// [`available`] for those who want batches on a device: where there is no driver the error says what there is instead.
fn available_for_batches() -> Result<()> {
    available().map_err(|e| Error::new(e.kind(), format!("{}; use .host() for batches in host memory", e.cause())))
}

/// A new non-blocking stream on device `ordinal`, for programs that have none of their own yet.
///
/// # Errors
/// [`ErrorKind::Cuda`] without a driver, or without that device.
pub fn stream(ordinal: usize) -> Result<Arc<CudaStream>> {
    available_for_batches()?;
    Context::new(ordinal)?.0.new_stream().doing(|| format!("making a stream on device {ordinal}"))
}

/// One device's context, shared with the program's own streams.
#[derive(Clone)]
pub struct Context(Arc<CudaContext>);

impl Context {
    /// The primary context of device `ordinal`, which is the one that programs share.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] without a driver, or without that device.
    pub fn new(ordinal: usize) -> Result<Self> {
        available()?;
        CudaContext::new(ordinal).doing(|| format!("opening device {ordinal}")).map(Context)
    }

    /// The context that `stream` belongs to.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the context is no longer usable.
    pub fn of(stream: &Arc<CudaStream>) -> Result<Self> {
        available_for_batches()?;
        let context = Context(stream.context().clone());
        context.bind()?;
        Ok(context)
    }

    /// Makes it the calling thread's context.
    pub(super) fn bind(&self) -> Result<()> {
        self.0.bind_to_thread().doing(|| format!("binding the context of device {}", self.0.ordinal()))
    }

    /// cudarc's handle.
    pub fn cudarc(&self) -> &Arc<CudaContext> {
        &self.0
    }

    /// The device's number.
    pub fn ordinal(&self) -> usize {
        self.0.ordinal()
    }

    /// The device's name, such as `NVIDIA H200`.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the driver does not say.
    pub fn name(&self) -> Result<String> {
        self.0.name().doing(|| format!("asking for the name of device {}", self.ordinal()))
    }

    /// Free and total bytes of device memory.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`] if the driver does not say.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.0.mem_get_info().doing(|| format!("asking for the memory of device {}", self.ordinal()))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(device {})", self.ordinal())
    }
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
        let e = stream(0).unwrap_err();
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
