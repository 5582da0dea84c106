//! References to Python objects that are visible to the garbage collector.
//!
//! The user's dataset and sampler function may refer back to the loader that owns them. Only the
//! garbage collector can free such a cycle, and only if the loader reports its references.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

pub(crate) struct TracedRef {
    object: Mutex<Option<Py<PyAny>>>,
    /// Name of the object or of the called method, for error messages.
    name: String,
    active_calls: AtomicUsize,
}

/// A call in progress, which ends when the guard is dropped.
pub(crate) struct CallGuard<'a>(&'a TracedRef);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.active_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TracedRef {
    pub(crate) fn new(object: Py<PyAny>, name: String) -> Arc<Self> {
        Arc::new(TracedRef { object: Mutex::new(Some(object)), name, active_calls: AtomicUsize::new(0) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn begin_call(&self) -> CallGuard<'_> {
        self.active_calls.fetch_add(1, Ordering::Relaxed);
        CallGuard(self)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.active_calls.load(Ordering::Relaxed) > 0
    }

    /// Returns the object, or `None` if the collector has cleared the reference.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_ref().map(|object| object.bind(py).clone())
    }

    /// Reports the object to the collector. If a thread holds the lock, the object is in use, so it
    /// need not be reported.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let object = match self.object.try_lock() {
            Ok(object) => object,
            Err(TryLockError::Poisoned(object)) => object.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        visit.call(&*object)
    }

    pub(crate) fn clear(&self) {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping may run Python code, so the lock is released first.
        drop(object);
    }
}

pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = || object.py().import("warpfeed._batch_transform")?.getattr("name_of")?.call1((object,))?.extract();
    name().unwrap_or_else(|_: PyErr| "a function".to_owned())
}

thread_local! {
    /// References registered on this thread since `collecting_refs` was called, or `None` outside
    /// such a call.
    static COLLECTED: RefCell<Option<Vec<Arc<TracedRef>>>> = const { RefCell::new(None) };
}

/// Returns the result, and the references that `make` created with [`register`].
pub(crate) fn collecting_refs<T>(make: impl FnOnce() -> T) -> (T, Vec<Arc<TracedRef>>) {
    let before = COLLECTED.replace(Some(Vec::new()));
    let result = make();
    (result, COLLECTED.replace(before).unwrap_or_default())
}

pub(crate) fn register(object: Py<PyAny>, name: String) -> Arc<TracedRef> {
    let traced = TracedRef::new(object, name);
    COLLECTED.with_borrow_mut(|collected| collected.iter_mut().for_each(|collected| collected.push(traced.clone())));
    traced
}
