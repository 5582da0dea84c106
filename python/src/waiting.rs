//! Waits that Python signals can interrupt, and work that runs detached from the interpreter.
//!
//! A check for signals runs Python code (signal handlers and, since CPython 3.12, the garbage
//! collector), which may call the loader. Signals must therefore not be checked while the thread
//! holds a lock of the loader. Waits are divided into slices, with a check after each slice.

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
use crate::thread_state::is_loader_thread;

/// Maximum duration of a wait between two checks for signals.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(25);

/// Repeats `attempt` until it returns a value. `attempt` runs detached from the interpreter, and
/// should wait for at most one [`WAIT_SLICE`]. Fails if a signal handler raises an exception.
pub(crate) fn wait_interruptibly<T: Send>(
    py: Python<'_>,
    mut attempt: impl FnMut() -> Option<T> + Send,
) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(&mut attempt) {
            return Ok(value);
        }
        log::flush(py)?;
        py.check_signals()?;
    }
}

/// Maximum time to wait for interrupted work to remove its files.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Background threads that may still read the user's dataset, with their process ids. They run
/// interrupted calls, or close a loader on behalf of one of its own threads.
static LEFT_RUNNING: Mutex<Vec<(u32, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Runs `work` on a new thread and waits for it. If a signal handler raises an exception, the call
/// fails, sets the flag that `work` receives, and cancels the reads of `work` from object stores.
///
/// If no thread can be started, `work` runs on the calling thread, so that a loader can still be
/// closed. On a loader's thread, the call fails instead.
pub(crate) fn run_on_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    run_with_grace(py, Duration::ZERO, work, |_| Ok(()))
}

/// Like [`run_on_thread`], for `work` that writes files. After a signal, waits up to
/// [`CLEANUP_TIMEOUT`] for `work` to remove its files. `report` is called after each slice and at
/// the end. An error from `report` has the same effect as a signal.
pub(crate) fn run_reporting<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    report: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    run_with_grace(py, CLEANUP_TIMEOUT, work, report)
}

fn run_with_grace<T: Send + 'static>(
    py: Python<'_>,
    grace: Duration,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    mut report: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, (result_sender, mut result)) = (stop.clone(), sync_channel(1));
    let (work_sender, work_receiver) = sync_channel::<Box<dyn FnOnce(&AtomicBool) -> Result<T> + Send>>(1);
    let thread = std::thread::Builder::new().name("warpfeed-aside".into()).spawn(move || {
        let Ok(work) = work_receiver.recv() else { return };
        let stopping = stopped.clone();
        let stop = CancelToken::new(move || stopping.load(Ordering::Relaxed));
        drop(result_sender.send(stop.run(|| work(&stopped))));
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(e) if is_loader_thread() => {
            // `work` may wait for this thread to end, so it must not run on it.
            return Err(Error::new(ErrorKind::Io, format!("cannot start a thread: {e}"))).raised(py);
        }
        Err(_) => {
            let value = py.detach(|| work(&stop));
            report(py)?;
            return value.raised(py);
        }
    };
    // The channel is empty, so this does not block.
    let _ = work_sender.send(Box::new(work));
    let value = loop {
        let value = py.detach(|| receive(&mut result, WAIT_SLICE));
        if let Err(e) = report(py).and_then(|()| match value {
            None => log::flush(py).and_then(|()| py.check_signals()),
            Some(_) => Ok(()),
        }) {
            stop.store(true, Ordering::Relaxed);
            py.detach(|| drop(receive(&mut result, grace)));
            leave_running(thread);
            return Err(e);
        }
        if let Some(value) = value {
            break value;
        }
    };
    // The thread only has to release its interpreter state.
    py.detach(|| drop(thread.join()));
    value.raised(py)
}

/// Runs `work`, which stops a loader's threads, detached from the interpreter.
///
/// The garbage collector may call this function on any thread, including a loader's thread. On a
/// loader's thread, `work` would wait forever for that thread to end, so `work` runs on a new
/// thread instead.
pub(crate) fn end_threads(py: Python<'_>, work: impl FnOnce() + Send + 'static) {
    if !is_loader_thread() {
        return py.detach(work);
    }
    if let Some(thread) = spawn_shutdown(work) {
        leave_running(thread);
    }
}

/// Runs `work` on a new thread. If no thread can be started, leaks `work` and returns `None`. The
/// loader's threads then remain until the process ends.
pub(crate) fn spawn_shutdown(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let (work_sender, work_receiver) = sync_channel::<Box<dyn FnOnce() + Send>>(1);
    let thread = std::thread::Builder::new()
        .name("warpfeed-end".into())
        .spawn(move || work_receiver.into_iter().for_each(|work| work()));
    match thread {
        Ok(thread) => {
            // The channel is empty, so this does not block.
            let _ = work_sender.send(Box::new(work));
            Some(thread)
        }
        Err(_) => {
            std::mem::forget(work);
            None
        }
    }
}

/// Drops `value`, whose destructor stops threads of `process`, while detached from the interpreter.
///
/// Leaks `value` in a forked child, which does not have these threads, and during interpreter
/// shutdown.
pub(crate) fn drop_detached<T: Send + 'static>(process: &OwnerProcess, mut value: Option<T>) {
    if process.is_this() {
        Python::try_attach(|py| {
            let value = value.take();
            end_threads(py, move || drop(value));
        });
    }
    std::mem::forget(value);
}

fn leave_running(thread: JoinHandle<()>) {
    let mut threads = LEFT_RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    threads.retain(|(_, thread)| !thread.is_finished());
    threads.push((std::process::id(), thread));
}

/// Waits for the threads in [`LEFT_RUNNING`] that this process started, for up to `max_seconds` and
/// the last [`WAIT_SLICE`]. The package calls this before the interpreter shuts down, because a
/// thread that returns to the interpreter later could abort the process.
#[pyfunction]
pub(crate) fn wait_for_calls(py: Python<'_>, max_seconds: f64) -> PyResult<()> {
    let current = std::process::id();
    let threads = std::mem::take(&mut *LEFT_RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
    let deadline = Instant::now() + Duration::from_secs_f64(max_seconds.max(0.0));
    for (_, thread) in threads.into_iter().filter(|(process, _)| *process == current) {
        while !thread.is_finished() && Instant::now() < deadline {
            py.detach(|| std::thread::sleep(WAIT_SLICE));
            py.check_signals()?;
        }
        if thread.is_finished() {
            py.detach(|| drop(thread.join()));
        }
    }
    Ok(())
}

/// Returns the result if it arrives within `slice`, an error if the other thread has panicked, or
/// `None` after `slice`.
fn receive<T>(result: &mut Receiver<Result<T>>, slice: Duration) -> Option<Result<T>> {
    match result.recv_timeout(slice) {
        Ok(value) => Some(value),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            Some(Err(Error::new(ErrorKind::Panic, "the call panicked; standard error contains the panic message")))
        }
    }
}

/// The process that opened a loader or decoder. A forked child must not use the loader or decoder,
/// because the worker threads do not exist in the child, and a lock may have been held during the
/// fork.
pub(crate) struct OwnerProcess {
    id: u32,
    /// "loader" or "decoder", for the error message.
    kind: &'static str,
    advice: &'static str,
}

impl OwnerProcess {
    pub(crate) fn new(kind: &'static str, advice: &'static str) -> Self {
        OwnerProcess { id: std::process::id(), kind, advice }
    }

    pub(crate) fn is_this(&self) -> bool {
        self.id == std::process::id()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_this() {
            return Ok(());
        }
        let (OwnerProcess { id, kind, advice }, process) = (self, std::process::id());
        Err(Error::config(format!(
            "the {kind} was opened in process {id}, but this is process {process}: worker threads do not survive fork; \
             {advice}"
        )))
    }
}

/// A mutex for which a thread waits at most one [`WAIT_SLICE`] at a time, to check for signals in
/// between.
pub(crate) struct TimedMutex<T> {
    /// The value, or `None` while the mutex is locked.
    value: Mutex<Option<T>>,
    released: Condvar,
}

pub(crate) struct TimedGuard<'a, T> {
    mutex: &'a TimedMutex<T>,
    value: Option<T>,
}

impl<T> TimedMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        TimedMutex { value: Mutex::new(Some(value)), released: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex. Returns `None` if other threads hold it for longer than a slice.
    pub(crate) fn try_lock_for_slice(&self) -> Option<TimedGuard<'_, T>> {
        let result = self.released.wait_timeout_while(self.lock(), WAIT_SLICE, |value| value.is_none());
        let value = result.unwrap_or_else(PoisonError::into_inner).0.take()?;
        Some(TimedGuard { mutex: self, value: Some(value) })
    }
}

impl<T> Deref for TimedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only drop takes the value")
    }
}

impl<T> DerefMut for TimedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("only drop takes the value")
    }
}

impl<T> Drop for TimedGuard<'_, T> {
    fn drop(&mut self) {
        *self.mutex.lock() = self.value.take();
        self.mutex.released.notify_one();
    }
}
