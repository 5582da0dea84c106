//! References to Python objects that the garbage collector can traverse.
//!
//! A loader owns references to its dataset and its order. If one of these refers to the loader,
//! they form a cycle, which only the collector can free. Therefore the loader reports these
//! references to the collector.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// One reference to a Python object.
pub(crate) struct TracedRef {
    object: Mutex<Option<Py<PyAny>>>,
    /// Name of the callee, for error messages.
    name: String,
    /// Number of calls in progress.
    calls: AtomicUsize,
}

/// A call in progress.
pub(crate) struct Calling<'a>(&'a TracedRef);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TracedRef {
    /// Stores `object`. `name` describes what a loader calls.
    pub(crate) fn new(object: Py<PyAny>, name: String) -> Arc<Self> {
        Arc::new(TracedRef { object: Mutex::new(Some(object)), name, calls: AtomicUsize::new(0) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Counts a call as in progress until the result is dropped.
    pub(crate) fn calling(&self) -> Calling<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Calling(self)
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

    /// Reports the reference to the collector. If a thread holds the lock, the object is in use and
    /// therefore not garbage.
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
        // Dropped after the lock is released, because dropping the object may run code.
        drop(object);
    }
}

/// The name of a function or class, for messages.
pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = || object.py().import("warpfeed._batch_transform")?.getattr("name_of")?.call1((object,))?.extract();
    name().unwrap_or_else(|_: PyErr| "a function".to_owned())
}

thread_local! {
    /// Objects registered since `noting` began.
    static NOTED: RefCell<Option<Vec<Arc<TracedRef>>>> = const { RefCell::new(None) };
}

/// Runs `make`, and also returns the objects that it registered with [`keep`] on this thread.
pub(crate) fn noting<T>(make: impl FnOnce() -> T) -> (T, Vec<Arc<TracedRef>>) {
    let before = NOTED.replace(Some(Vec::new()));
    let made = make();
    (made, NOTED.replace(before).unwrap_or_default())
}

/// Registers `object`. `name` describes what a loader calls.
pub(crate) fn keep(object: Py<PyAny>, name: String) -> Arc<TracedRef> {
    let kept = TracedRef::new(object, name);
    NOTED.with_borrow_mut(|noted| noted.iter_mut().for_each(|noted| noted.push(kept.clone())));
    kept
}
