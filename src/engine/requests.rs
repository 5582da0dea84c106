//! Pictures as somebody asks for them: a request is a batch.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::order::Pick;
use crate::source::{Sample, Source};

/// Encoded pictures, in whatever their owner keeps bytes.
pub(crate) type Pictures = Box<[Box<dyn AsRef<[u8]> + Send + Sync>]>;

/// Says what goes into a batch when somebody asks for one.
pub(crate) trait Asked: Send + Sync {
    /// Waits until somebody asks for batch `number`, and puts its places into `picks`: none if the
    /// run of `epoch` is over.
    fn fill(&self, epoch: u64, number: u64, picks: &mut Vec<Pick>);
}

/// The requests that are not answered yet, oldest first. As a source it has their pictures.
pub(crate) struct Requests<B> {
    most: usize,
    state: Mutex<State<B>>,
    /// A request came, the run changed, or no more is wanted.
    changed: Condvar,
}

struct State<B> {
    waiting: VecDeque<Request<B>>,
    /// Number of the first that waits.
    number: u64,
    /// The source index of the next picture.
    next: u64,
    /// The run: after an error another one begins.
    epoch: u64,
    closed: bool,
}

struct Request<B> {
    /// The source index of its first picture.
    first: u64,
    pictures: Arc<Pictures>,
    reply: Arc<Reply<B>>,
}

impl<B> Requests<B> {
    /// Requests of at most `most` pictures.
    pub(crate) fn new(most: usize) -> Self {
        let state = State { waiting: VecDeque::new(), number: 0, next: 0, epoch: 0, closed: false };
        Requests { most, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("nothing panics while holding it")
    }

    /// Asks for a batch of `pictures`.
    ///
    /// # Errors
    /// For no picture, and for too many.
    pub(super) fn ask(&self, pictures: Pictures) -> Result<Arc<Reply<B>>> {
        let (count, most) = (pictures.len(), self.most);
        if count == 0 || count > most {
            return Err(Error::config(format!("a request of {count} pictures; the decoder takes from 1 to {most}")));
        }
        let reply = Arc::new(Reply::default());
        let mut state = self.state();
        let request = Request { first: state.next, pictures: Arc::new(pictures), reply: reply.clone() };
        if state.closed {
            reply.give(Err(ended()));
        } else {
            state.next += count as u64;
            state.waiting.push_back(request);
        }
        drop(state);
        self.changed.notify_all();
        Ok(reply)
    }

    /// Waits for the next request that is not answered. Its number; none if no more is wanted.
    pub(super) fn next(&self) -> Option<u64> {
        let ready = |state: &mut State<B>| state.waiting.is_empty() && !state.closed;
        let state = self.changed.wait_while(self.state(), ready).expect("nothing panics while holding it");
        (!state.closed).then_some(state.number)
    }

    /// Answers the oldest request.
    pub(super) fn answer(&self, batch: Result<B>) {
        let mut state = self.state();
        let oldest = state.waiting.pop_front();
        state.number += u64::from(oldest.is_some());
        drop(state);
        if let Some(Request { reply, .. }) = oldest {
            reply.give(batch);
        }
    }

    /// Ends the run. Gives the number of the one that begins.
    pub(super) fn begin_anew(&self) -> u64 {
        let mut state = self.state();
        state.epoch += 1;
        self.changed.notify_all();
        state.epoch
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// No more is wanted.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Answers all requests with an error: nobody works on them any more.
    pub(super) fn give_up(&self) {
        self.close();
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.into_iter().for_each(|request| request.reply.give(Err(ended())));
    }
}

fn ended() -> Error {
    Error::config("the decoder was dropped, or its threads have ended, before the batch was decoded")
}

impl<B: Send> Asked for Requests<B> {
    fn fill(&self, epoch: u64, number: u64, picks: &mut Vec<Pick>) {
        picks.clear();
        let ended = |state: &State<B>| state.closed || state.epoch != epoch;
        let place = |state: &State<B>| number.checked_sub(state.number).map(|place| place as usize);
        let request = |state: &State<B>| place(state).is_none_or(|place| place < state.waiting.len());
        let waits = |state: &mut State<B>| !ended(state) && !request(state);
        let state = self.changed.wait_while(self.state(), waits).expect("nothing panics while holding it");
        let found = place(&state).filter(|_| !ended(&state)).and_then(|place| state.waiting.get(place));
        if let Some(Request { first, pictures, .. }) = found {
            let ids = *first..first + pictures.len() as u64;
            picks.extend(ids.map(|sample| Pick { sample, variant: 0, valid: true }));
        }
    }
}

impl<B: Send> Source for Requests<B> {
    fn len(&self) -> usize {
        if self.most == 0 { 0 } else { usize::MAX }
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let index = index as u64;
        let state = self.state();
        let after = state.waiting.partition_point(|request| request.first <= index);
        let request = after.checked_sub(1).and_then(|place| state.waiting.get(place));
        let found = request.map(|Request { first, pictures, .. }| (index - first, pictures.clone()));
        drop(state);
        let picture = found.as_ref().and_then(|(place, pictures)| pictures.get(*place as usize));
        let picture = picture.ok_or_else(|| Error::in_source("the request was answered before"))?;
        scratch.clear();
        scratch.extend_from_slice((**picture).as_ref());
        Sample::new("").with_field(Self::FIELD, scratch)
    }

    fn kind(&self) -> &'static str {
        "requests"
    }
}

impl<B> Requests<B> {
    /// The field of a sample that is its picture.
    pub(crate) const FIELD: &'static str = "picture";
}

/// Where the answer to a request lies until it is taken.
pub(super) struct Reply<B> {
    state: Mutex<(Option<Result<B>>, Option<Waker>)>,
    given: Condvar,
}

impl<B> Default for Reply<B> {
    fn default() -> Self {
        Reply { state: Mutex::new((None, None)), given: Condvar::new() }
    }
}

impl<B> Reply<B> {
    fn state(&self) -> MutexGuard<'_, (Option<Result<B>>, Option<Waker>)> {
        self.state.lock().expect("nothing panics while holding it")
    }

    fn give(&self, batch: Result<B>) {
        let mut state = self.state();
        state.0 = Some(batch);
        let waker = state.1.take();
        drop(state);
        self.given.notify_all();
        // It is the user's, and may panic.
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) fn wait(&self) -> Result<B> {
        let waits = |state: &mut (Option<Result<B>>, Option<Waker>)| state.0.is_none();
        let mut state = self.given.wait_while(self.state(), waits).expect("nothing panics while holding it");
        state.0.take().expect("waited for above")
    }

    /// Whether it is given within `timeout`.
    pub(super) fn is_given(&self, timeout: Duration) -> bool {
        let waits = |state: &mut (Option<Result<B>>, Option<Waker>)| state.0.is_none();
        let state = self.given.wait_timeout_while(self.state(), timeout, waits);
        state.expect("nothing panics while holding it").0.0.is_some()
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Result<B>> {
        let mut state = self.state();
        match state.0.take() {
            Some(batch) => Poll::Ready(batch),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
