//! An open loader in Python: iterators, epochs and shutdown.
//!
//! Whenever a thread is attached to the interpreter, Python code may run on it: signal handlers,
//! the garbage collector and the user's sampler function. Any of these may call the loader, so no
//! lock is held while Python code runs, and waits are divided into short slices (see `waiting`).
//!
//! Each call that selects the next epoch gets a sequence number, the generation. An iterator stores
//! its generation. It fails once a later call has begun an epoch, resumed from a checkpoint or
//! replayed batches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{PyTraverseError, PyVisit};
use warpfeed::source::Source;
use warpfeed::{Batches, Error, HostBatch, Loader, LoaderHandle, MemoryPlan};

use crate::batch::{Batch, Delivered};
use crate::either::{either, match_either};
use crate::error::{Raised as _, raised};
use crate::function::{Function, FunctionRunner};
use crate::gpu;
use crate::lending::HeldBatches;
use crate::options::{self, Delivery};
use crate::order::PythonOrder;
use crate::stats::described;
use crate::stored::{self, StoredSample};
use crate::traced::{TracedRef, collecting_refs};
use crate::waiting::{
    OwnerProcess, TimedMutex, WAIT_SLICE, end_threads, run_on_thread, spawn_shutdown, wait_interruptibly,
};

either! {
    OpenLoader of Batches
}

/// State of the open loader. A thread locks it only while detached from the interpreter.
struct State {
    /// The open loader, or `None` once it is closed.
    open: Option<OpenLoader>,
    generation: u64,
}

impl State {
    fn open(&mut self) -> warpfeed::Result<&mut OpenLoader> {
        self.open.as_mut().ok_or_else(closed)
    }
}

/// The epoch of the next iterator. It has its own lock, which is never held while Python code runs:
/// signal handlers and the user's sampler function may change the epoch while an iterator begins.
#[derive(Clone, Copy)]
struct NextEpoch {
    epoch: u64,
    generation: u64,
}

struct Inner {
    state: TimedMutex<State>,
    /// Set when closing begins, so that threads that wait for a batch release `state`.
    closing: AtomicBool,
    function: Option<Arc<FunctionRunner>>,
    close_lock: TimedMutex<()>,
    has_stopped: AtomicBool,
}

impl Inner {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Stops the loader's threads as soon as no thread uses the state. Returns once they have
    /// stopped, even if a concurrent call stops them.
    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // Workers that wait for the function would not stop.
        self.function.iter().for_each(|function| function.stop());
        let _guard = loop {
            if let Some(guard) = self.close_lock.try_lock_for_slice() {
                break guard;
            }
        };
        loop {
            if let Some(mut state) = self.state.try_lock_for_slice() {
                let open = state.open.take();
                drop(state);
                drop(open);
                return self.has_stopped.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Core {
    inner: Arc<Inner>,
    next: Mutex<NextEpoch>,
    monitor: LoaderHandle,
    process: OwnerProcess,
    lending: HeldBatches,
    device: Option<usize>,
    order: Option<Arc<PythonOrder>>,
    /// Whether the sampler function is called again when an epoch begins at its first batch,
    /// because its result may depend on state.
    calls_sampler_each_epoch: bool,
    /// References to the user's datasets and, if the per-image function runs in this process, to
    /// that function. The garbage collector visits them.
    sources: Vec<Arc<TracedRef>>,
}

impl Core {
    fn with_state<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut State) -> warpfeed::Result<T> + Send,
    ) -> PyResult<T> {
        self.process.check().raised(py)?;
        let mut call = Some(call);
        let called = wait_interruptibly(py, || {
            let mut state = self.inner.state.try_lock_for_slice()?;
            call.take().map(|call| call(&mut state))
        });
        called?.raised(py)
    }

    fn lock_next(&self) -> MutexGuard<'_, NextEpoch> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares `checkpoint` with this loader and, if `resumes` is set, resumes from it. If the
    /// comparison fails in the middle of an epoch and the sampler function may depend on state,
    /// calls the function again and retries, because the user may have restored that state since
    /// the first call.
    fn compare_checkpoint(&self, py: Python<'_>, checkpoint: &str, resumes: bool) -> PyResult<()> {
        let checkpoint = options::checkpoint(checkpoint)?;
        let epoch = checkpoint.epoch();
        let order = self.order.as_ref().filter(|_| checkpoint.batch() > 0);
        let cached = order.map(|order| order.prepare(py, epoch)).transpose()?;
        let compare = |new_order: Option<_>| {
            self.with_state(py, |state| {
                // An order that is in use must not be replaced.
                if resumes || new_order.is_some() {
                    match_either!(OpenLoader, state.open()?, epochs => epochs.end());
                }
                if let Some(order) = order {
                    order.replace(epoch, new_order);
                }
                if !resumes {
                    return match_either!(OpenLoader, state.open()?, epochs => epochs.check_checkpoint(&checkpoint));
                }
                match_either!(OpenLoader, state.open()?, epochs => epochs.resume(&checkpoint)?);
                self.order.iter().for_each(|order| order.begin(epoch));
                (_, state.generation) = self.change_epoch(|_| epoch);
                Ok(())
            })
        };
        let Some((order, cached)) = order.filter(|_| self.calls_sampler_each_epoch).zip(cached) else {
            return compare(None);
        };
        compare(None).or_else(|first| {
            let new_order = order.refresh(py, epoch)?;
            if new_order == cached {
                return Err(first);
            }
            compare(Some(new_order)).inspect_err(|_| order.replace(epoch, Some(cached)))
        })
    }

    /// Changes the next epoch. Returns the previous [`NextEpoch`] and the new generation.
    fn change_epoch(&self, epoch: impl FnOnce(u64) -> u64) -> (NextEpoch, u64) {
        let mut next = self.lock_next();
        let previous = *next;
        *next = NextEpoch { epoch: epoch(previous.epoch), generation: previous.generation + 1 };
        (previous, next.generation)
    }

    /// Returns the index of the first batch to deliver in `epoch`: the batch of `start` (epoch,
    /// batch), if set. Returns `None` for an epoch before the one at which the loader resumes.
    fn first_batch(&self, py: Python<'_>, epoch: u64, start: Option<(u64, u64)>) -> PyResult<Option<u64>> {
        match start {
            Some((_, first)) => Ok(Some(first)),
            None => self.with_state(py, |state| {
                Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.first_batch(epoch)))
            }),
        }
    }

    fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.order.as_ref().map_or(Ok(()), |order| order.prepare(py, epoch).map(|_| ()))
    }
}

fn closed() -> Error {
    Error::config("the loader is closed")
}

fn superseded<T>() -> warpfeed::Result<T> {
    Err(Error::config("a newer iterator of this loader has begun an epoch; a loader runs one epoch at a time"))
}

#[pymethods]
impl Core {
    /// `options` is the dict that `warpfeed/_loader.py` builds.
    #[new]
    fn new(py: Python<'_>, options: &Bound<'_, PyDict>, delivery: Delivery) -> PyResult<Self> {
        let (copy, device, stream) = delivery;
        let order = options.get_item("sampler")?.map(|function| Arc::new(PythonOrder::new(&function)));
        if let Some(order) = &order {
            order.prepare(py, 0)?;
        }
        let calls_sampler_each_epoch = order.is_some() && !options::prepares_next_epoch(options)?;
        let function = match options.get_item("image_transform")? {
            Some(function) => Some(function.cast::<Function>()?.get().0.clone()),
            None => None,
        };
        let (loader, mut sources) = collecting_refs(|| options::build_loader(options, order.as_ref()));
        sources.extend(function.as_ref().and_then(|function| function.in_process_function()));
        let loader = loader?;
        let (open, monitor, plan) = run_on_thread(py, move |_| match device {
            None => {
                let batches = loader.host()?;
                let (monitor, plan) = (batches.handle(), batches.memory_plan());
                Ok((OpenLoader::Host(batches), monitor, plan))
            }
            Some(ordinal) => on_device(loader, ordinal, stream),
        })?;
        let advice = "open the loader in the process that uses it, or start processes with the method \"spawn\"";
        let epoch = match_either!(OpenLoader, &open, epochs => epochs.first_epoch());
        // The epoch of a resumed run uses the order that was compared with the checkpoint.
        order.iter().for_each(|order| order.begin(epoch));
        let state = TimedMutex::new(State { open: Some(open), generation: 0 });
        let (closing, has_stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let inner = Inner { state, closing, close_lock: TimedMutex::new(()), has_stopped, function };
        Ok(Core {
            inner: Arc::new(inner),
            next: Mutex::new(NextEpoch { epoch, generation: 0 }),
            monitor,
            process: OwnerProcess::new("loader", advice),
            lending: HeldBatches::for_loader(copy, &plan),
            device,
            order,
            calls_sampler_each_epoch,
            sources,
        })
    }

    /// Begins the next epoch, or begins at `start` (epoch, batch). Returns the generation for
    /// `next`, and the number of batches that remain.
    ///
    /// The next epoch is advanced before the sampler function is called, so that the function and
    /// signal handlers may call the loader, and concurrent iterators get different epochs. If this
    /// call fails, the next epoch is restored, unless a concurrent call has changed it.
    #[pyo3(signature = (start=None))]
    fn begin(&self, py: Python<'_>, start: Option<(u64, u64)>) -> PyResult<(u64, u64)> {
        self.process.check().raised(py)?;
        let (previous, generation) = self.change_epoch(|next| start.map_or(next, |(epoch, _)| epoch).saturating_add(1));
        let epoch = start.map_or(previous.epoch, |(epoch, _)| epoch);
        let new_order = self.first_batch(py, epoch, start).and_then(|first| match (&self.order, first) {
            (Some(order), Some(0)) if self.calls_sampler_each_epoch => order.refresh(py, epoch).map(Some),
            // An epoch that is resumed in the middle uses the cached order. An epoch before the
            // resumed one delivers no batches, so it needs no order.
            (Some(order), Some(_)) => order.prepare(py, epoch).map(|_| None),
            _ => Ok(None),
        });
        let begin_result = new_order.and_then(|new_order| {
            self.with_state(py, |state| {
                if state.generation > generation {
                    return superseded();
                }
                if let Some(order) = &self.order {
                    // The run in progress may use an earlier order of the same epoch.
                    match_either!(OpenLoader, state.open()?, epochs => epochs.end());
                    order.replace(epoch, new_order);
                    order.begin(epoch);
                }
                let count = match_either!(OpenLoader, state.open()?, epochs => {
                    match start {
                        None => epochs.begin(epoch),
                        Some((_, first)) => epochs.begin_from(epoch, first),
                    }
                    epochs.remaining()
                });
                state.generation = generation;
                Ok((generation, count))
            })
        });
        if begin_result.is_err() {
            let mut next = self.lock_next();
            if next.generation == generation {
                next.epoch = previous.epoch;
            }
        }
        begin_result
    }

    /// Returns the number of batches of an iterator over the next epoch, or of an iterator that
    /// begins at `start` (epoch, batch).
    #[pyo3(signature = (start=None))]
    fn batches_from(&self, py: Python<'_>, start: Option<(u64, u64)>) -> PyResult<u64> {
        let epoch = start.map_or_else(|| self.epoch(), |(epoch, _)| epoch);
        let Some(first) = self.first_batch(py, epoch, start)? else { return Ok(0) };
        Ok(self.num_batches(py, epoch)?.saturating_sub(first))
    }

    /// Returns the first `count` batches of epoch 0, or all batches if the epoch is shorter.
    /// [`Batches::replay`] limits `count`.
    fn replay(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Batch>> {
        fn all_batches<B>(
            epochs: &mut Batches<B>,
            count: usize,
            idle: &mut dyn FnMut() -> Option<Duration>,
        ) -> warpfeed::Result<Vec<Arc<B>>> {
            let Some(replay) = epochs.replay_while(count, idle)? else { return Err(closed()) };
            let mut batches: Vec<Arc<B>> = Vec::new();
            for batch in replay.take(count) {
                if batches.first().is_some_and(|first| Arc::ptr_eq(first, &batch)) {
                    break;
                }
                batches.push(batch);
            }
            Ok(batches)
        }
        self.process.check().raised(py)?;
        let (inner, (_, generation)) = (self.inner.clone(), self.change_epoch(|epoch| epoch));
        self.prepare(py, 0)?;
        let order = self.order.clone();
        let delivered: Vec<Delivered> = run_on_thread(py, move |stop| {
            let mut idle = || (!stop.load(Ordering::Relaxed) && !inner.is_closing()).then_some(WAIT_SLICE);
            let mut state = loop {
                match inner.state.try_lock_for_slice() {
                    Some(state) => break state,
                    None => _ = idle().ok_or_else(closed)?,
                };
            };
            if state.generation > generation {
                return superseded();
            }
            state.generation = generation;
            order.iter().for_each(|order| order.replay(0));
            Ok(match state.open()? {
                OpenLoader::Host(epochs) => {
                    all_batches(epochs, count, &mut idle)?.into_iter().map(Delivered::Host).collect()
                }
                #[cfg(feature = "cuda")]
                OpenLoader::Cuda(epochs) => {
                    all_batches(epochs, count, &mut idle)?.into_iter().map(Delivered::Cuda).collect()
                }
            })
        })?;
        Ok(delivered.into_iter().map(|delivered| Batch { delivered, copy: Some(false) }).collect())
    }

    /// Returns the next batch, or `None` after the last one. Waits without holding the GIL.
    fn next(&self, py: Python<'_>, generation: u64) -> PyResult<Option<Batch>> {
        self.process.check().raised(py)?;
        let delivered = wait_interruptibly(py, || {
            if self.inner.is_closing() {
                return Some(Some(Err(closed())));
            }
            let mut state = self.inner.state.try_lock_for_slice()?;
            if state.generation != generation {
                return Some(Some(superseded()));
            }
            let (until, mut gave_up) = (Instant::now() + WAIT_SLICE, false);
            let mut idle = || {
                let remaining = until.saturating_duration_since(Instant::now());
                gave_up = remaining.is_zero() || self.inner.is_closing();
                (!gave_up).then_some(remaining)
            };
            let next = match &mut state.open {
                Some(OpenLoader::Host(epochs)) => {
                    epochs.next_interruptible(&mut idle).map(|batch| Ok(Delivered::Host(Arc::new(batch?))))
                }
                #[cfg(feature = "cuda")]
                Some(OpenLoader::Cuda(epochs)) => {
                    epochs.next_interruptible(&mut idle).map(|batch| Ok(Delivered::Cuda(Arc::new(batch?))))
                }
                None => Some(Err(closed())),
            };
            // If the slice is over, `None` makes the next slice wait for the same batch.
            if next.is_none() && gave_up { None } else { Some(next) }
        })?;
        delivered.map(|batch| batch.raised(py).map(|delivered| self.lending.lend(delivered))).transpose()
    }

    /// Ends the epoch with this `generation`, unless a newer epoch has begun.
    ///
    /// The garbage collector may call this function at any point, so the function waits for the
    /// lock for at most one slice. If the lock is still in use, the slots of the prepared batches
    /// are freed when the next epoch begins.
    fn end(&self, py: Python<'_>, generation: u64) {
        if self.process.is_this() {
            py.detach(|| {
                if let Some(mut state) = self.inner.state.try_lock_for_slice()
                    && state.generation == generation
                {
                    state.open.iter_mut().for_each(|open| match_either!(OpenLoader, open, epochs => epochs.end()));
                }
            });
        }
    }

    /// Stops the loader's threads and waits for them. If a different thread is waiting for a batch,
    /// that call fails. If a signal interrupts `close`, the threads still stop, and a repeated call
    /// waits for them. In a forked child, which has no such threads, `close` does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.process.is_this() {
            return Ok(());
        }
        let inner = self.inner.clone();
        run_on_thread(py, move |_| {
            inner.close();
            Ok(())
        })
    }

    /// Begins to stop the loader's threads, without waiting. Returns true if they have already
    /// stopped, or if this process is a forked child, which has no such threads.
    fn begin_close(&self) -> bool {
        if !self.process.is_this() || self.inner.has_stopped.load(Ordering::Relaxed) {
            return true;
        }
        if !self.inner.closing.swap(true, Ordering::Relaxed) {
            let inner = self.inner.clone();
            spawn_shutdown(move || inner.close());
        }
        false
    }

    fn running_callbacks(&self) -> Vec<String> {
        let callbacks = self.order.iter().map(|order| order.function()).chain(&self.sources);
        callbacks.filter(|callback| callback.is_running()).map(|callback| callback.name().to_owned()).collect()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.order.iter().try_for_each(|order| order.function().traverse(&visit))?;
        self.sources.iter().try_for_each(|source| source.traverse(&visit))
    }

    /// Stops the loader's threads, then drops the references to Python objects. The garbage
    /// collector calls this method when the loader is unreachable.
    fn __clear__(&self) {
        let (order, sources) = (self.order.clone(), self.sources.clone());
        let clear = move || {
            order.iter().for_each(|order| order.function().clear());
            sources.iter().for_each(|source| source.clear());
        };
        if !self.process.is_this() {
            return clear();
        }
        let inner = self.inner.clone();
        Python::try_attach(|py| {
            end_threads(py, move || {
                inner.close();
                // Python objects must be dropped on a thread that is attached to the interpreter.
                Python::try_attach(|_| clear());
            });
        });
    }

    fn epoch(&self) -> u64 {
        self.lock_next().epoch
    }

    fn set_epoch(&self, epoch: u64) {
        self.change_epoch(|_| epoch);
    }

    fn num_batches(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with_state(py, |state| Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.num_batches(epoch))))
    }

    /// Returns the total number of samples of all ranks in `epoch`.
    fn epoch_len(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with_state(py, |state| Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.epoch_len(epoch))))
    }

    fn source_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_state(py, |state| Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.source_len())))
    }

    /// Returns whether the dataset is a flat folder, in which images have no labels.
    fn lacks_labels(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_state(py, |state| {
            let flat = |source: &dyn Source| source.kind() == "folder" && source.classes().is_empty();
            Ok(match_either!(OpenLoader, state.open()?, epochs => flat(&**epochs.source())))
        })
    }

    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with_state(py, |state| Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.classes().to_vec())))
    }

    /// Returns the category ids of the dataset, indexed by label.
    fn category_ids(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        self.with_state(py, |state| Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.category_ids())))
    }

    fn sample(&self, py: Python<'_>, id: u64) -> PyResult<StoredSample> {
        self.process.check().raised(py)?;
        let monitor = self.monitor.clone();
        run_on_thread(py, move |_| monitor.sample(id, stored::stored_sample))
    }

    /// Returns the labels of the samples `ids` as the bytes of an int64 array.
    fn labels<'py>(&self, py: Python<'py>, ids: Vec<u64>) -> PyResult<Bound<'py, PyBytes>> {
        self.process.check().raised(py)?;
        let monitor = self.monitor.clone();
        let labels = run_on_thread(py, move |_| monitor.labels(&ids))?;
        PyBytes::new_with(py, size_of_val(&labels[..]), |bytes| {
            for (out, label) in bytes.chunks_exact_mut(8).zip(labels) {
                out.copy_from_slice(&label.to_ne_bytes());
            }
            Ok(())
        })
    }

    fn dataset_index(&self, py: Python<'_>, id: usize) -> PyResult<usize> {
        self.with_state(py, |state| {
            Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.source().dataset_index(id)))
        })
    }

    fn rank(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with_state(py, |state| {
            let rank = match_either!(OpenLoader, state.open()?, epochs => epochs.rank());
            Ok((rank.rank, rank.world_size))
        })
    }

    /// Changes the proportions of the mixture. Returns the epoch and the index of the first batch
    /// with the new proportions.
    fn set_mixture(&self, py: Python<'_>, proportions: Vec<f64>, after_batches: u64) -> PyResult<(u64, u64)> {
        let change_position = self.with_state(
            py,
            |state| match_either!(OpenLoader, state.open()?, epochs => epochs.set_mixture(&proportions, after_batches)),
        )?;
        Ok((change_position.epoch, change_position.batch))
    }

    /// Changes the weights of the samples. `weights` is an object of `warpfeed._number_lists`.
    /// Returns the epoch and the index of the first batch with the new weights.
    fn set_weights(&self, py: Python<'_>, weights: &Bound<'_, PyAny>, after_batches: u64) -> PyResult<(u64, u64)> {
        let weights = options::numbers(weights, f64::from_ne_bytes)?;
        let change_position = self.with_state(
            py,
            |state| match_either!(OpenLoader, state.open()?, epochs => epochs.set_weights(&weights, after_batches)),
        )?;
        Ok((change_position.epoch, change_position.batch))
    }

    /// Returns the current numbers of worker threads and of prefetched batches.
    fn settings(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with_state(py, |state| {
            Ok(match_either!(OpenLoader, state.open()?, epochs => (epochs.workers(), epochs.prefetch())))
        })
    }

    /// Returns the memory plan as JSON and as a sentence.
    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan =
            self.with_state(py, |state| Ok(match_either!(OpenLoader, state.open()?, epochs => epochs.memory_plan())))?;
        Ok((json(&plan), plan.to_string()))
    }

    fn device_stats(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with_state(py, |state| match state.open()? {
            OpenLoader::Host(_) => Ok(None),
            #[cfg(feature = "cuda")]
            OpenLoader::Cuda(epochs) => Ok(Some(json(&epochs.device_stats()))),
        })
    }

    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.process.check().raised(py)?;
        let stats = py.detach(|| self.monitor.stats());
        Ok((json(&stats), stats.to_string()))
    }

    fn verdict(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.process.check().raised(py)?;
        Ok(described(py.detach(|| self.monitor.verdict())))
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<String> {
        self.process.check().raised(py)?;
        Ok(json(&py.detach(|| self.monitor.checkpoint())))
    }

    fn resume(&self, py: Python<'_>, checkpoint: &str) -> PyResult<()> {
        self.compare_checkpoint(py, checkpoint, true)
    }

    /// Checks that [`resume`](Core::resume) would accept `checkpoint`. The epoch in progress
    /// continues, unless the checkpoint does not match at first and the sampler function, called
    /// again, returns a different order.
    fn check(&self, py: Python<'_>, checkpoint: &str) -> PyResult<()> {
        self.compare_checkpoint(py, checkpoint, false)
    }

    /// Returns the epoch, the batch and the exception of the first failure of each skipped sample.
    fn faults(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, Py<PyAny>)>> {
        self.process.check().raised(py)?;
        let faults = py.detach(|| self.monitor.sample_errors());
        let fault = |fault: warpfeed::SampleError| {
            (fault.epoch, fault.batch, raised(py, &fault.error).into_value(py).into_any())
        };
        Ok(faults.into_iter().map(fault).collect())
    }

    #[getter]
    fn device(&self) -> Option<usize> {
        self.device
    }
}

impl Drop for Core {
    /// Detaches while the loader's threads stop, because threads that read a Python source need the
    /// interpreter.
    fn drop(&mut self) {
        if self.process.is_this() {
            // If attaching fails, the process is about to end.
            let inner = self.inner.clone();
            if Python::try_attach(|py| end_threads(py, move || inner.close())).is_some() {
                return;
            }
        }
        std::mem::forget(self.inner.clone());
    }
}

pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data serializes")
}

#[cfg(feature = "cuda")]
fn on_device(
    loader: Loader,
    ordinal: usize,
    stream: usize,
) -> warpfeed::Result<(OpenLoader, LoaderHandle, MemoryPlan)> {
    let batches = loader.cuda(&gpu::stream(ordinal, stream)?)?;
    let (monitor, plan) = (batches.handle(), batches.memory_plan());
    Ok((OpenLoader::Cuda(batches), monitor, plan))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: Loader, ordinal: usize, stream: usize) -> warpfeed::Result<(OpenLoader, LoaderHandle, MemoryPlan)> {
    match gpu::stream(ordinal, stream)? {}
}

/// Compiles only if a loader may move between threads: the thread that requests batches may differ
/// from the thread that opened the loader.
const _: fn() = || {
    fn both<T: Send>() {}
    both::<Batches<HostBatch>>();
};
