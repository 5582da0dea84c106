//! The pending responses of a decoder, and the conversion of requested images to bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyInt};
use warpfeed::{Error, Pending, Result};

use crate::batch::{Batch, Delivered};
use crate::buffer::{Buffer, IMAGE, type_name};
use crate::either::{either, match_either};
use crate::error::Raised as _;
use crate::lending::HeldBatches;
use crate::waiting::{OwnerProcess, WAIT_SLICE, wait_interruptibly};
use crate::wake::CallbackThread;

/// State shared by a decoder and its pending responses.
pub(crate) struct DecoderState {
    pub(crate) lending: HeldBatches,
    pub(crate) callback_thread: CallbackThread,
    pub(crate) process: OwnerProcess,
}

either! {
    PendingBatch of Pending
}

impl PendingBatch {
    /// Waits for the batch and takes it. For a device batch, `stream` waits instead of the host.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    #[allow(unsafe_code)]
    fn take_batch(&self, stream: usize) -> Result<Delivered> {
        Ok(match self {
            PendingBatch::Host(pending) => Delivered::Host(Arc::new(pending.wait()?)),
            #[cfg(feature = "cuda")]
            // SAFETY: `warpfeed/_decoder.py` passes a PyTorch stream, which lives as long as the
            // process, or the legacy default stream.
            PendingBatch::Cuda(pending) => Delivered::Cuda(Arc::new(unsafe { pending.wait_on(stream) }?)),
        })
    }
}

#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct PendingResponse {
    /// The pending batch, or `None` once the request has been canceled.
    pending: Mutex<Option<Arc<PendingBatch>>>,
    shared: Arc<DecoderState>,
}

impl PendingResponse {
    pub(crate) fn new(pending: PendingBatch, shared: Arc<DecoderState>) -> Self {
        PendingResponse { pending: Mutex::new(Some(Arc::new(pending))), shared }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<PendingBatch>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> Result<Arc<PendingBatch>> {
        self.shared.process.check()?;
        self.lock().clone().ok_or_else(|| Error::config("the request was canceled; submit it again"))
    }
}

#[pymethods]
impl PendingResponse {
    /// Waits until the batch is ready and takes it, which is possible only once. For a device
    /// batch, `stream` waits for the remaining work on the device. If `stream` is capturing a CUDA
    /// graph, the call fails, and the batch can be taken later.
    #[pyo3(signature = (stream=0))]
    fn wait(&self, py: Python<'_>, stream: usize) -> PyResult<Batch> {
        let ready = || {
            let ready = self
                .pending()
                .map(|pending| match_either!(PendingBatch, &*pending, pending => pending.is_ready_within(WAIT_SLICE)));
            if let Ok(false) = ready { None } else { Some(ready) }
        };
        wait_interruptibly(py, ready)?.raised(py)?;
        let result = py.detach(|| self.pending()?.take_batch(stream));
        Ok(self.shared.lending.lend(result.raised(py)?))
    }

    /// Registers `callback`, which a separate thread calls when the response is ready. If the
    /// response is already ready, returns false and does not register `callback`.
    fn when_ready(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        let waker = self.shared.callback_thread.waker(callback).raised(py)?;
        let pending = self.pending().raised(py)?;
        let mut context = Context::from_waker(&waker);
        Ok(match_either!(PendingBatch, &*pending, pending => pending.poll_ready(&mut context).is_pending()))
    }

    /// Cancels the request. This has no effect if the batch has already been taken.
    fn cancel(&self, py: Python<'_>) {
        if self.shared.process.is_this() {
            let pending = self.lock().take();
            py.detach(|| drop(pending));
        }
    }
}

/// Converts a requested image to the bytes of an encoded image or an `.npy` file. Copies the image
/// unless it is `bytes`.
pub(crate) fn image_bytes(image: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if image.is_instance_of::<PyBytes>() || image.is_instance_of::<PyByteArray>() {
        return Ok(image.extract()?);
    }
    let image = &image.py().import("warpfeed._samples")?.getattr("requested_image")?.call1((image,))?;
    match Buffer::from_object(image, true)? {
        Some(Buffer::Bytes(bytes)) => Ok(bytes.into()),
        Some(Buffer::Array { header, data, axes }) if axes > 1 => {
            Ok(PyBytes::new(image.py(), &[&header, data.as_bytes()].concat()).into())
        }
        _ => {
            // If the caller passes `bytes` instead of a list, the images are integers.
            let list = if image.is_instance_of::<PyInt>() { "; a request is a list of images" } else { "" };
            Err(PyTypeError::new_err(format!(
                "an image is {}; expected {IMAGE}, a uint8 tensor of shape (3, height, width), or a Pillow image{list}",
                type_name(image)
            )))
        }
    }
}
