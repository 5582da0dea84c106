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

/// Number of epochs whose order is cached, and the number of samples up to which more are. Short
/// epochs are prepared several ahead, but not more than there are batches ahead. The orders in use
/// always stay: the function may depend on state, and then would return another order in mid-epoch.
const KEPT: usize = 4;
const KEPT_SAMPLES: usize = 1 << 20;
const MOST_KEPT: usize = 1024;

/// An order by a Python function, which returns the indices of an epoch's samples.
///
/// The mutex is never held while a thread waits for the interpreter.
pub(crate) struct PythonOrder {
    function: Arc<TracedRef>,
    orders: Mutex<Orders>,
}

/// The orders of some epochs, oldest first.
#[derive(Default)]
struct Orders {
    known: VecDeque<(u64, Arc<[Occurrence]>)>,
    /// The epoch of the run's position, and the epoch that is being replayed.
    position: Option<u64>,
    replayed: Option<u64>,
}

impl PythonOrder {
    pub(crate) fn new(function: &Bound<'_, PyAny>) -> Self {
        let name = format!("order={}", name_of(function));
        PythonOrder { function: TracedRef::new(function.clone().unbind(), name), orders: Mutex::default() }
    }

    pub(crate) fn function(&self) -> &Arc<TracedRef> {
        &self.function
    }

    /// Calls the function now, so that its exception reaches the caller that needs the epoch.
    pub(crate) fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        self.prepared(py, epoch).map_err(|e| self.raised(py, epoch, e))
    }

    /// Like [`prepare`](PythonOrder::prepare), with the exception of the function.
    fn prepared(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        if let Some(occurrences) = self.known(epoch) {
            return Ok(occurrences);
        }
        let asked = self.asked(py, epoch)?;
        let mut orders = self.lock();
        // Another thread may have called it at the same time. The first answer counts.
        if let Some(occurrences) = orders.get(epoch) {
            return Ok(occurrences);
        }
        orders.keep(epoch, asked.clone());
        Ok(asked)
    }

    /// Calls the function, even if its answer for `epoch` is known: the function may depend on
    /// state that the program has changed since.
    pub(crate) fn ask(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        self.asked(py, epoch).map_err(|e| self.raised(py, epoch, e))
    }

    /// Like [`ask`](PythonOrder::ask), with the exception of the function.
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
            // A sample that comes again is augmented differently.
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

    /// The exception to raise for the exception `e` of the function. An exit, such as one of
    /// Ctrl-C, stays as it is.
    fn raised(&self, py: Python<'_>, epoch: u64, e: PyErr) -> PyErr {
        if e.is_instance_of::<PyException>(py) { raised(py, &self.failed(py, epoch, e)) } else { e }
    }

    /// Replaces the order of `epoch` if there is a new one. No run may use it meanwhile.
    pub(crate) fn replace(&self, epoch: u64, renewed: Option<Arc<[Occurrence]>>) {
        if let Some(renewed) = renewed {
            let mut orders = self.lock();
            orders.known.retain(|(have, _)| *have != epoch);
            orders.keep(epoch, renewed);
        }
    }

    /// Notes that the run continues in `epoch`.
    pub(crate) fn begin(&self, epoch: u64) {
        let mut orders = self.lock();
        (orders.position, orders.replayed) = (Some(epoch), None);
    }

    /// Notes that `epoch` is replayed. The position of the run does not change.
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
    /// With an error of the function's exception. The loader makes it an error of the epoch, so no
    /// panic hook reports it.
    fn occurrences(&self, epoch: u64) -> Arc<[Occurrence]> {
        self.known(epoch).unwrap_or_else(|| {
            let asked = attached(|py| self.prepared(py, epoch).map_err(|e| self.failed(py, epoch, e)));
            let asked = asked.unwrap_or_else(|| Err(Error::config("order: the interpreter is shutting down")));
            asked.unwrap_or_else(|e| resume_unwind(Box::new(e)))
        })
    }
}

impl Orders {
    fn get(&self, epoch: u64) -> Option<Arc<[Occurrence]>> {
        // Each sample asks, mostly for the epoch that came last.
        self.known.iter().rev().find(|(have, _)| *have == epoch).map(|(_, occurrences)| occurrences.clone())
    }

    /// Adds the order of `epoch`, and removes the oldest ones beyond the limits that are not in
    /// use.
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
                "order: epoch {epoch} had more than {position} samples, and now has {found}"
            )))
        })
    }
}
