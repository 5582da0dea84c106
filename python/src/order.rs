//! Sample orders that are defined by a Python function.
//!
//! The loader requests one position at a time, and calling Python for each position would be slow.
//! Therefore the function is called once per epoch, and its result is cached.

use std::collections::{HashMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use warpfeed::sampler::{Occurrence, Sampler};
use warpfeed::{Error, ErrorKind};

use crate::error::{of_program, raised};
use crate::thread_state::{attached, call};
use crate::traced::{TracedRef, name_of};

/// Minimum number of cached epochs. More are cached while they have at most `KEPT_SAMPLES` samples
/// in total and there are at most `MOST_KEPT` of them. Several short epochs may be prepared in
/// advance, but no more than the number of prefetched batches. Orders in use are never evicted,
/// because the function may depend on state, and calling it again could change the order mid-epoch.
const KEPT: usize = 4;
const KEPT_SAMPLES: usize = 1 << 20;
const MOST_KEPT: usize = 1024;

/// An order defined by a Python function, which returns the sample indices of an epoch.
///
/// The mutex is never held while a thread waits for the interpreter.
pub(crate) struct PythonOrder {
    function: Arc<TracedRef>,
    orders: Mutex<Orders>,
}

/// The cached orders, oldest first.
#[derive(Default)]
struct Orders {
    known: VecDeque<(u64, Arc<[Occurrence]>)>,
    /// Epoch of the run's position.
    position: Option<u64>,
    /// Epoch that is being replayed.
    replayed: Option<u64>,
}

impl PythonOrder {
    pub(crate) fn new(function: &Bound<'_, PyAny>) -> Self {
        let name = format!("sampler={}", name_of(function));
        PythonOrder { function: TracedRef::new(function.clone().unbind(), name), orders: Mutex::default() }
    }

    pub(crate) fn function(&self) -> &Arc<TracedRef> {
        &self.function
    }

    /// Calls the function now if the order of `epoch` is not cached, so that an exception reaches
    /// the caller that needs the epoch.
    pub(crate) fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        self.prepared(py, epoch).map_err(|e| self.raised(py, epoch, e))
    }

    /// Like [`prepare`](PythonOrder::prepare), but raises the function's own exception.
    fn prepared(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        if let Some(occurrences) = self.known(epoch) {
            return Ok(occurrences);
        }
        let asked = self.asked(py, epoch)?;
        let mut orders = self.lock();
        // A concurrent call may have finished first. If so, use its result.
        if let Some(occurrences) = orders.get(epoch) {
            return Ok(occurrences);
        }
        orders.keep(epoch, asked.clone());
        Ok(asked)
    }

    /// Calls the function even if the order of `epoch` is cached, because the function may depend
    /// on state that the user has changed since.
    pub(crate) fn ask(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        self.asked(py, epoch).map_err(|e| self.raised(py, epoch, e))
    }

    /// Like [`ask`](PythonOrder::ask), but raises the function's own exception.
    fn asked(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        let function =
            self.function.get(py).ok_or_else(|| PyRuntimeError::new_err("the loader was garbage-collected"))?;
        let args = (epoch,).into_pyobject(py)?;
        let calling = self.function.calling();
        let came = call(&function, &args);
        drop(calling);
        let indices: Vec<u64> = came?.extract()?;
        let mut times = HashMap::<u64, u64>::with_capacity(indices.len());
        let occurrence = |index: u64| {
            let time = times.entry(index).or_default();
            // A repeated sample is augmented differently.
            let variant = epoch ^ time.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *time += 1;
            Occurrence { index, variant }
        };
        Ok(indices.into_iter().map(occurrence).collect())
    }

    /// The error for the exception `e` of the function.
    fn failed(&self, py: Python<'_>, epoch: u64, e: PyErr) -> Error {
        of_program(py, ErrorKind::Transform, &format!("{} at epoch {epoch}: ", self.function.name()), e)
    }

    /// The exception to raise for the exception `e` of the function. A request to exit, such as
    /// Ctrl-C, is not changed.
    fn raised(&self, py: Python<'_>, epoch: u64, e: PyErr) -> PyErr {
        if e.is_instance_of::<PyException>(py) { raised(py, &self.failed(py, epoch, e)) } else { e }
    }

    /// Replaces the order of `epoch` if there is a new one. No run may use it at the same time.
    pub(crate) fn replace(&self, epoch: u64, renewed: Option<Arc<[Occurrence]>>) {
        if let Some(renewed) = renewed {
            let mut orders = self.lock();
            orders.known.retain(|(have, _)| *have != epoch);
            orders.keep(epoch, renewed);
        }
    }

    /// Records that the run continues in `epoch`.
    pub(crate) fn begin(&self, epoch: u64) {
        let mut orders = self.lock();
        (orders.position, orders.replayed) = (Some(epoch), None);
    }

    /// Records that `epoch` is replayed. The position of the run does not change.
    pub(crate) fn replay(&self, epoch: u64) {
        self.lock().replayed = Some(epoch);
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, epoch: u64) -> Option<Arc<[Occurrence]>> {
        self.lock().get(epoch)
    }

    /// # Panics
    /// If the function raises an exception. The loader turns the panic into an error of the epoch,
    /// so no panic hook reports it.
    fn occurrences(&self, epoch: u64) -> Arc<[Occurrence]> {
        self.known(epoch).unwrap_or_else(|| {
            let asked = attached(|py| self.prepared(py, epoch).map_err(|e| self.failed(py, epoch, e)));
            let asked = asked.unwrap_or_else(|| Err(Error::config("sampler: the interpreter is shutting down")));
            asked.unwrap_or_else(|e| resume_unwind(Box::new(e)))
        })
    }
}

impl Orders {
    fn get(&self, epoch: u64) -> Option<Arc<[Occurrence]>> {
        // Search from the end: this is called for every sample, mostly for the epoch that was added
        // last.
        self.known.iter().rev().find(|(have, _)| *have == epoch).map(|(_, occurrences)| occurrences.clone())
    }

    /// Caches the order of `epoch`, and evicts the oldest unused orders that exceed the limits.
    fn keep(&mut self, epoch: u64, occurrences: Arc<[Occurrence]>) {
        let samples = |known: &VecDeque<(u64, Arc<[Occurrence]>)>| -> usize {
            known.iter().map(|(_, kept)| kept.len() + 1).sum::<usize>() + occurrences.len()
        };
        while self.known.len() >= MOST_KEPT || (self.known.len() >= KEPT && samples(&self.known) > KEPT_SAMPLES) {
            let used = |epoch: u64| self.position == Some(epoch) || self.replayed == Some(epoch);
            let Some(oldest) = self.known.iter().position(|(epoch, _)| !used(*epoch)) else { break };
            self.known.remove(oldest);
        }
        self.known.push_back((epoch, occurrences));
    }
}

impl Sampler for PythonOrder {
    fn len(&self, epoch: u64) -> u64 {
        self.occurrences(epoch).len() as u64
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.at(epoch, position).index
    }

    fn at(&self, epoch: u64, position: u64) -> Occurrence {
        let occurrences = self.occurrences(epoch);
        occurrences.get(position as usize).copied().unwrap_or_else(|| {
            let found = occurrences.len();
            resume_unwind(Box::new(format!(
                "sampler: epoch {epoch} had more than {position} samples, and now has {found}"
            )))
        })
    }
}
