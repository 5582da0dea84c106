use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpfeed::{Batches, Epochs, Error, HostBatch, Monitor};

use crate::batch::{Batch, Delivered};
use crate::error::{Raised as _, raised};
use crate::options;
use crate::order::PythonOrder;
use crate::words::in_python;

/// How long a wait lasts at most before signals are looked for.
const SLICE: Duration = Duration::from_millis(50);

/// An open loader.
enum Open {
    Host(Epochs<HostBatch>),
    #[cfg(feature = "cuda")]
    Cuda(Epochs<warpfeed::CudaBatch>),
    Closed,
}

/// Calls something that both kinds of loaders have; a closed one gives `$closed`.
macro_rules! of {
    ($open:expr, $epochs:ident => $value:expr, $closed:expr) => {
        match $open {
            Open::Host($epochs) => $value,
            #[cfg(feature = "cuda")]
            Open::Cuda($epochs) => $value,
            Open::Closed => $closed,
        }
    };
}

/// A batch that may still be in the consumer's hands.
enum Lent {
    Host(Weak<HostBatch>),
    #[cfg(feature = "cuda")]
    Cuda(Weak<warpfeed::CudaBatch>),
}

impl Lent {
    fn is_held(&self) -> bool {
        match self {
            Lent::Host(batch) => batch.strong_count() > 0,
            #[cfg(feature = "cuda")]
            Lent::Cuda(batch) => batch.strong_count() > 0,
        }
    }
}

/// What the mutex protects. A thread takes it only while it is detached from the interpreter: the
/// holder may attach, to look for signals.
struct State {
    open: Open,
    /// Counts calls of `begin`, so that an iterator notices that a newer one has taken over.
    turn: u64,
    lent: Vec<Lent>,
}

/// An open loader: its threads, its memory, and where it stands.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct Core {
    state: Mutex<State>,
    monitor: Monitor,
    process: u32,
    /// Set before the loader is closed, so that a `next` that waits gives up and lets go of `state`.
    closing: AtomicBool,
    /// Whether batches get memory of their own. Left open: those that the loader has no slot left
    /// for.
    copy: Option<bool>,
    /// Slots that a consumer may hold batches in, one of them to be filled meanwhile.
    slots: usize,
    /// The device that batches are on.
    device: Option<usize>,
    /// The user's order.
    order: Option<Arc<PythonOrder>>,
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What panicked has been reported, and nothing here is left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` with the loader, detached from the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut State) -> warpfeed::Result<T> + Send,
    ) -> PyResult<T> {
        self.here().raised(py)?;
        py.detach(|| call(&mut self.lock())).raised(py)
    }

    /// An error in another process than the loader's. Locks of the parent's may be held for good.
    fn here(&self) -> warpfeed::Result<()> {
        let (process, here) = (self.process, std::process::id());
        if here == process {
            return Ok(());
        }
        Err(Error::config(format!(
            "the loader was opened by process {process}, this is {here}: worker threads do not survive fork; open the loader in the \
             process that uses it, or start processes with the method \"spawn\", which opens it anew"
        )))
    }

    /// Asks the user's order for `epoch`.
    fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.order.as_ref().map_or(Ok(()), |order| order.prepare(py, epoch).map(|_| ()))
    }

    fn is_in_its_process(&self) -> bool {
        self.process == std::process::id()
    }
}

fn closed<T>() -> warpfeed::Result<T> {
    Err(Error::config("the loader is closed"))
}

#[pymethods]
impl Core {
    /// Opens a loader. `device` is the number of a CUDA device, and `stream` an address of a stream
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
        let prefetch: usize = options.get_item("prefetch")?.map_or(Ok(0), |n| n.extract())?;
        let order = options.get_item("order")?.map(|function| Arc::new(PythonOrder::new(function.unbind())));
        if let Some(order) = &order {
            order.prepare(py, 0)?;
        }
        let loader = options::loader(options, order.as_ref())?;
        let (open, monitor, slots) = match device {
            None => {
                let batches = py.detach(|| loader.host()).raised(py)?;
                let (monitor, slots) = (batches.monitor(), batches.memory_plan().slots);
                (Open::Host(Epochs::new(batches)), monitor, slots)
            }
            Some(ordinal) => py.detach(|| on_device(loader, ordinal, stream, prefetch)).raised(py)?,
        };
        let state = Mutex::new(State { open, turn: 0, lent: Vec::new() });
        let (process, closing) = (std::process::id(), AtomicBool::new(false));
        Ok(Core { state, monitor, process, closing, copy, slots, device, order })
    }

    /// Begins `epoch`, at batch `first` if that is given. Gives the number that `next` is called
    /// with.
    #[pyo3(signature = (epoch, first=None))]
    fn begin(&self, py: Python<'_>, epoch: u64, first: Option<u64>) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with(py, |state| {
            of!(&mut state.open, epochs => match first {
                None => epochs.begin(epoch),
                Some(first) => epochs.begin_from(epoch, first),
            }, return closed());
            state.turn += 1;
            Ok(state.turn)
        })
    }

    /// The first `count` batches of epoch 0, or all of a shorter one, to be used again and again.
    #[pyo3(signature = (count, stream=0))]
    fn replay(&self, py: Python<'_>, count: usize, stream: usize) -> PyResult<Vec<Batch>> {
        fn all<B>(epochs: &mut Epochs<B>, count: usize) -> warpfeed::Result<Vec<Arc<B>>> {
            let mut batches: Vec<Arc<B>> = Vec::new();
            for batch in epochs.batches_mut().replay(count)?.take(count) {
                if batches.first().is_some_and(|first| Arc::ptr_eq(first, &batch)) {
                    break;
                }
                batches.push(batch);
            }
            Ok(batches)
        }
        let delivered: Vec<Delivered> = self.with(py, |state| {
            state.turn += 1;
            Ok(match &mut state.open {
                Open::Host(epochs) => all(epochs, count)?.into_iter().map(Delivered::Host).collect(),
                #[cfg(feature = "cuda")]
                Open::Cuda(epochs) => all(epochs, count)?.into_iter().map(Delivered::Cuda).collect(),
                Open::Closed => return closed(),
            })
        })?;
        Ok(delivered.into_iter().map(|delivered| Batch { delivered, copy: Some(false), stream }).collect())
    }

    /// The next batch of the epoch that `begin` gave the number `turn`; `None` after the last one.
    /// The interpreter is free meanwhile. On a device, batches are ordered on the stream `stream`.
    #[pyo3(signature = (turn, stream=0))]
    fn next(&self, py: Python<'_>, turn: u64, stream: usize) -> PyResult<Option<Batch>> {
        self.here().raised(py)?;
        let (mut interrupted, mut closing) = (None, false);
        let delivered = py.detach(|| {
            let mut looked = Instant::now();
            let mut idle = || {
                closing = self.closing.load(Ordering::Relaxed);
                if closing {
                    return None;
                }
                if looked.elapsed() >= SLICE {
                    looked = Instant::now();
                    // Nothing where the interpreter is shutting down: then nobody waits any more.
                    interrupted = Python::try_attach(|py| py.check_signals())?.err();
                    if interrupted.is_some() {
                        return None;
                    }
                }
                Some(SLICE)
            };
            let mut state = self.lock();
            if state.turn != turn {
                return Some(Err(Error::config(
                    "a newer iterator of this loader has begun an epoch; a loader is in one epoch at a time",
                )));
            }
            let came = match &mut state.open {
                Open::Host(epochs) => epochs.next(&mut idle).map(|batch| batch.map(|b| Delivered::Host(Arc::new(b)))),
                #[cfg(feature = "cuda")]
                Open::Cuda(epochs) => epochs.next(&mut idle).map(|batch| batch.map(|b| Delivered::Cuda(Arc::new(b)))),
                Open::Closed => return Some(closed()),
            };
            Some(came?.map(|delivered| {
                state.lent.retain(Lent::is_held);
                let copy = self.copy.or((state.lent.len() + 1 >= self.slots).then_some(true));
                if copy != Some(true) {
                    state.lent.push(match &delivered {
                        Delivered::Host(batch) => Lent::Host(Arc::downgrade(batch)),
                        #[cfg(feature = "cuda")]
                        Delivered::Cuda(batch) => Lent::Cuda(Arc::downgrade(batch)),
                    });
                }
                Batch { delivered, copy, stream }
            }))
        });
        match (interrupted, delivered) {
            (Some(signal), _) => Err(signal),
            (None, None) if closing => closed().raised(py),
            (None, None) => Ok(None),
            (None, Some(batch)) => batch.raised(py).map(Some),
        }
    }

    /// Ends the epoch that `begin` gave the number `turn`, unless another one has begun.
    fn end(&self, py: Python<'_>, turn: u64) {
        if self.is_in_its_process() {
            py.detach(|| {
                let mut state = self.lock();
                if state.turn == turn {
                    of!(&mut state.open, epochs => epochs.end(), {});
                }
            });
        }
    }

    /// Ends all threads. Batches that are held stay valid. A `next` that waits on another thread
    /// gets the error of a closed loader.
    fn close(&self, py: Python<'_>) {
        if self.is_in_its_process() {
            self.closing.store(true, Ordering::Relaxed);
            py.detach(|| {
                let open = std::mem::replace(&mut self.lock().open, Open::Closed);
                drop(open);
            });
        }
    }

    /// The first epoch to run.
    fn first_epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().first_epoch()), closed()))
    }

    /// Batches of `epoch`.
    fn num_batches(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().num_batches(epoch)), closed()))
    }

    /// Samples of `epoch` on all ranks together.
    fn epoch_len(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.prepare(py, epoch)?;
        self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().epoch_len(epoch)), closed()))
    }

    /// Samples of the source.
    fn source_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().source_len()), closed()))
    }

    /// Names of the classes by label.
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().classes().to_vec()), closed()))
    }

    /// Which of the joined data sets sample `id` comes from.
    fn part(&self, py: Python<'_>, id: usize) -> PyResult<usize> {
        self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().source().part(id)), closed()))
    }

    /// The rank and the number of ranks.
    fn rank(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with(py, |state| {
            let rank = of!(&state.open, epochs => epochs.batches().rank(), return closed());
            Ok((rank.rank, rank.world_size))
        })
    }

    /// Worker threads, and batches made ahead now.
    fn settings(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.with(
            py,
            |state| of!(&state.open, epochs => Ok((epochs.batches().workers(), epochs.batches().prefetch())), closed()),
        )
    }

    /// The memory plan as JSON, and as a sentence.
    fn memory_plan(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let plan = self.with(py, |state| of!(&state.open, epochs => Ok(epochs.batches().memory_plan()), closed()))?;
        Ok((json(&plan), plan.to_string()))
    }

    /// What the device's memory holds as JSON; `None` for batches in host memory.
    fn device_stats(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |state| match &state.open {
            #[cfg(feature = "cuda")]
            Open::Cuda(epochs) => Ok(Some(json(&epochs.batches().device_stats()))),
            Open::Closed => closed(),
            _ => Ok(None),
        })
    }

    /// The statistics as JSON, and as a table.
    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.here().raised(py)?;
        let stats = py.detach(|| self.monitor.stats());
        Ok((json(&stats), stats.to_string()))
    }

    /// What limits the loader, as JSON and as text.
    fn verdict(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.here().raised(py)?;
        let verdict = py.detach(|| self.monitor.verdict());
        Ok((json(&verdict), in_python(&verdict.to_string())))
    }

    /// Where the run stands, as JSON.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<String> {
        self.here().raised(py)?;
        Ok(json(&py.detach(|| self.monitor.checkpoint())))
    }

    /// Goes on where `checkpoint` stands.
    fn resume(&self, py: Python<'_>, checkpoint: &str) -> PyResult<()> {
        let checkpoint = options::checkpoint(checkpoint)?;
        self.with(py, |state| {
            state.turn += 1;
            of!(&mut state.open, epochs => epochs.resume(&checkpoint), closed())
        })
    }

    /// The samples that were skipped: epoch, batch and exception of each.
    fn faults(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, Py<PyAny>)>> {
        self.here().raised(py)?;
        let faults = py.detach(|| self.monitor.faults());
        let fault =
            |fault: warpfeed::Fault| (fault.epoch, fault.batch, raised(py, &fault.error).into_value(py).into_any());
        Ok(faults.into_iter().map(fault).collect())
    }

    /// The number of the CUDA device that batches are on.
    #[getter]
    fn device(&self) -> Option<usize> {
        self.device
    }
}

impl Drop for Core {
    /// Ending the threads may need the interpreter: those of a Python source wait for it.
    fn drop(&mut self) {
        let open = &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).open;
        let open = std::mem::replace(open, Open::Closed);
        if self.process != std::process::id() {
            return std::mem::forget(open);
        }
        let mut open = Some(open);
        Python::try_attach(|py| py.detach(|| drop(open.take())));
        // The interpreter is shutting down: the process is about to end.
        std::mem::forget(open);
    }
}

pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("numbers and texts")
}

#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
fn on_device(
    loader: warpfeed::Loader,
    ordinal: usize,
    stream: usize,
    prefetch: usize,
) -> warpfeed::Result<(Open, Monitor, usize)> {
    // SAFETY: `warpfeed/_loader.py` passes a stream of PyTorch's, which live as long as the
    // process, or the legacy default stream.
    let stream = unsafe { warpfeed::cuda::borrowed_stream(ordinal, stream) }?;
    let batches = loader.cuda(&stream)?;
    let monitor = batches.monitor();
    // As many as `Loader::cuda` makes.
    let slots = if prefetch == 0 { 3 } else { prefetch + 1 };
    Ok((Open::Cuda(Epochs::new(batches)), monitor, slots))
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: warpfeed::Loader, _: usize, _: usize, _: usize) -> warpfeed::Result<(Open, Monitor, usize)> {
    Err(Error::new(warpfeed::ErrorKind::Cuda, "this build of the package has no CUDA; use device=\"cpu\""))
}

/// Batches may be taken by one thread and asked about by another.
const _: fn() = || {
    fn both<T: Send>() {}
    both::<Batches<HostBatch>>();
};
