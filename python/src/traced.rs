//! References to Python objects that are visible to the garbage collector.
//!
//! A loader owns the user's dataset and sampler function, either of which may refer back to the
//! loader. Only the garbage collector can free such a cycle, and only if the loader reports its
//! half of it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// A reference to a Python object that a loader uses.
pub(crate) struct TracedRef {
    object: Mutex<Option<Py<PyAny>>>,
    /// Name of the object or of the method that is called, for error messages.
    name: String,
    /// Number of calls in progress.
    calls: AtomicUsize,
}

/// Guard of a call in progress. The call ends when the guard is dropped.
pub(crate) struct CallGuard<'a>(&'a TracedRef);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TracedRef {
    /// Stores `object`. `name` is the name of the object or of the method that is called.
    pub(crate) fn new(object: Py<PyAny>, name: String) -> Arc<Self> {
        Arc::new(TracedRef { object: Mutex::new(Some(object)), name, calls: AtomicUsize::new(0) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Records that a call begins. The call ends when the returned guard is dropped.
    pub(crate) fn begin_call(&self) -> CallGuard<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard(self)
    }

    /// Returns whether a call is in progress.
    pub(crate) fn is_called(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// Returns the object, unless the collector has cleared it.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_ref().map(|object| object.bind(py).clone())
    }

    /// Reports the reference to the garbage collector. If a thread holds the lock, the object is in
    /// use, so it is not garbage and need not be reported.
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
        // Drop the object after releasing the lock, because dropping may run Python code.
        drop(object);
    }
}

/// Returns the name of a function or class, for messages.
pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = || object.py().import("warpfeed._batch_transform")?.getattr("name_of")?.call1((object,))?.extract();
    name().unwrap_or_else(|_: PyErr| "a function".to_owned())
}

thread_local! {
    /// References registered since `collecting_refs` was called.
    static COLLECTED: RefCell<Option<Vec<Arc<TracedRef>>>> = const { RefCell::new(None) };
}

/// Calls `make`. Returns the result, and the references that `make` created with [`register`].
pub(crate) fn collecting_refs<T>(make: impl FnOnce() -> T) -> (T, Vec<Arc<TracedRef>>) {
    let before = COLLECTED.replace(Some(Vec::new()));
    let result = make();
    (result, COLLECTED.replace(before).unwrap_or_default())
}

/// Creates a reference that the enclosing [`collecting_refs`] returns.
pub(crate) fn register(object: Py<PyAny>, name: String) -> Arc<TracedRef> {
    let traced = TracedRef::new(object, name);
    COLLECTED.with_borrow_mut(|collected| collected.iter_mut().for_each(|collected| collected.push(traced.clone())));
    traced
}
