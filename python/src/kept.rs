//! References to Python objects that the garbage collector can see.
//!
//! A loader keeps its data set and its order. If one of these keeps the loader, they form a cycle,
//! which only the collector can free. So the loader shows these references to the collector.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// One reference to a Python object.
pub(crate) struct Kept(Mutex<Option<Py<PyAny>>>);

impl Kept {
    pub(crate) fn new(object: Py<PyAny>) -> Arc<Self> {
        Arc::new(Kept(Mutex::new(Some(object))))
    }

    /// The object, unless the collector has taken it.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_ref().map(|object| object.bind(py).clone())
    }

    /// Shows the reference to the collector. If another thread has the lock, the object is in use
    /// and therefore not garbage.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let object = match self.0.try_lock() {
            Ok(object) => object,
            Err(TryLockError::Poisoned(object)) => object.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        visit.call(&*object)
    }

    pub(crate) fn clear(&self) {
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // After the lock is released, because dropping the object may run code.
        drop(object);
    }
}

thread_local! {
    /// Objects that were kept since `noting` began.
    static NOTED: RefCell<Option<Vec<Arc<Kept>>>> = const { RefCell::new(None) };
}

/// Runs `make`. Also returns the objects that it kept with [`keep`] on this thread.
pub(crate) fn noting<T>(make: impl FnOnce() -> T) -> (T, Vec<Arc<Kept>>) {
    let before = NOTED.replace(Some(Vec::new()));
    let made = make();
    (made, NOTED.replace(before).unwrap_or_default())
}

/// Keeps `object`.
pub(crate) fn keep(object: Py<PyAny>) -> Arc<Kept> {
    let kept = Kept::new(object);
    NOTED.with_borrow_mut(|noted| noted.iter_mut().for_each(|noted| noted.push(kept.clone())));
    kept
}
