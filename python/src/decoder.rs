use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use warpfeed::{Error, HostBatch, Loader};

use crate::batch::{Batch, Delivered};
use crate::core::json;
use crate::error::Raised as _;
use crate::options;

/// How long a wait lasts at most before signals are looked for.
const SLICE: Duration = Duration::from_millis(50);

/// An open decoder.
#[derive(Clone)]
enum Open {
    Host(Arc<warpfeed::Decoder<HostBatch>>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<warpfeed::Decoder<warpfeed::CudaBatch>>),
}

/// Calls something that both kinds of decoders have.
macro_rules! of {
    ($open:expr, $decoder:ident => $value:expr) => {
        match $open {
            Open::Host($decoder) => $value,
            #[cfg(feature = "cuda")]
            Open::Cuda($decoder) => $value,
        }
    };
}

/// Decodes requests.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct DecoderCore {
    open: Mutex<Option<Open>>,
    copy: Option<bool>,
    process: u32,
}

impl DecoderCore {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, py: Python<'_>) -> PyResult<Open> {
        self.lock().clone().ok_or_else(|| Error::config("the decoder is closed")).raised(py)
    }
}

#[pymethods]
impl DecoderCore {
    /// Opens a decoder. `device` is the number of a CUDA device, and `stream` an address of a stream
    /// of its primary context; without a device batches are in host memory.
    #[new]
    #[pyo3(signature = (options, copy=None, device=None, stream=0))]
    fn new(
        py: Python<'_>,
        options: &Bound<'_, PyDict>,
        copy: Option<bool>,
        device: Option<usize>,
        stream: usize,
    ) -> PyResult<Self> {
        let loader = options::set_all(Loader::requests(), options)?;
        let open = py.detach(|| match device {
            None => Ok(Open::Host(Arc::new(loader.decoder()?))),
            Some(ordinal) => on_device(loader, ordinal, stream),
        });
        Ok(DecoderCore { open: Mutex::new(Some(open.raised(py)?)), copy, process: std::process::id() })
    }

    /// Begins to decode `pictures`. On a device, the batch will be ordered on the stream `stream`.
    #[pyo3(signature = (pictures, stream=0))]
    fn submit(&self, py: Python<'_>, pictures: Vec<PyBackedBytes>, stream: usize) -> PyResult<Answer> {
        let waits = py.detach(|| {
            Ok(match self.lock().as_ref().ok_or_else(|| Error::config("the decoder is closed"))? {
                Open::Host(decoder) => Waits::Host(decoder.submit(pictures)?),
                #[cfg(feature = "cuda")]
                Open::Cuda(decoder) => Waits::Cuda(decoder.submit(pictures)?),
            })
        });
        Ok(Answer { waits: Mutex::new(Some(waits.raised(py)?)), copy: self.copy, stream })
    }

    /// The most pictures of a request.
    fn max_batch(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(of!(self.open(py)?, decoder => decoder.max_batch()))
    }

    /// The memory plan as JSON, and as a sentence.
    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan = of!(self.open(py)?, decoder => decoder.memory_plan());
        Ok((json(&plan), plan.to_string()))
    }

    /// The statistics as JSON, and as a table.
    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let open = self.open(py)?;
        let stats = py.detach(|| of!(open, decoder => decoder.stats()));
        Ok((json(&stats), stats.to_string()))
    }

    /// Ends all threads. Batches that are held stay valid.
    fn close(&self, py: Python<'_>) {
        if self.process == std::process::id() {
            py.detach(|| drop(self.lock().take()));
        }
    }
}

impl Drop for DecoderCore {
    fn drop(&mut self) {
        let mut open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            Python::try_attach(|py| py.detach(|| drop(open.take())));
        }
        // After `fork` the threads are not here, and with the interpreter the process is about to end.
        std::mem::forget(open);
    }
}

/// A batch that is being made.
enum Waits {
    Host(warpfeed::Pending<HostBatch>),
    #[cfg(feature = "cuda")]
    Cuda(warpfeed::Pending<warpfeed::CudaBatch>),
}

impl Waits {
    fn is_ready_within(&self, timeout: Duration) -> bool {
        match self {
            Waits::Host(pending) => pending.is_ready_within(timeout),
            #[cfg(feature = "cuda")]
            Waits::Cuda(pending) => pending.is_ready_within(timeout),
        }
    }

    fn wait(self) -> warpfeed::Result<Delivered> {
        Ok(match self {
            Waits::Host(pending) => Delivered::Host(Arc::new(pending.wait()?)),
            #[cfg(feature = "cuda")]
            Waits::Cuda(pending) => Delivered::Cuda(Arc::new(pending.wait()?)),
        })
    }
}

/// The answer to a request.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Answer {
    waits: Mutex<Option<Waits>>,
    copy: Option<bool>,
    stream: usize,
}

#[pymethods]
impl Answer {
    /// Waits for the batch, which can be taken once.
    fn wait(&self, py: Python<'_>) -> PyResult<Batch> {
        let taken = self.waits.lock().unwrap_or_else(PoisonError::into_inner).take();
        let waits = taken.ok_or_else(|| Error::config("the batch was taken before, or is waited for")).raised(py)?;
        while !py.detach(|| waits.is_ready_within(SLICE)) {
            if let Err(signal) = py.check_signals() {
                *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = Some(waits);
                return Err(signal);
            }
        }
        let delivered = waits.wait().raised(py)?;
        Ok(Batch { delivered, copy: self.copy, stream: self.stream })
    }
}

#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
fn on_device(loader: Loader, ordinal: usize, stream: usize) -> warpfeed::Result<Open> {
    // SAFETY: `warpfeed/_decoder.py` passes a stream of PyTorch's, which live as long as the
    // process, or the legacy default stream.
    let stream = unsafe { warpfeed::cuda::borrowed_stream(ordinal, stream) }?;
    Ok(Open::Cuda(Arc::new(loader.cuda_decoder(&stream)?)))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: Loader, _: usize, _: usize) -> warpfeed::Result<Open> {
    Err(Error::new(warpfeed::ErrorKind::Cuda, "this build of the package has no CUDA; use device=\"cpu\""))
}
