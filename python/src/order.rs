use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use warpfeed::order::{Occurrence, Order};

use crate::kept::Kept;
use crate::thread_state::attached;

/// Number of epochs whose order is cached, and the number of samples up to which more are. Short
/// epochs are prepared several ahead.
const KEPT: usize = 4;
const KEPT_SAMPLES: usize = 1 << 20;

/// An order by a Python function, which returns the indices of an epoch's samples.
///
/// The mutex is never held while a thread waits for the interpreter.
pub(crate) struct PythonOrder {
    function: Arc<Kept>,
    epochs: Mutex<VecDeque<(u64, Arc<[Occurrence]>)>>,
}

impl PythonOrder {
    pub(crate) fn new(function: Py<PyAny>) -> Self {
        PythonOrder { function: Kept::new(function), epochs: Mutex::default() }
    }

    pub(crate) fn function(&self) -> &Kept {
        &self.function
    }

    /// Calls the function now, so that its exception reaches the caller that needs the epoch.
    pub(crate) fn prepare(&self, py: Python<'_>, epoch: u64) -> PyResult<Arc<[Occurrence]>> {
        if let Some(occurrences) = self.known(epoch) {
            return Ok(occurrences);
        }
        let function =
            self.function.get(py).ok_or_else(|| PyRuntimeError::new_err("the loader was garbage-collected"))?;
        let indices: Vec<u64> = function.call1((epoch,))?.extract()?;
        let mut times = HashMap::<u64, u64>::with_capacity(indices.len());
        let occurrence = |index: u64| {
            let time = times.entry(index).or_default();
            // A sample that comes again is augmented differently.
            let variant = epoch ^ time.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *time += 1;
            Occurrence { index, variant }
        };
        let occurrences: Arc<[Occurrence]> = indices.into_iter().map(occurrence).collect();
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have called it at the same time. The first answer counts.
        if let Some((_, occurrences)) = epochs.iter().find(|(have, _)| *have == epoch) {
            return Ok(occurrences.clone());
        }
        let samples = |epochs: &VecDeque<(u64, Arc<[Occurrence]>)>| -> usize {
            epochs.iter().map(|(_, kept)| kept.len() + 1).sum::<usize>() + occurrences.len()
        };
        while epochs.len() >= KEPT && samples(&epochs) > KEPT_SAMPLES {
            epochs.pop_front();
        }
        epochs.push_back((epoch, occurrences.clone()));
        Ok(occurrences)
    }

    fn known(&self, epoch: u64) -> Option<Arc<[Occurrence]>> {
        let epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        epochs.iter().find(|(have, _)| *have == epoch).map(|(_, occurrences)| occurrences.clone())
    }

    /// # Panics
    /// With the function's exception. The loader makes it an error of the epoch.
    fn occurrences(&self, epoch: u64) -> Arc<[Occurrence]> {
        self.known(epoch).unwrap_or_else(|| {
            let asked = attached(|py| self.prepare(py, epoch).map_err(|e| format!("order: {e}")));
            asked.unwrap_or_else(|| Err("order: the interpreter is shutting down".to_owned())).expect("the order")
        })
    }
}

impl Order for PythonOrder {
    fn len(&self, epoch: u64) -> u64 {
        self.occurrences(epoch).len() as u64
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.at(epoch, position).index
    }

    fn at(&self, epoch: u64, position: u64) -> Occurrence {
        self.occurrences(epoch)[position as usize]
    }
}
