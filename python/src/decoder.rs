//! An open decoder in Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpfeed::{DecoderBuilder, Error, Result};

use crate::answer::{Answer, PendingBatch, Shared, bytes};
use crate::core::json;
use crate::dynamic_batcher::{DynamicBatcherCore, Requests};
use crate::either::{either, map_either, match_either};
use crate::error::Raised as _;
use crate::gpu;
use crate::lending::HeldBatches;
use crate::options::{self, Delivery};
use crate::waiting::{Process, drop_detached, run_on_thread, spawn_shutdown};
use crate::wake::Caller;

type Decoder<B> = Arc<warpfeed::Decoder<B>>;

either! {
    #[derive(Clone)]
    Open of Decoder
}

#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct DecoderCore {
    open: Mutex<Option<Open>>,
    /// Whether closing was requested and the threads have stopped.
    ended: Arc<AtomicBool>,
    shared: Arc<Shared>,
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
    /// Opens a decoder. `options` is the dict that `warpfeed/_decoder.py` builds.
    #[new]
    fn new(py: Python<'_>, options: &Bound<'_, PyDict>, delivery: Delivery) -> PyResult<Self> {
        let (copy, device, stream) = delivery;
        let options = options::decoder(options)?;
        let open = run_on_thread(py, move |_| match device {
            None => Ok(Open::Host(Arc::new(options.host()?))),
            Some(ordinal) => on_device(options, ordinal, stream),
        })?;
        let lending = HeldBatches::for_decoder(copy);
        let process = Process::new("decoder", "open it after forking");
        let shared = Arc::new(Shared { lending, caller: Caller::default(), process });
        Ok(DecoderCore { open: Mutex::new(Some(open)), ended: Arc::default(), shared })
    }

    fn submit(&self, py: Python<'_>, images: Vec<Bound<'_, PyAny>>) -> PyResult<Answer> {
        let open = self.open().raised(py)?;
        let images = images.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        let pending = py.detach(|| Ok(map_either!(Open, open, decoder => PendingBatch, decoder.submit(images)?)));
        Ok(Answer::new(pending.raised(py)?, self.shared.clone()))
    }

    /// Creates a dynamic batcher. Decoding of a batch starts at most `max_delay` seconds after its
    /// first request.
    fn dynamic_batcher(&self, py: Python<'_>, max_delay: f64) -> PyResult<DynamicBatcherCore> {
        let open = self.open().raised(py)?;
        let max_delay = Duration::from_secs_f64(max_delay);
        let requests = map_either!(Open, open, decoder => Requests, decoder.dynamic_batcher(max_delay).raised(py)?);
        Ok(DynamicBatcherCore::new(requests, self.shared.clone()))
    }

    fn max_batch(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(match_either!(Open, self.open().raised(py)?, decoder => decoder.max_batch()))
    }

    /// Returns the memory plan as JSON and as a sentence.
    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan = match_either!(Open, self.open().raised(py)?, decoder => decoder.memory_plan());
        Ok((json(&plan), plan.to_string()))
    }

    /// Returns the statistics as JSON and as a table.
    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let open = self.open().raised(py)?;
        let stats = py.detach(|| match_either!(Open, open, decoder => decoder.stats()));
        Ok((json(&stats), stats.to_string()))
    }

    /// Stops all threads and waits for them. If a signal interrupts this call, the threads still
    /// stop.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.shared.process.is_this() {
            return Ok(());
        }
        let (open, ended) = (self.lock().take(), self.ended.clone());
        run_on_thread(py, move |_| {
            if let Some(open) = open {
                // The dynamic batcher also holds a reference to the decoder, so dropping this one
                // is not enough.
                match_either!(Open, &open, decoder => decoder.close());
                drop(open);
                ended.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Starts to stop all threads. Returns whether all of them have stopped.
    fn begin_close(&self) -> bool {
        if !self.shared.process.is_this() {
            return true;
        }
        let Some(open) = self.lock().take() else { return self.ended.load(Ordering::Relaxed) };
        let ended = self.ended.clone();
        spawn_shutdown(move || {
            match_either!(Open, &open, decoder => decoder.close());
            drop(open);
            ended.store(true, Ordering::Relaxed);
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
fn on_device(options: DecoderBuilder, ordinal: usize, stream: usize) -> Result<Open> {
    Ok(Open::Cuda(Arc::new(options.cuda(&gpu::stream(ordinal, stream)?)?)))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: DecoderBuilder, ordinal: usize, stream: usize) -> Result<Open> {
    match gpu::stream(ordinal, stream)? {}
}
