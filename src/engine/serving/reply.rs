use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Result, guarded};

/// The answer to a request, once it is given.
pub(crate) struct Reply<B> {
    state: Mutex<State<B>>,
    given: Condvar,
}

struct State<B> {
    batch: Option<Result<B>>,
    waker: Option<Waker>,
}

impl<B> Default for Reply<B> {
    fn default() -> Self {
        Reply { state: Mutex::new(State { batch: None, waker: None }), given: Condvar::new() }
    }
}

impl<B> Reply<B> {
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("nothing panics while holding it")
    }

    pub(crate) fn give(&self, batch: Result<B>) {
        let mut state = self.state();
        state.batch = Some(batch);
        let waker = state.waker.take();
        drop(state);
        self.given.notify_all();
        // The waker is the user's code. A panic there must not affect other requests.
        let _ = guarded(|| {
            waker.into_iter().for_each(Waker::wake);
            Ok(())
        });
    }

    pub(crate) fn wait(&self) -> Result<B> {
        let waits = |state: &mut State<B>| state.batch.is_none();
        let mut state = self.given.wait_while(self.state(), waits).expect("nothing panics while holding it");
        state.batch.take().expect("waited for above")
    }

    /// Waits for at most `timeout`. Returns whether the answer has been given.
    pub(crate) fn is_given(&self, timeout: Duration) -> bool {
        let waits = |state: &mut State<B>| state.batch.is_none();
        let state = self.given.wait_timeout_while(self.state(), timeout, waits);
        state.expect("nothing panics while holding it").0.batch.is_some()
    }

    /// Ready once the answer is given. Otherwise wakes the last call's waker at that time.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        // Cloning or dropping a waker runs the user's code too, so the lock is not held.
        let waker = context.waker().clone();
        let mut state = self.state();
        if state.batch.is_some() {
            return Poll::Ready(());
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Takes the answer, if it is given.
    pub(crate) fn take(&self) -> Option<Result<B>> {
        self.state().batch.take()
    }
}
