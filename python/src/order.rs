//! Lets a Python function define the order of samples.
//!
//! A call to Python for each position would be slow, so the function returns the order of a whole
//! epoch, which is cached.

use std::collections::{HashMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use warpfeed::sampler::{Occurrence, Sampler};
use warpfeed::{Error, ErrorKind};

use crate::error::{raised, user_error};
use crate::thread_state::{attached, call};
use crate::traced::{TracedRef, name_of};

/// Number of epochs that are cached regardless of their size.
///
/// If epochs are short, the loader prepares several of them in advance, at most one per prefetched
/// batch. All of these are cached, up to the limits below.
const MIN_CACHED_EPOCHS: usize = 4;
/// Maximum number of samples in all cached epochs, unless only `MIN_CACHED_EPOCHS` are cached.
const MAX_CACHED_SAMPLES: usize = 1 << 20;
const MAX_CACHED_EPOCHS: usize = 1024;

pub(crate) struct PythonOrder {
    function: Arc<TracedRef>,
    /// No thread holds this lock while it waits for the interpreter.
    orders: Mutex<Orders>,
}

/// The cached orders. The orders of `position` and `replayed` are never evicted, because a new call
/// of the function could change the order in the middle of an epoch.
#[derive(Default)]
struct Orders {
    /// Epochs with their orders, oldest first.
    cached: VecDeque<(u64, Arc<[Occurrence]>)>,
    /// Epoch that the run has reached, or `None` before the run begins.
    position: Option<u64>,
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

    /// Returns the order of `epoch`. If the order is not cached, calls the function on this thread,
    /// so that an exception reaches the caller instead of a loader thread.
    pub(crate) fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        self.get_or_call(py, epoch).map_err(|e| self.raised(py, epoch, e))
    }

    /// Like [`prepare`](PythonOrder::prepare), but raises the function's own exception.
    fn get_or_call(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        if let Some(occurrences) = self.cached(epoch) {
            return Ok(occurrences);
        }
        let occurrences = self.call_function(py, epoch)?;
        let mut orders = self.lock();
        // A concurrent call may have finished first.
        if let Some(occurrences) = orders.get(epoch) {
            return Ok(occurrences);
        }
        orders.insert(epoch, occurrences.clone());
        Ok(occurrences)
    }

    /// Calls the function even if the order is cached, because its result may depend on state. Does
    /// not change the cache.
    pub(crate) fn refresh(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        self.call_function(py, epoch).map_err(|e| self.raised(py, epoch, e))
    }

    /// Like [`refresh`](PythonOrder::refresh), but raises the function's own exception.
    fn call_function(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        let function =
            self.function.get(py).ok_or_else(|| PyRuntimeError::new_err("the loader was garbage-collected"))?;
        let args = (epoch,).into_pyobject(py)?;
        let calling = self.function.begin_call();
        let result = call(&function, &args);
        drop(calling);
        let indices: Vec<u64> = result?.extract()?;
        let mut repeat_counts = HashMap::<u64, u64>::with_capacity(indices.len());
        let occurrence = |index: u64| {
            let repetition = repeat_counts.entry(index).or_default();
            // Give each repetition of a sample a different augmentation.
            let variant = epoch ^ repetition.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *repetition += 1;
            Occurrence { index, variant }
        };
        Ok(indices.into_iter().map(occurrence).collect())
    }

    fn sampler_error(&self, py: Python<'_>, epoch: u64, e: PyErr) -> Error {
        user_error(py, ErrorKind::Transform, &format!("{} at epoch {epoch}: ", self.function.name()), e)
    }

    /// Wraps an exception in a `WarpfeedError`, unless it is a request to exit, such as Ctrl-C.
    fn raised(&self, py: Python<'_>, epoch: u64, e: PyErr) -> PyErr {
        if e.is_instance_of::<PyException>(py) { raised(py, &self.sampler_error(py, epoch, e)) } else { e }
    }

    /// Replaces the cached order of `epoch`, which must not be in use.
    pub(crate) fn replace(&self, epoch: u64, new_order: Option<Arc<[Occurrence]>>) {
        if let Some(new_order) = new_order {
            let mut orders = self.lock();
            orders.cached.retain(|(cached_epoch, _)| *cached_epoch != epoch);
            orders.insert(epoch, new_order);
        }
    }

    pub(crate) fn begin(&self, epoch: u64) {
        let mut orders = self.lock();
        (orders.position, orders.replayed) = (Some(epoch), None);
    }

    pub(crate) fn replay(&self, epoch: u64) {
        self.lock().replayed = Some(epoch);
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached(&self, epoch: u64) -> Option<Arc<[Occurrence]>> {
        self.lock().get(epoch)
    }

    /// Returns the order of `epoch`. If the order is not cached, calls the function on this thread.
    ///
    /// # Panics
    /// Panics if the function raises an exception, or if the interpreter is shutting down. Panic
    /// hooks are not called, because the loader converts the panic to an error.
    fn occurrences(&self, epoch: u64) -> Arc<[Occurrence]> {
        self.cached(epoch).unwrap_or_else(|| {
            let occurrences = attached(|py| self.get_or_call(py, epoch).map_err(|e| self.sampler_error(py, epoch, e)));
            let occurrences =
                occurrences.unwrap_or_else(|| Err(Error::config("sampler: the interpreter is shutting down")));
            occurrences.unwrap_or_else(|e| resume_unwind(Box::new(e)))
        })
    }
}

impl Orders {
    fn get(&self, epoch: u64) -> Option<Arc<[Occurrence]>> {
        // Almost all calls ask for the epoch that was added last.
        self.cached
            .iter()
            .rev()
            .find(|(cached_epoch, _)| *cached_epoch == epoch)
            .map(|(_, occurrences)| occurrences.clone())
    }

    /// Adds an order, after evicting the oldest unused orders until the limits are met.
    fn insert(&mut self, epoch: u64, occurrences: Arc<[Occurrence]>) {
        let samples = |cached: &VecDeque<(u64, Arc<[Occurrence]>)>| -> usize {
            cached.iter().map(|(_, order)| order.len() + 1).sum::<usize>() + occurrences.len()
        };
        while self.cached.len() >= MAX_CACHED_EPOCHS
            || (self.cached.len() >= MIN_CACHED_EPOCHS && samples(&self.cached) > MAX_CACHED_SAMPLES)
        {
            let is_in_use = |epoch: u64| self.position == Some(epoch) || self.replayed == Some(epoch);
            let Some(oldest) = self.cached.iter().position(|(epoch, _)| !is_in_use(*epoch)) else { break };
            self.cached.remove(oldest);
        }
        self.cached.push_back((epoch, occurrences));
    }
}

impl Sampler for PythonOrder {
    fn len(&self, epoch: u64) -> u64 {
        self.occurrences(epoch).len() as u64
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.occurrence(epoch, position).index
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        let occurrences = self.occurrences(epoch);
        occurrences.get(position as usize).copied().unwrap_or_else(|| {
            let count = occurrences.len();
            resume_unwind(Box::new(format!(
                "sampler: epoch {epoch} had more than {position} samples before, but now has {count}; return the same \
                 number of indices on each call for the same epoch"
            )))
        })
    }
}
