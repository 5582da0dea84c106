use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, Result, guarded};

/// The answer to a request: given once, and taken once.
pub(crate) struct Reply<B> {
    state: Mutex<State<B>>,
    given: Condvar,
}

struct State<B> {
    answer: Answer<B>,
    waker: Option<Waker>,
}

enum Answer<B> {
    Awaited,
    Given(Result<B>),
    Taken,
}

impl<B> Default for Reply<B> {
    fn default() -> Self {
        Reply { state: Mutex::new(State { answer: Answer::Awaited, waker: None }), given: Condvar::new() }
    }
}

impl<B> State<B> {
    fn is_awaited(&self) -> bool {
        matches!(self.answer, Answer::Awaited)
    }

    /// Takes the answer, which is given. A batch first passes `order`, and stays here if that
    /// fails.
    fn take(&mut self, order: impl FnOnce(&B) -> Result<()>) -> Result<B> {
        if let Answer::Given(Ok(batch)) = &self.answer {
            order(batch)?;
        }
        match std::mem::replace(&mut self.answer, Answer::Taken) {
            Answer::Given(answer) => answer,
            _ => Err(Error::config("the batch was taken before; keep it where it was taken")),
        }
    }
}

impl<B> Reply<B> {
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("nothing panics while holding it")
    }

    pub(crate) fn give(&self, batch: Result<B>) {
        let mut state = self.state();
        state.answer = Answer::Given(batch);
        let waker = state.waker.take();
        drop(state);
        self.given.notify_all();
        // The waker is the user's code. A panic there must not affect other requests.
        let _ = guarded(|| {
            waker.into_iter().for_each(Waker::wake);
            Ok(())
        });
    }

    /// Waits for the answer and takes it. A batch leaves only after `order` has succeeded, which
    /// runs under the lock: of several threads, one orders the batch and gets it.
    pub(crate) fn wait(&self, order: impl FnOnce(&B) -> Result<()>) -> Result<B> {
        let state = self.given.wait_while(self.state(), |state| state.is_awaited());
        state.expect("nothing panics while holding it").take(order)
    }

    /// Waits for at most `timeout`. Returns whether the answer has been given.
    pub(crate) fn is_given(&self, timeout: Duration) -> bool {
        let state = self.given.wait_timeout_while(self.state(), timeout, |state| state.is_awaited());
        !state.expect("nothing panics while holding it").0.is_awaited()
    }

    /// Ready once the answer is given. Otherwise wakes the last call's waker at that time.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        // Cloning or dropping a waker runs the user's code too, so the lock is not held.
        let waker = context.waker().clone();
        let mut state = self.state();
        if !state.is_awaited() {
            return Poll::Ready(());
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }
}
