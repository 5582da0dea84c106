//! Waits that signals of Python end.
//!
//! Python code runs where signals are looked for: handlers, and from CPython 3.12 on the garbage
//! collector. They may call the loader again. So no wait holds anything of the loader then: it lasts
//! a slice, ends, and begins again after the look.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use warpfeed::{Error, ErrorKind, Result};

use crate::error::Raised as _;

/// How long a wait lasts before signals are looked for.
pub(crate) const SLICE: Duration = Duration::from_millis(25);

/// Repeats `attempt`, which lasts about a [`SLICE`], until it gives a value. The interpreter is free
/// meanwhile.
pub(crate) fn patiently<T: Send>(py: Python<'_>, mut attempt: impl FnMut() -> Option<T> + Send) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(&mut attempt) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}

/// Runs `work` on a thread of its own, and waits for it. After a signal nobody waits any more, and
/// `work` is told to stop. Its value is then dropped on that thread.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (told, (give, given)) = (stop.clone(), sync_channel(1));
    std::thread::Builder::new()
        .name("warpfeed-aside".into())
        .spawn(move || drop(give.send(work(&told))))
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

/// The process that something was opened by. In another one its threads are missing, and its locks
/// may be held for good.
pub(crate) struct Process {
    id: u32,
    /// What was opened, and the way out.
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

/// A value that one thread at a time has in hand. A wait for it ends after a [`SLICE`], as that for a
/// mutex cannot.
pub(crate) struct Turns<T> {
    value: Mutex<Option<T>>,
    back: Condvar,
}

/// The value in hand. Dropping it gives it back.
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

    /// The value, if others let go of it within a slice.
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
