//! Wakes event loops when responses are ready.
//!
//! A waker runs on the thread that completes requests, which must not wait for the interpreter. The
//! waker sends its callback to a separate thread of the decoder.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;
use warpfeed::{Error, ErrorKind, Result};

use crate::thread_state::attached;

type Callback = Py<PyAny>;

/// The thread that calls callbacks. It starts with the first waker. It ends after the decoder and
/// all wakers are dropped, or when the interpreter shuts down.
#[derive(Default)]
pub(crate) struct CallbackThread(Mutex<Option<Sender<Callback>>>);

impl CallbackThread {
    /// Returns a waker that calls `callback` once.
    pub(crate) fn waker(&self, callback: Callback) -> Result<Waker> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &*sender {
            Some(sender) => sender.clone(),
            None => sender.insert(start_thread()?).clone(),
        };
        Ok(Waker::from(Arc::new(CallbackWaker { callback: Mutex::new(Some(callback)), sender })))
    }
}

fn start_thread() -> Result<Sender<Callback>> {
    let (sender, receiver) = channel::<Callback>();
    let serve = move || {
        while let Ok(first) = receiver.recv() {
            let result = attached(|py| {
                for callback in std::iter::once(first).chain(receiver.try_iter()) {
                    // The call fails only if the event loop is closed, and then no task is waiting.
                    let _ = callback.call0(py);
                }
            });
            if result.is_none() {
                break;
            }
        }
    };
    let thread = std::thread::Builder::new().name("warpfeed-wake".into()).spawn(serve);
    thread.map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the thread that wakes event loops: {e}")))?;
    Ok(sender)
}

struct CallbackWaker {
    callback: Mutex<Option<Callback>>,
    sender: Sender<Callback>,
}

impl Wake for CallbackWaker {
    fn wake(self: Arc<Self>) {
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(callback) = callback {
            // Sending fails only during interpreter shutdown, when the thread has ended.
            let _ = self.sender.send(callback);
        }
    }
}
