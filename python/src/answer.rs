use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyInt};
use warpfeed::{Error, Pending, Result};

use crate::batch::{Batch, Delivered};
use crate::buffer::{Buffer, IMAGE, type_name};
use crate::either::{either, of};
use crate::error::Raised as _;
use crate::lending::Lending;
use crate::waiting::{Process, SLICE, patiently};
use crate::wake::Caller;

/// State that a decoder shares with its pending responses.
pub(crate) struct Shared {
    pub(crate) lending: Lending,
    pub(crate) caller: Caller,
    pub(crate) process: Process,
}

either! {
    /// A pending response whose batch has not been taken yet.
    Waits of Pending
}

impl Waits {
    /// Takes the batch. For a batch on a device, makes `stream` wait until the batch is ready.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    #[allow(unsafe_code)]
    fn taken(&self, stream: usize) -> Result<Delivered> {
        Ok(match self {
            Waits::Host(pending) => Delivered::Host(Arc::new(pending.wait()?)),
            #[cfg(feature = "cuda")]
            // SAFETY: `warpfeed/_decoder.py` passes a PyTorch stream, which lives as long as the
            // process, or the legacy default stream.
            Waits::Cuda(pending) => Delivered::Cuda(Arc::new(unsafe { pending.wait_on(stream) }?)),
        })
    }
}

/// The pending response to a request.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Answer {
    /// `None` after the request was cancelled.
    waits: Mutex<Option<Arc<Waits>>>,
    shared: Arc<Shared>,
}

impl Answer {
    pub(crate) fn new(waits: Waits, shared: Arc<Shared>) -> Self {
        Answer { waits: Mutex::new(Some(Arc::new(waits))), shared }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Waits>>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> Result<Arc<Waits>> {
        self.shared.process.check()?;
        self.lock().clone().ok_or_else(|| Error::config("the request was cancelled; submit it again"))
    }
}

#[pymethods]
impl Answer {
    /// Waits for the batch, which can be taken only once. If it is on a device, the stream `stream`
    /// waits for it. If that stream is being captured, the batch is not taken.
    #[pyo3(signature = (stream=0))]
    fn wait(&self, py: Python<'_>, stream: usize) -> PyResult<Batch> {
        let ready = || {
            let ready = self.waits().map(|waits| of!(Waits, &*waits, pending => pending.is_ready_within(SLICE)));
            if let Ok(false) = ready { None } else { Some(ready) }
        };
        patiently(py, ready)?.raised(py)?;
        let taken = py.detach(|| self.waits()?.taken(stream));
        Ok(self.shared.lending.lend(taken.raised(py)?))
    }

    /// Calls `callback` on a separate thread once the response is ready. If it is ready already,
    /// returns false without calling `callback`.
    fn when_ready(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        let waker = self.shared.caller.waker(callback).raised(py)?;
        let waits = self.waits().raised(py)?;
        let mut context = Context::from_waker(&waker);
        Ok(of!(Waits, &*waits, pending => pending.poll_ready(&mut context).is_pending()))
    }

    /// Cancels the request, unless its batch has been taken.
    fn cancel(&self, py: Python<'_>) {
        if self.shared.process.is_this() {
            let waits = self.lock().take();
            py.detach(|| drop(waits));
        }
    }
}

/// Returns the bytes of an encoded image. `bytes` and `bytearray` are not copied; everything else
/// is. `warpfeed._samples` converts tensors, gray arrays and Pillow images.
pub(crate) fn bytes(image: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if image.is_instance_of::<PyBytes>() || image.is_instance_of::<PyByteArray>() {
        return Ok(image.extract()?);
    }
    let image = &image.py().import("warpfeed._samples")?.getattr("requested_image")?.call1((image,))?;
    match Buffer::of(image, true)? {
        Some(Buffer::Bytes(bytes)) => Ok(bytes.into()),
        Some(Buffer::Array { header, data, axes }) if axes > 1 => {
            Ok(PyBytes::new(image.py(), &[&header, data.as_bytes()].concat()).into())
        }
        _ => {
            // An integer means that the caller passed `bytes` instead of a list: iterating over
            // `bytes` yields integers.
            let list = if image.is_instance_of::<PyInt>() { "; a request is a list of images" } else { "" };
            Err(PyTypeError::new_err(format!(
                "an image is {}; expected {IMAGE}, a tensor (3, height, width) of uint8, or a Pillow image{list}",
                type_name(image)
            )))
        }
    }
}
