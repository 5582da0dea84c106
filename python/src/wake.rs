//! Wakes event loops when answers are ready.
//!
//! A Rust waker runs on the thread that answers requests, which must not wait for the interpreter.
//! So the waker sends its callback to a separate thread, one per decoder.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;
use warpfeed::{Error, ErrorKind, Result};

use crate::thread_state::attached;

/// A callback without arguments.
type Callback = Py<PyAny>;

/// The thread that calls callbacks. It starts with the first waker, and ends with the decoder and
/// its wakers.
#[derive(Default)]
pub(crate) struct Caller(Mutex<Option<Sender<Callback>>>);

impl Caller {
    /// A waker that calls `callback` once.
    pub(crate) fn waker(&self, callback: Callback) -> Result<Waker> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = match &*calls {
            Some(calls) => calls.clone(),
            None => calls.insert(start()?).clone(),
        };
        Ok(Waker::from(Arc::new(Calls { callback: Mutex::new(Some(callback)), calls })))
    }
}

fn start() -> Result<Sender<Callback>> {
    let (calls, called) = channel::<Callback>();
    let serve = move || {
        while let Ok(first) = called.recv() {
            let called_all = attached(|py| {
                for callback in std::iter::once(first).chain(called.try_iter()) {
                    // Fails if the event loop is closed. Then no task is waiting.
                    let _ = callback.call0(py);
                }
            });
            if called_all.is_none() {
                break;
            }
        }
    };
    let thread = std::thread::Builder::new().name("warpfeed-wake".into()).spawn(serve);
    thread.map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the thread that wakes event loops: {e}")))?;
    Ok(calls)
}

struct Calls {
    callback: Mutex<Option<Callback>>,
    calls: Sender<Callback>,
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(callback) = callback {
            // The thread ends only during interpreter shutdown.
            let _ = self.calls.send(callback);
        }
    }
}
