use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt};
use warpfeed::{DecoderBuilder, Error, HostBatch, Result};

use crate::batch::{Batch, Delivered};
use crate::buffer::{Buffer, PICTURE, type_name};
use crate::core::json;
use crate::error::Raised as _;
use crate::joined::JoinedCore;
use crate::lending::Lending;
use crate::options::{self, Delivery};
use crate::waiting::{Process, SLICE, apart, aside, dropping, patiently};
use crate::wake::Caller;

/// An open decoder.
#[derive(Clone)]
pub(crate) enum Open {
    Host(Arc<warpfeed::Decoder<HostBatch>>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<warpfeed::Decoder<warpfeed::CudaBatch>>),
}

/// Evaluates `$result` with either kind of decoder or answer.
macro_rules! of {
    ($kind:ident, $value:expr, $it:ident => $result:expr) => {
        match $value {
            $kind::Host($it) => $result,
            #[cfg(feature = "cuda")]
            $kind::Cuda($it) => $result,
        }
    };
}

/// Decodes requests.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct DecoderCore {
    open: Mutex<Option<Open>>,
    /// Set when `ends` has ended the threads.
    ended: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

/// State shared by a decoder and its answers.
pub(crate) struct Shared {
    lending: Lending,
    caller: Caller,
    pub(crate) process: Process,
}

impl DecoderCore {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<Open> {
        self.shared.process.check()?;
        self.lock().clone().ok_or_else(|| Error::config("the decoder is closed"))
    }
}

#[pymethods]
impl DecoderCore {
    /// Opens a decoder with the `options` of `warpfeed/_decoder.py`.
    #[new]
    fn new(py: Python<'_>, options: &Bound<'_, PyDict>, delivery: Delivery) -> PyResult<Self> {
        let (copy, device, stream) = delivery;
        let options = options::decoder(options)?;
        let open = aside(py, move |_| match device {
            None => Ok(Open::Host(Arc::new(options.host()?))),
            Some(ordinal) => on_device(options, ordinal, stream),
        })?;
        let lending = Lending::of_decoder(copy);
        let process = Process::new("decoder", "open it after forking");
        let shared = Arc::new(Shared { lending, caller: Caller::default(), process });
        Ok(DecoderCore { open: Mutex::new(Some(open)), ended: Arc::default(), shared })
    }

    /// Begins to decode `pictures`.
    fn submit(&self, py: Python<'_>, pictures: Vec<Bound<'_, PyAny>>) -> PyResult<Answer> {
        let open = self.open().raised(py)?;
        let pictures = pictures.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        let waits = py.detach(|| {
            Ok(match open {
                Open::Host(decoder) => Waits::Host(decoder.submit(pictures)?),
                #[cfg(feature = "cuda")]
                Open::Cuda(decoder) => Waits::Cuda(decoder.submit(pictures)?),
            })
        });
        Ok(Answer::new(waits.raised(py)?, self.shared.clone()))
    }

    /// Joins the pictures of several requests into batches, which begin `max_delay` seconds after
    /// their first request.
    fn joined(&self, py: Python<'_>, max_delay: f64) -> PyResult<JoinedCore> {
        let open = self.open().raised(py)?;
        JoinedCore::new(&open, Duration::from_secs_f64(max_delay), self.shared.clone()).raised(py)
    }

    /// Maximum number of pictures in a request.
    fn max_batch(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(of!(Open, self.open().raised(py)?, decoder => decoder.max_batch()))
    }

    /// The memory plan as JSON, and as a sentence.
    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan = of!(Open, self.open().raised(py)?, decoder => decoder.memory_plan());
        Ok((json(&plan), plan.to_string()))
    }

    /// The statistics as JSON, and as a table.
    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let open = self.open().raised(py)?;
        let stats = py.detach(|| of!(Open, open, decoder => decoder.stats()));
        Ok((json(&stats), stats.to_string()))
    }

    /// Ends all threads. Batches that the program holds stay valid. If a signal ends the wait, the
    /// threads still end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.shared.process.is_this() {
            return Ok(());
        }
        let (open, ended) = (self.lock().take(), self.ended.clone());
        aside(py, move |_| {
            if let Some(open) = open {
                // Requests that are joined hold the decoder, too.
                of!(Open, &open, decoder => decoder.close());
                drop(open);
                ended.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Begins to end all threads, and returns at once. Returns whether they have ended.
    fn ends(&self) -> bool {
        if !self.shared.process.is_this() {
            return true;
        }
        let Some(open) = self.lock().take() else { return self.ended.load(Ordering::Relaxed) };
        let ended = self.ended.clone();
        apart(move || {
            of!(Open, &open, decoder => decoder.close());
            drop(open);
            ended.store(true, Ordering::Relaxed);
        });
        false
    }
}

impl Drop for DecoderCore {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        dropping(&self.shared.process, open);
    }
}

/// The bytes of an encoded picture. Only `bytes` and `bytearray` are not copied. Tensors, grey arrays
/// and images of Pillow are converted by `warpfeed._given`.
pub(crate) fn bytes(picture: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if picture.is_instance_of::<PyBytes>() || picture.is_instance_of::<PyByteArray>() {
        return Ok(picture.extract()?);
    }
    let picture = &picture.py().import("warpfeed._given")?.getattr("asked")?.call1((picture,))?;
    match Buffer::of(picture, true)? {
        Some(Buffer::Bytes(bytes)) => Ok(bytes.into()),
        Some(Buffer::Array { header, data, axes }) if axes > 1 => {
            Ok(PyBytes::new(picture.py(), &[&header, data.as_bytes()].concat()).into())
        }
        _ => {
            // The items of `bytes` are numbers.
            let list = if picture.is_instance_of::<PyInt>() { "; a request is a list of pictures" } else { "" };
            Err(PyTypeError::new_err(format!(
                "a picture is {}; want {PICTURE}, a tensor (3, height, width) of uint8, or an image of Pillow{list}",
                type_name(picture)
            )))
        }
    }
}

/// An answer that is not taken yet.
pub(crate) enum Waits {
    Host(warpfeed::Pending<HostBatch>),
    #[cfg(feature = "cuda")]
    Cuda(warpfeed::Pending<warpfeed::CudaBatch>),
}

impl Waits {
    /// Takes the batch, for use on the stream `stream` if it is on a device.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    #[allow(unsafe_code)]
    fn taken(&self, stream: usize) -> Result<Delivered> {
        Ok(match self {
            Waits::Host(pending) => Delivered::Host(Arc::new(pending.wait()?)),
            #[cfg(feature = "cuda")]
            // SAFETY: `warpfeed/_decoder.py` passes a stream of PyTorch's, which live as long as
            // the process, or the legacy default stream.
            Waits::Cuda(pending) => Delivered::Cuda(Arc::new(unsafe { pending.wait_on(stream) }?)),
        })
    }
}

/// The answer to a request.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Answer {
    /// None once the request is cancelled.
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
    /// Waits for the batch, which can be taken once. On a device, the stream `stream` waits for it.
    /// If that stream is being captured, the batch stays here.
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

    /// Calls `callback` on another thread once the answer is ready. If it is ready already, returns
    /// false and calls nothing.
    fn when_ready(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<bool> {
        let waker = self.shared.caller.waker(callback).raised(py)?;
        let waits = self.waits().raised(py)?;
        let mut context = Context::from_waker(&waker);
        Ok(of!(Waits, &*waits, pending => pending.poll_ready(&mut context).is_pending()))
    }

    /// Cancels the request, unless its batch was taken.
    fn cancel(&self, py: Python<'_>) {
        if self.shared.process.is_this() {
            let waits = self.lock().take();
            py.detach(|| drop(waits));
        }
    }
}

#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
fn on_device(options: DecoderBuilder, ordinal: usize, stream: usize) -> Result<Open> {
    // SAFETY: `warpfeed/_decoder.py` passes a stream of PyTorch's, which live as long as the
    // process, or the legacy default stream.
    let stream = unsafe { warpfeed::cuda::borrowed_stream(ordinal, stream) }?;
    Ok(Open::Cuda(Arc::new(options.cuda(&stream)?)))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: DecoderBuilder, _: usize, _: usize) -> Result<Open> {
    Err(Error::new(warpfeed::ErrorKind::Cuda, "this build of the package has no CUDA; use device=\"cpu\""))
}
