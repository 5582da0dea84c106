//! Waits that Python's signals interrupt.
//!
//! A check for signals runs Python code: handlers, and since CPython 3.12 the garbage collector.
//! This code may call the loader. So a wait consists of slices. Signals are checked between two
//! slices, when the wait holds no lock of the loader.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use warpfeed::source::Stop;
use warpfeed::{Error, ErrorKind, Result};

use crate::error::Raised as _;

/// Duration of a wait between two checks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(25);

/// Repeats `attempt`, which lasts about one [`SLICE`], until it returns a value. The interpreter's
/// lock is released meanwhile.
pub(crate) fn patiently<T: Send>(py: Python<'_>, mut attempt: impl FnMut() -> Option<T> + Send) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(&mut attempt) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

/// Runs `work` on a new thread and waits for it. A signal ends the wait, tells `work` to stop, and ends
/// its reads from stores.
/// Its value is then dropped on that thread.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (told, (give, given)) = (stop.clone(), sync_channel(1));
    std::thread::Builder::new()
        .name("warpfeed-aside".into())
        .spawn(move || {
            let of = told.clone();
            let stop = Stop::new(move || of.load(Ordering::Relaxed));
            drop(give.send(stop.during(|| work(&told))));
        })
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start a thread: {e}")))
        .raised(py)?;
    let wait = move || match given.recv_timeout(SLICE) {
        Ok(value) => Some(value),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            Some(Err(Error::new(ErrorKind::Panic, "the call panicked; see standard error for why")))
        }
    };
    let value = patiently(py, wait).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
    value.raised(py)
}

/// The process that opened a loader or decoder. After a fork its threads are missing in the child,
/// and its locks may never be released.
pub(crate) struct Process {
    id: u32,
    /// The opened object, and advice for an error.
    what: &'static str,
    advice: &'static str,
}

impl Process {
    pub(crate) fn new(what: &'static str, advice: &'static str) -> Self {
        Process { id: std::process::id(), what, advice }
    }

    pub(crate) fn is_this(&self) -> bool {
        self.id == std::process::id()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_this() {
            return Ok(());
        }
        let (Process { id, what, advice }, here) = (self, std::process::id());
        Err(Error::config(format!(
            "the {what} was opened by process {id}, this is {here}: worker threads do not survive fork; {advice}"
        )))
    }
}

/// A value for use by one thread at a time. Unlike locking a mutex, waiting for it times out, after
/// a [`SLICE`].
pub(crate) struct Turns<T> {
    value: Mutex<Option<T>>,
    back: Condvar,
}

/// Exclusive use of the value, until it is dropped.
pub(crate) struct Turn<'a, T> {
    of: &'a Turns<T>,
    value: Option<T>,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        Turns { value: Mutex::new(Some(value)), back: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value if other threads release it within a slice.
    pub(crate) fn within_a_slice(&self) -> Option<Turn<'_, T>> {
        let found = self.back.wait_timeout_while(self.lock(), SLICE, |value| value.is_none());
        let value = found.unwrap_or_else(PoisonError::into_inner).0.take()?;
        Some(Turn { of: self, value: Some(value) })
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it goes back in drop only")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it goes back in drop only")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        *self.of.lock() = self.value.take();
        self.of.back.notify_one();
    }
}
