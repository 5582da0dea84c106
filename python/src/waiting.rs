//! Waits that Python signals can interrupt.
//!
//! Checking for signals runs Python code: handlers and, since CPython 3.12, the garbage collector.
//! This code may call the loader. Therefore a wait is divided into slices, and signals are checked
//! between slices, when the waiting thread does not hold any of the loader's locks.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use warpfeed::source::CancelToken;
use warpfeed::{Error, ErrorKind, Result};

use crate::error::Raised as _;
use crate::log;
use crate::thread_state::is_a_loaders;

/// Duration of a wait between two checks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(25);

/// Repeats `attempt`, which lasts about one [`SLICE`], until it returns a value. The GIL is
/// released during the attempts.
pub(crate) fn patiently<T: Send>(py: Python<'_>, mut attempt: impl FnMut() -> Option<T> + Send) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(&mut attempt) {
            return Ok(value);
        }
        log::tell(py)?;
        py.check_signals()?;
    }
}

/// How long work may continue to remove its files after it was told to stop.
const GRACE: Duration = Duration::from_secs(1);

/// Threads of calls that a signal interrupted, and threads that close a loader on behalf of one of
/// its own threads, each with its process id. They may still be reading one of the user's datasets.
static LEFT: Mutex<Vec<(u32, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Runs `work` on a new thread and waits for it. A signal ends the wait, tells `work` to stop, and
/// cancels its reads from stores. The result of `work` is then dropped on that thread. If the
/// thread cannot be spawned, `work` runs on the calling thread, so that a loader can still be
/// closed.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    aside_with(py, Duration::ZERO, work, |_| Ok(()))
}

/// Like [`aside`], for `work` that writes files: after a signal it may briefly continue, to remove
/// its files. `tell` is called between slices and at the end, and an error from it has the same
/// effect as a signal.
pub(crate) fn aside_telling<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    tell: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    aside_with(py, GRACE, work, tell)
}

fn aside_with<T: Send + 'static>(
    py: Python<'_>,
    grace: Duration,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    mut tell: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (told, (give, mut given)) = (stop.clone(), sync_channel(1));
    let (hand, handed) = sync_channel::<Box<dyn FnOnce(&AtomicBool) -> Result<T> + Send>>(1);
    let thread = std::thread::Builder::new().name("warpfeed-aside".into()).spawn(move || {
        let Ok(work) = handed.recv() else { return };
        let of = told.clone();
        let stop = CancelToken::new(move || of.load(Ordering::Relaxed));
        drop(give.send(stop.during(|| work(&told))));
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(e) if is_a_loaders() => {
            // The work may wait for this thread, so it cannot run here.
            return Err(Error::new(ErrorKind::Io, format!("cannot start a thread: {e}"))).raised(py);
        }
        Err(_) => {
            let value = py.detach(|| work(&stop));
            tell(py)?;
            return value.raised(py);
        }
    };
    // The channel has room for one result.
    let _ = hand.send(Box::new(work));
    let value = loop {
        let value = py.detach(|| received(&mut given, SLICE));
        if let Err(e) = tell(py).and_then(|()| match value {
            None => log::tell(py).and_then(|()| py.check_signals()),
            Some(_) => Ok(()),
        }) {
            stop.store(true, Ordering::Relaxed);
            py.detach(|| drop(received(&mut given, grace)));
            leave(thread);
            return Err(e);
        }
        if let Some(value) = value {
            break value;
        }
    };
    // Only the thread's interpreter state remains to be ended.
    py.detach(|| drop(thread.join()));
    value.raised(py)
}

/// Runs `work`, which ends threads, detached from the interpreter.
///
/// The garbage collector runs on any thread that runs Python code, including threads that `work`
/// would wait for. So a loader's own thread leaves `work` to a new thread.
pub(crate) fn ending(py: Python<'_>, work: impl FnOnce() + Send + 'static) {
    if !is_a_loaders() {
        return py.detach(work);
    }
    if let Some(thread) = apart(work) {
        leave(thread);
    }
}

/// Starts `work`, which ends threads, on a new thread. Returns `None` if the system refuses the
/// thread: the loader's threads then wait for work until the process ends.
pub(crate) fn apart(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let (give, given) = sync_channel::<Box<dyn FnOnce() + Send>>(1);
    let thread = std::thread::Builder::new()
        .name("warpfeed-end".into())
        .spawn(move || given.into_iter().for_each(|work| work()));
    match thread {
        Ok(thread) => {
            // The channel has room for one result.
            let _ = give.send(Box::new(work));
            Some(thread)
        }
        Err(_) => {
            std::mem::forget(work);
            None
        }
    }
}

/// Drops `value`, which ends threads of `process`.
///
/// After `fork` there are no threads to end, and during interpreter shutdown the process is about
/// to end.
pub(crate) fn dropping<T: Send + 'static>(process: &Process, mut value: Option<T>) {
    if process.is_this() {
        Python::try_attach(|py| {
            let value = value.take();
            ending(py, move || drop(value));
        });
    }
    std::mem::forget(value);
}

/// Leaves a thread to [`wait_for_calls`].
fn leave(thread: JoinHandle<()>) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|(_, thread)| !thread.is_finished());
    left.push((std::process::id(), thread));
}

/// Waits up to `most` seconds for the threads of [`LEFT`]. A thread that returns to the interpreter
/// during its shutdown may abort the process.
#[pyfunction]
pub(crate) fn wait_for_calls(py: Python<'_>, most: f64) -> PyResult<()> {
    let here = std::process::id();
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    let end = Instant::now() + Duration::from_secs_f64(most.max(0.0));
    for (_, thread) in left.into_iter().filter(|(process, _)| *process == here) {
        while !thread.is_finished() && Instant::now() < end {
            py.detach(|| std::thread::sleep(SLICE));
            py.check_signals()?;
        }
        if thread.is_finished() {
            py.detach(|| drop(thread.join()));
        }
    }
    Ok(())
}

/// The result of work on a different thread, if it arrives within `slice`. A panic of that thread
/// is an error.
fn received<T>(given: &mut Receiver<Result<T>>, slice: Duration) -> Option<Result<T>> {
    match given.recv_timeout(slice) {
        Ok(value) => Some(value),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            Some(Err(Error::new(ErrorKind::Panic, "the call panicked; see standard error for why")))
        }
    }
}

/// The process that opened a loader or decoder. After a fork, the child lacks its threads, and its
/// locks may never be released.
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
            "the {what} was opened in process {id}, and this is process {here}: worker threads do not survive fork; \
             {advice}"
        )))
    }
}

/// A value that one thread at a time uses. Unlike locking a mutex, waiting for it times out after a
/// [`SLICE`].
pub(crate) struct Turns<T> {
    value: Mutex<Option<T>>,
    back: Condvar,
}

/// Exclusive use of the value until it is dropped.
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
        self.value.as_ref().expect("only drop takes the value")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("only drop takes the value")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        *self.of.lock() = self.value.take();
        self.of.back.notify_one();
    }
}
