//! References to Python objects that the garbage collector can see.
//!
//! A loader keeps its dataset and its order. If one of these keeps the loader, they form a cycle,
//! which only the collector can free. So the loader shows these references to the collector.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// One reference to a Python object.
pub(crate) struct TracedRef {
    object: Mutex<Option<Py<PyAny>>>,
    /// What a loader calls, for messages, and the number of calls in progress.
    name: String,
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
    /// Keeps `object`. `name` is what a loader calls.
    pub(crate) fn new(object: Py<PyAny>, name: String) -> Arc<Self> {
        Arc::new(TracedRef { object: Mutex::new(Some(object)), name, calls: AtomicUsize::new(0) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Notes a call, until the result is dropped.
    pub(crate) fn calling(&self) -> Calling<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Calling(self)
    }

    /// Whether a call is in progress.
    pub(crate) fn is_called(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// The object, unless the collector has taken it.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_ref().map(|object| object.bind(py).clone())
    }

    /// Shows the reference to the collector. If another thread has the lock, the object is in use
    /// and therefore not garbage.
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
        // After the lock is released, because dropping the object may run code.
        drop(object);
    }
}

/// The name of a function or of a class, for messages.
pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = || object.py().import("warpfeed._transforms")?.getattr("name_of")?.call1((object,))?.extract();
    name().unwrap_or_else(|_: PyErr| "a function".to_owned())
}

thread_local! {
    /// Objects that were kept since `noting` began.
    static NOTED: RefCell<Option<Vec<Arc<TracedRef>>>> = const { RefCell::new(None) };
}

/// Runs `make`. Also returns the objects that it kept with [`keep`] on this thread.
pub(crate) fn noting<T>(make: impl FnOnce() -> T) -> (T, Vec<Arc<TracedRef>>) {
    let before = NOTED.replace(Some(Vec::new()));
    let made = make();
    (made, NOTED.replace(before).unwrap_or_default())
}

/// Keeps `object`. `name` is what a loader calls.
pub(crate) fn keep(object: Py<PyAny>, name: String) -> Arc<TracedRef> {
    let kept = TracedRef::new(object, name);
    NOTED.with_borrow_mut(|noted| noted.iter_mut().for_each(|noted| noted.push(kept.clone())));
    kept
}
