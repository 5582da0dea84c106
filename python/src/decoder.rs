//! An open decoder in Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpfeed::{DecoderBuilder, Error, Result};

use crate::core::json;
use crate::dynamic_batcher::{DynamicBatcherCore, Requests};
use crate::either::{either, map_either, match_either};
use crate::error::Raised as _;
use crate::gpu;
use crate::lending::HeldBatches;
use crate::options::{self, Delivery};
use crate::response::{DecoderState, PendingBatch, PendingResponse, image_bytes};
use crate::waiting::{OwnerProcess, drop_detached, run_on_thread, spawn_shutdown};
use crate::wake::CallbackThread;

type Decoder<B> = Arc<warpfeed::Decoder<B>>;

either! {
    #[derive(Clone)]
    OpenDecoder of Decoder
}

#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct DecoderCore {
    open: Mutex<Option<OpenDecoder>>,
    /// Whether closing was requested and the threads have stopped.
    is_stopped: Arc<AtomicBool>,
    shared: Arc<DecoderState>,
}

impl DecoderCore {
    fn lock(&self) -> MutexGuard<'_, Option<OpenDecoder>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<OpenDecoder> {
        self.shared.process.check()?;
        self.lock().clone().ok_or_else(|| Error::config("the decoder is closed"))
    }
}

#[pymethods]
impl DecoderCore {
    /// `options` is the dict that `warpfeed/_decoder.py` builds.
    #[new]
    fn new(py: Python<'_>, options: &Bound<'_, PyDict>, delivery: Delivery) -> PyResult<Self> {
        let (copy, device, stream) = delivery;
        let options = options::decoder_builder(options)?;
        let open = run_on_thread(py, move |_| match device {
            None => Ok(OpenDecoder::Host(Arc::new(options.host()?))),
            Some(ordinal) => on_device(options, ordinal, stream),
        })?;
        let lending = HeldBatches::for_decoder(copy);
        let process = OwnerProcess::new("decoder", "open it after forking");
        let shared = Arc::new(DecoderState { lending, callback_thread: CallbackThread::default(), process });
        Ok(DecoderCore { open: Mutex::new(Some(open)), is_stopped: Arc::default(), shared })
    }

    fn submit(&self, py: Python<'_>, images: Vec<Bound<'_, PyAny>>) -> PyResult<PendingResponse> {
        let open = self.open().raised(py)?;
        let images = images.iter().map(image_bytes).collect::<PyResult<Vec<_>>>()?;
        let pending =
            py.detach(|| Ok(map_either!(OpenDecoder, open, decoder => PendingBatch, decoder.submit(images)?)));
        Ok(PendingResponse::new(pending.raised(py)?, self.shared.clone()))
    }

    /// A batch starts to decode once it is full or `max_delay` seconds have passed since its first
    /// request. A busy decoder may delay it further.
    fn dynamic_batcher(&self, py: Python<'_>, max_delay: f64) -> PyResult<DynamicBatcherCore> {
        let open = self.open().raised(py)?;
        let max_delay = Duration::from_secs_f64(max_delay);
        let requests =
            map_either!(OpenDecoder, open, decoder => Requests, decoder.dynamic_batcher(max_delay).raised(py)?);
        Ok(DynamicBatcherCore::new(requests, self.shared.clone()))
    }

    fn max_batch(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(match_either!(OpenDecoder, self.open().raised(py)?, decoder => decoder.max_batch()))
    }

    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan = match_either!(OpenDecoder, self.open().raised(py)?, decoder => decoder.memory_plan());
        Ok((json(&plan), plan.to_string()))
    }

    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let open = self.open().raised(py)?;
        let stats = py.detach(|| match_either!(OpenDecoder, open, decoder => decoder.stats()));
        Ok((json(&stats), stats.to_string()))
    }

    /// Stops all threads and waits for them. If a signal interrupts this call, the threads still
    /// stop. Does not wait if an earlier call has already begun to stop them.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.shared.process.is_this() {
            return Ok(());
        }
        let (open, is_stopped) = (self.lock().take(), self.is_stopped.clone());
        run_on_thread(py, move |_| {
            if let Some(open) = open {
                // The dynamic batcher also holds a reference to the decoder, so dropping `open` is
                // not enough.
                match_either!(OpenDecoder, &open, decoder => decoder.close());
                drop(open);
                is_stopped.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    fn begin_close(&self) -> bool {
        if !self.shared.process.is_this() {
            return true;
        }
        let Some(open) = self.lock().take() else { return self.is_stopped.load(Ordering::Relaxed) };
        let is_stopped = self.is_stopped.clone();
        spawn_shutdown(move || {
            match_either!(OpenDecoder, &open, decoder => decoder.close());
            drop(open);
            is_stopped.store(true, Ordering::Relaxed);
        });
        false
    }
}

impl Drop for DecoderCore {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        drop_detached(&self.shared.process, open);
    }
}

#[cfg(feature = "cuda")]
fn on_device(options: DecoderBuilder, ordinal: usize, stream: usize) -> Result<OpenDecoder> {
    Ok(OpenDecoder::Cuda(Arc::new(options.cuda(&gpu::stream(ordinal, stream)?)?)))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: DecoderBuilder, ordinal: usize, stream: usize) -> Result<OpenDecoder> {
    match gpu::stream(ordinal, stream)? {}
}
