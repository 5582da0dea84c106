//! Stores a response until it is received.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, Result, guarded};

/// The response to a request, which is set and taken at most once.
pub(crate) struct Response<B> {
    state: Mutex<State<B>>,
    changed: Condvar,
}

struct State<B> {
    response: ResponseState<B>,
    waker: Option<Waker>,
}

enum ResponseState<B> {
    Pending,
    Ready(Result<B>),
    Taken,
}

impl<B> Default for Response<B> {
    fn default() -> Self {
        Response { state: Mutex::new(State { response: ResponseState::Pending, waker: None }), changed: Condvar::new() }
    }
}

impl<B> State<B> {
    fn is_pending(&self) -> bool {
        matches!(self.response, ResponseState::Pending)
    }

    /// Takes the response, which must not be pending. If `on_batch` fails, the batch is not taken.
    /// Returns an error if the response has already been taken.
    fn take(&mut self, on_batch: impl FnOnce(&B) -> Result<()>) -> Result<B> {
        if let ResponseState::Ready(Ok(batch)) = &self.response {
            on_batch(batch)?;
        }
        match std::mem::replace(&mut self.response, ResponseState::Taken) {
            ResponseState::Ready(response) => response,
            _ => Err(Error::config(
                "the response, a batch or an error, has already been taken; store it when you take it",
            )),
        }
    }
}

impl<B> Response<B> {
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn set(&self, batch: Result<B>) {
        let mut state = self.state();
        state.response = ResponseState::Ready(batch);
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        // The waker is user code. If it panics, other requests must not be affected.
        let _ = guarded(|| {
            waker.into_iter().for_each(Waker::wake);
            Ok(())
        });
    }

    /// Waits for the response and takes it. First calls `on_batch` with the batch, under the same
    /// lock, so that no thread calls it for a batch that has been taken.
    pub(crate) fn wait(&self, on_batch: impl FnOnce(&B) -> Result<()>) -> Result<B> {
        let result = self.changed.wait_while(self.state(), |state| state.is_pending());
        result.expect("no code panics while holding this lock").take(on_batch)
    }

    /// Waits at most `timeout` for the response. Returns whether it has been set.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> bool {
        let state = self.changed.wait_timeout_while(self.state(), timeout, |state| state.is_pending());
        !state.expect("no code panics while holding this lock").0.is_pending()
    }

    /// Returns `Ready` if the response has been set. Otherwise, stores the waker, which replaces an
    /// earlier waker.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        // Clone and drop wakers without holding the lock, because both run user code.
        let waker = context.waker().clone();
        let mut state = self.state();
        if !state.is_pending() {
            return Poll::Ready(());
        }
        let previous_waker = state.waker.replace(waker);
        drop(state);
        drop(previous_waker);
        Poll::Pending
    }
}
