//! An open loader in Python: iterators, epochs and shutdown.
//!
//! Python code can run whenever the interpreter is attached: signal handlers, the garbage collector
//! and the user's sampler function. Any of these may call the loader. Therefore no lock is held
//! while Python code runs, and waits are divided into short slices (see `waiting`). Each change of
//! the next epoch gets a sequence number, its turn. An iterator stores the turn of its epoch, and
//! fails if the loader has moved on to a newer one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{PyTraverseError, PyVisit};
use warpfeed::source::Source;
use warpfeed::{Batches, Error, HostBatch, Loader, LoaderHandle, MemoryPlan};

use crate::batch::{Batch, Delivered};
use crate::either::{either, of};
use crate::error::{Raised as _, raised};
use crate::function::{Calls, Function};
use crate::gpu;
use crate::lending::Lending;
use crate::option_names::in_python;
use crate::options::{self, Delivery};
use crate::order::PythonOrder;
use crate::stored::{self, Stored};
use crate::traced::{TracedRef, noting};
use crate::waiting::{Process, SLICE, Turns, apart, aside, ending, patiently};

either! {
    /// An open loader.
    Open of Batches
}

/// State that only one thread uses at a time, while it is detached from the interpreter.
struct State {
    /// `None` once the loader is closed.
    open: Option<Open>,
    /// Turn of the epoch in progress. An iterator compares it with its own turn to detect a newer
    /// iterator.
    turn: u64,
}

impl State {
    fn open(&mut self) -> warpfeed::Result<&mut Open> {
        self.open.as_mut().ok_or_else(closed)
    }
}

/// Where the next iterator begins. No Python code runs while this state is locked, so signal
/// handlers and the user's sampler function can change it while an iterator is beginning.
#[derive(Clone, Copy)]
struct Next {
    epoch: u64,
    /// Number of changes so far. A turn is the sequence number of the change that created it.
    changes: u64,
}

/// State that is shared with calls on other threads.
struct Inner {
    state: Turns<State>,
    /// Set before the loader is closed, so that threads that wait for a batch release `state`.
    closing: AtomicBool,
    /// The user's per-image function.
    function: Option<Arc<Calls>>,
    /// Locked while the loader's threads are being ended.
    ending: Turns<()>,
    /// Set once the threads have ended.
    ended: AtomicBool,
}

impl Inner {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Ends the loader's threads as soon as no thread uses the state. Returns once they have ended,
    /// even if a concurrent call is the one that ends them.
    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // Workers may be waiting for the function.
        self.function.iter().for_each(|function| function.stop());
        let _ending = loop {
            if let Some(turn) = self.ending.within_a_slice() {
                break turn;
            }
        };
        loop {
            if let Some(mut state) = self.state.within_a_slice() {
                let open = state.open.take();
                drop(state);
                drop(open);
                return self.ended.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// An open loader: its threads, its memory, and its position.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Core {
    inner: Arc<Inner>,
    next: Mutex<Next>,
    monitor: LoaderHandle,
    process: Process,
    lending: Lending,
    /// Index of the CUDA device of the batches, if they are on a device.
    device: Option<usize>,
    /// The user's sampler function, and whether it is called at the beginning of each epoch.
    order: Option<Arc<PythonOrder>>,
    renews: bool,
    /// The user's datasets, and the per-image function if it runs in this process.
    sources: Vec<Arc<TracedRef>>,
}

impl Core {
    /// Runs `call` with the loader, while the thread is detached from the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut State) -> warpfeed::Result<T> + Send,
    ) -> PyResult<T> {
        self.process.check().raised(py)?;
        let mut call = Some(call);
        let called = patiently(py, || {
            let mut state = self.inner.state.within_a_slice()?;
            call.take().map(|call| call(&mut state))
        });
        called?.raised(py)
    }

    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares `checkpoint` with this loader and, if `moves` is set, moves the loader to the
    /// checkpoint's position. If the cached order of that epoch does not match, the sampler
    /// function is called again, because the user may have restored its state in the meantime.
    fn compare(&self, py: Python<'_>, checkpoint: &str, moves: bool) -> PyResult<()> {
        let checkpoint = options::checkpoint(checkpoint)?;
        let epoch = checkpoint.epoch();
        let order = self.order.as_ref().filter(|_| checkpoint.batch() > 0);
        let known = order.map(|order| order.prepare(py, epoch)).transpose()?;
        let compare = |renewed: Option<_>| {
            self.with(py, |state| {
                // No run may use an order while it is being replaced.
                if moves || renewed.is_some() {
                    of!(Open, state.open()?, epochs => epochs.end());
                }
                if let Some(order) = order {
                    order.replace(epoch, renewed);
                }
                if !moves {
                    return of!(Open, state.open()?, epochs => epochs.fits(&checkpoint));
                }
                of!(Open, state.open()?, epochs => epochs.resume(&checkpoint)?);
                self.order.iter().for_each(|order| order.begin(epoch));
                (_, state.turn) = self.change(|_| epoch);
                Ok(())
            })
        };
        let Some((order, known)) = order.filter(|_| self.renews).zip(known) else { return compare(None) };
        compare(None).or_else(|first| {
            let asked = order.ask(py, epoch)?;
            if asked == known {
                return Err(first);
            }
            compare(Some(asked)).inspect_err(|_| order.replace(epoch, Some(known)))
        })
    }

    /// Sets the epoch of the next iterator. Returns the previous state, and the turn of this
    /// change.
    fn change(&self, epoch: impl FnOnce(u64) -> u64) -> (Next, u64) {
        let mut next = self.lock();
        let before = *next;
        *next = Next { epoch: epoch(before.epoch), changes: before.changes + 1 };
        (before, next.changes)
    }

    /// Returns the index of the first batch of `epoch`, or the batch that `at` specifies. Returns
    /// `None` if a resumed run is already past the epoch.
    fn first(&self, py: Python<'_>, epoch: u64, at: Option<(u64, u64)>) -> PyResult<Option<u64>> {
        match at {
            Some((_, first)) => Ok(Some(first)),
            None => self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.first_batch(epoch)))),
        }
    }

    /// Calls the user's sampler function for `epoch`.
    fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.order.as_ref().map_or(Ok(()), |order| order.prepare(py, epoch).map(|_| ()))
    }
}

fn closed() -> Error {
    Error::config("the loader is closed")
}

fn newer<T>() -> warpfeed::Result<T> {
    Err(Error::config("a newer iterator of this loader has begun an epoch; a loader is in one epoch at a time"))
}

#[pymethods]
impl Core {
    /// Opens a loader with the `options` of `warpfeed/_loader.py`.
    #[new]
    fn new(py: Python<'_>, options: &Bound<'_, PyDict>, delivery: Delivery) -> PyResult<Self> {
        let (copy, device, stream) = delivery;
        let order = options.get_item("sampler")?.map(|function| Arc::new(PythonOrder::new(&function)));
        if let Some(order) = &order {
            order.prepare(py, 0)?;
        }
        let renews = order.is_some() && !options::crosses_borders(options)?;
        let function = match options.get_item("image_transform")? {
            Some(function) => Some(function.cast::<Function>()?.get().0.clone()),
            None => None,
        };
        let (loader, mut sources) = noting(|| options::loader(options, order.as_ref()));
        sources.extend(function.as_ref().and_then(|function| function.kept()));
        let loader = loader?;
        let (open, monitor, plan) = aside(py, move |_| match device {
            None => {
                let batches = loader.host()?;
                let (monitor, plan) = (batches.handle(), batches.memory_plan());
                Ok((Open::Host(batches), monitor, plan))
            }
            Some(ordinal) => on_device(loader, ordinal, stream),
        })?;
        let advice = "open the loader in the process that uses it, or start processes with the method \"spawn\"";
        let epoch = of!(Open, &open, epochs => epochs.first_epoch());
        // A resumed epoch uses the order that was compared with the checkpoint.
        order.iter().for_each(|order| order.begin(epoch));
        let state = Turns::new(State { open: Some(open), turn: 0 });
        let (closing, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let inner = Inner { state, closing, ending: Turns::new(()), ended, function };
        Ok(Core {
            inner: Arc::new(inner),
            next: Mutex::new(Next { epoch, changes: 0 }),
            monitor,
            process: Process::new("loader", advice),
            lending: Lending::of_loader(copy, &plan),
            device,
            order,
            renews,
            sources,
        })
    }

    /// Begins the next epoch, or starts at `at` (epoch, batch). Returns the turn, which must be
    /// passed to `next`, and the number of batches.
    ///
    /// The epoch is claimed before the sampler function is called. Therefore the function and
    /// signal handlers may call the loader, and iterators that begin concurrently get different
    /// epochs. If the function fails, the next iterator gets the same epoch.
    #[pyo3(signature = (at=None))]
    fn begin(&self, py: Python<'_>, at: Option<(u64, u64)>) -> PyResult<(u64, u64)> {
        self.process.check().raised(py)?;
        let (before, turn) = self.change(|next| at.map_or(next, |(epoch, _)| epoch).saturating_add(1));
        let epoch = at.map_or(before.epoch, |(epoch, _)| epoch);
        let asked = self.first(py, epoch, at).and_then(|first| match (&self.order, first) {
            (Some(order), Some(0)) if self.renews => order.ask(py, epoch).map(Some),
            // A continued epoch keeps its order, and a finished epoch does not need one.
            (Some(order), Some(_)) => order.prepare(py, epoch).map(|_| None),
            _ => Ok(None),
        });
        let begun = asked.and_then(|renewed| {
            self.with(py, |state| {
                if state.turn > turn {
                    return newer();
                }
                if let Some(order) = &self.order {
                    // The run in progress may use an earlier order of the same epoch.
                    of!(Open, state.open()?, epochs => epochs.end());
                    order.replace(epoch, renewed);
                    order.begin(epoch);
                }
                let count = of!(Open, state.open()?, epochs => {
                    match at {
                        None => epochs.begin(epoch),
                        Some((_, first)) => epochs.begin_from(epoch, first),
                    }
                    epochs.left()
                });
                state.turn = turn;
                Ok((turn, count))
            })
        });
        if begun.is_err() {
            let mut next = self.lock();
            if next.changes == turn {
                next.epoch = before.epoch;
            }
        }
        begun
    }

    /// Returns the number of batches of an iterator that begins the next epoch, or that starts at
    /// `at` (epoch, batch).
    #[pyo3(signature = (at=None))]
    fn coming(&self, py: Python<'_>, at: Option<(u64, u64)>) -> PyResult<u64> {
        let epoch = at.map_or_else(|| self.epoch(), |(epoch, _)| epoch);
        let Some(first) = self.first(py, epoch, at)? else { return Ok(0) };
        Ok(self.num_batches(py, epoch)?.saturating_sub(first))
    }

    /// Returns the first `count` batches of epoch 0, or all of its batches if the epoch is shorter,
    /// for repeated use.
    fn replay(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Batch>> {
        fn all<B>(
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
        let (inner, (_, turn)) = (self.inner.clone(), self.change(|epoch| epoch));
        self.prepare(py, 0)?;
        let order = self.order.clone();
        let delivered: Vec<Delivered> = aside(py, move |stop| {
            let mut idle = || (!stop.load(Ordering::Relaxed) && !inner.is_closing()).then_some(SLICE);
            let mut state = loop {
                match inner.state.within_a_slice() {
                    Some(state) => break state,
                    None => _ = idle().ok_or_else(closed)?,
                };
            };
            if state.turn > turn {
                return newer();
            }
            state.turn = turn;
            order.iter().for_each(|order| order.replay(0));
            Ok(match state.open()? {
                Open::Host(epochs) => all(epochs, count, &mut idle)?.into_iter().map(Delivered::Host).collect(),
                #[cfg(feature = "cuda")]
                Open::Cuda(epochs) => all(epochs, count, &mut idle)?.into_iter().map(Delivered::Cuda).collect(),
            })
        })?;
        Ok(delivered.into_iter().map(|delivered| Batch { delivered, copy: Some(false) }).collect())
    }

    /// Returns the next batch of the epoch with this `turn`, or `None` after the last one. Waits
    /// without holding the GIL.
    fn next(&self, py: Python<'_>, turn: u64) -> PyResult<Option<Batch>> {
        self.process.check().raised(py)?;
        let delivered = patiently(py, || {
            if self.inner.is_closing() {
                return Some(Some(Err(closed())));
            }
            let mut state = self.inner.state.within_a_slice()?;
            if state.turn != turn {
                return Some(Some(newer()));
            }
            let (until, mut gave_up) = (Instant::now() + SLICE, false);
            let mut idle = || {
                let left = until.saturating_duration_since(Instant::now());
                gave_up = left.is_zero() || self.inner.is_closing();
                (!gave_up).then_some(left)
            };
            let came = match &mut state.open {
                Some(Open::Host(epochs)) => epochs.next(&mut idle).map(|batch| Ok(Delivered::Host(Arc::new(batch?)))),
                #[cfg(feature = "cuda")]
                Some(Open::Cuda(epochs)) => epochs.next(&mut idle).map(|batch| Ok(Delivered::Cuda(Arc::new(batch?)))),
                None => Some(Err(closed())),
            };
            // The next slice continues to wait for the same batch.
            if came.is_none() && gave_up { None } else { Some(came) }
        })?;
        delivered.map(|batch| batch.raised(py).map(|delivered| self.lending.lend(delivered))).transpose()
    }

    /// Ends the epoch with this `turn`, unless a newer epoch has begun.
    ///
    /// The garbage collector may call this function at any point, so it waits for at most one
    /// slice. If another thread uses the loader for longer, the prepared batches return to their
    /// slots when the next epoch begins.
    fn end(&self, py: Python<'_>, turn: u64) {
        if self.process.is_this() {
            py.detach(|| {
                if let Some(mut state) = self.inner.state.within_a_slice()
                    && state.turn == turn
                {
                    state.open.iter_mut().for_each(|open| of!(Open, open, epochs => epochs.end()));
                }
            });
        }
    }

    /// Ends all threads. Batches that the user holds stay valid. If another thread is waiting for a
    /// batch, its call fails with the error for a closed loader. If a signal interrupts the wait,
    /// the threads still end, and the next call waits for them.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.process.is_this() {
            return Ok(());
        }
        let inner = self.inner.clone();
        aside(py, move |_| {
            inner.close();
            Ok(())
        })
    }

    /// Starts to end all threads and returns immediately, with whether they have ended.
    fn ends(&self) -> bool {
        if !self.process.is_this() || self.inner.ended.load(Ordering::Relaxed) {
            return true;
        }
        if !self.inner.closing.swap(true, Ordering::Relaxed) {
            let inner = self.inner.clone();
            apart(move || inner.close());
        }
        false
    }

    /// Returns the names of the user's callbacks that are running.
    fn called(&self) -> Vec<String> {
        let kept = self.order.iter().map(|order| order.function()).chain(&self.sources);
        kept.filter(|kept| kept.is_called()).map(|kept| kept.name().to_owned()).collect()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.order.iter().try_for_each(|order| order.function().traverse(&visit))?;
        self.sources.iter().try_for_each(|source| source.traverse(&visit))
    }

    /// Called by the garbage collector when the loader is unreachable.
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
            ending(py, move || {
                inner.close();
                // Drop the objects on a thread that is attached to the interpreter.
                Python::try_attach(|_| clear());
            });
        });
    }

    /// Returns the epoch of the next iterator.
    fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Sets the epoch of the next iterator.
    fn set_epoch(&self, epoch: u64) {
        self.change(|_| epoch);
    }

    /// Returns the number of batches in `epoch`.
    fn num_batches(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.num_batches(epoch))))
    }

    /// Returns the number of samples in `epoch`, summed over all ranks.
    fn epoch_len(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.epoch_len(epoch))))
    }

    /// Returns the number of samples in the source.
    fn source_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.source_len())))
    }

    /// Returns whether the dataset is a flat folder, whose images have no labels.
    fn lacks_labels(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| {
            let flat = |source: &dyn Source| source.kind() == "folder" && source.classes().is_empty();
            Ok(of!(Open, state.open()?, epochs => flat(&**epochs.source())))
        })
    }

    /// Returns the class names, indexed by label.
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.classes().to_vec())))
    }

    /// Returns the number that the dataset itself uses for each class, indexed by label.
    fn category_ids(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.category_ids())))
    }

    /// Returns sample `id` as it is stored.
    fn sample(&self, py: Python<'_>, id: u64) -> PyResult<Stored> {
        self.process.check().raised(py)?;
        let monitor = self.monitor.clone();
        aside(py, move |_| monitor.sample(id, stored::of))
    }

    /// Returns the labels of the samples `ids`, as the bytes of an int64 array.
    fn labels<'py>(&self, py: Python<'py>, ids: Vec<u64>) -> PyResult<Bound<'py, PyBytes>> {
        self.process.check().raised(py)?;
        let monitor = self.monitor.clone();
        let labels = aside(py, move |_| monitor.labels(&ids))?;
        PyBytes::new_with(py, size_of_val(&labels[..]), |bytes| {
            for (to, label) in bytes.chunks_exact_mut(8).zip(labels) {
                to.copy_from_slice(&label.to_ne_bytes());
            }
            Ok(())
        })
    }

    /// Returns the index of the dataset, among joined datasets, that contains the sample `id`.
    fn part(&self, py: Python<'_>, id: usize) -> PyResult<usize> {
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.source().part(id))))
    }

    /// Returns the rank and the number of ranks.
    fn rank(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with(py, |state| {
            let rank = of!(Open, state.open()?, epochs => epochs.rank());
            Ok((rank.rank, rank.world_size))
        })
    }

    /// Returns the current number of worker threads and the current number of prefetched batches.
    fn settings(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with(py, |state| Ok(of!(Open, state.open()?, epochs => (epochs.workers(), epochs.prefetch()))))
    }

    /// Returns the memory plan as JSON and as a sentence.
    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan = self.with(py, |state| Ok(of!(Open, state.open()?, epochs => epochs.memory_plan())))?;
        Ok((json(&plan), plan.to_string()))
    }

    /// Returns the device memory usage as JSON, or `None` for batches in host memory.
    fn device_stats(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |state| match state.open()? {
            Open::Host(_) => Ok(None),
            #[cfg(feature = "cuda")]
            Open::Cuda(epochs) => Ok(Some(json(&epochs.device_stats()))),
        })
    }

    /// Returns the statistics as JSON and as a table.
    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.process.check().raised(py)?;
        let stats = py.detach(|| self.monitor.stats());
        Ok((json(&stats), stats.to_string()))
    }

    /// Returns the verdict as JSON and as text.
    fn verdict(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.process.check().raised(py)?;
        let verdict = py.detach(|| self.monitor.verdict());
        Ok((json(&verdict), in_python(&verdict.to_string())))
    }

    /// Returns the checkpoint as JSON.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<String> {
        self.process.check().raised(py)?;
        Ok(json(&py.detach(|| self.monitor.checkpoint())))
    }

    /// Continues from `checkpoint`.
    fn resume(&self, py: Python<'_>, checkpoint: &str) -> PyResult<()> {
        self.compare(py, checkpoint, true)
    }

    /// Checks that [`resume`](Core::resume) would accept `checkpoint`. The position does not
    /// change, and the epoch in progress continues, unless the sampler function now returns a
    /// different order for it.
    fn check(&self, py: Python<'_>, checkpoint: &str) -> PyResult<()> {
        self.compare(py, checkpoint, false)
    }

    /// Returns the epoch, the batch and the exception of each skipped sample.
    fn faults(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, Py<PyAny>)>> {
        self.process.check().raised(py)?;
        let faults = py.detach(|| self.monitor.sample_errors());
        let fault = |fault: warpfeed::SampleError| {
            (fault.epoch, fault.batch, raised(py, &fault.error).into_value(py).into_any())
        };
        Ok(faults.into_iter().map(fault).collect())
    }

    /// Returns the index of the CUDA device of the batches.
    #[getter]
    fn device(&self) -> Option<usize> {
        self.device
    }
}

impl Drop for Core {
    /// Ends the threads on a separate thread, because threads that read a Python source cannot end
    /// while this thread holds the interpreter.
    fn drop(&mut self) {
        if self.process.is_this() {
            // At interpreter shutdown, the process is about to end, so errors can be ignored.
            let inner = self.inner.clone();
            if Python::try_attach(|py| ending(py, move || inner.close())).is_some() {
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
fn on_device(loader: Loader, ordinal: usize, stream: usize) -> warpfeed::Result<(Open, LoaderHandle, MemoryPlan)> {
    let batches = loader.cuda(&gpu::stream(ordinal, stream)?)?;
    let (monitor, plan) = (batches.handle(), batches.memory_plan());
    Ok((Open::Cuda(batches), monitor, plan))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: Loader, ordinal: usize, stream: usize) -> warpfeed::Result<(Open, LoaderHandle, MemoryPlan)> {
    match gpu::stream(ordinal, stream)? {}
}

/// Checks at compile time that one thread can take batches while another requests statistics.
const _: fn() = || {
    fn both<T: Send>() {}
    both::<Batches<HostBatch>>();
};
