//! The queue of requests, each of which becomes a batch.
//!
//! A request is first *pending* in a queue. Once a slot is assigned to the request, it has *begun*,
//! and becomes one batch of the run. A cancelled request is removed from the queue. If it has
//! already begun, its batch stays in the run without its images, so that later batches keep their
//! numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::reply::Reply;
use crate::engine::working::BatchSampler;
use crate::error::{Error, ErrorKind, Result, guarded};
use crate::sampler::Entry;
use crate::source::{Sample, Source};

/// The bytes of an encoded image, in a container supplied by the user.
pub(crate) type Owned = Box<dyn AsRef<[u8]> + Send + Sync>;

/// An encoded image of a request.
pub(super) enum Image {
    Kept(Owned),
    /// The size in bytes of an image that exceeds the limit. The bytes themselves have been
    /// dropped.
    TooLarge(usize),
}

/// Limits of a decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of images in a request.
    pub(crate) images: usize,
    /// Maximum size of an encoded image in bytes.
    pub(crate) image_bytes: u64,
    /// Maximum number of requests in the queue.
    pub(crate) queued: usize,
    /// How long a request may wait while the program holds all batches.
    pub(crate) timeout: Duration,
}

impl Limits {
    /// Checks the images of a request, and drops the bytes of images that are too large.
    ///
    /// # Errors
    /// If there are no images or too many images.
    pub(super) fn request(&self, images: Vec<Owned>) -> Result<Vec<Image>> {
        let (count, most) = (images.len(), self.images);
        if count == 0 || count > most {
            return Err(Error::config(format!("a request of {count} images: the decoder accepts 1 to {most}")));
        }
        let kept = images.into_iter().map(|image| {
            // This call runs user code. If it panics, the image fails later, when it is read.
            match guarded(|| Ok((*image).as_ref().len())) {
                Ok(bytes) if bytes as u64 > self.image_bytes => Image::TooLarge(bytes),
                _ => Image::Kept(image),
            }
        });
        Ok(kept.collect())
    }

    /// Returns the error for a request that exceeds the queue limit.
    pub(super) fn busy(&self) -> Error {
        let queued = self.queued;
        let cause =
            format!("{queued} requests are queued, and max_queued is {queued}; retry later, or raise max_queued");
        Error::new(ErrorKind::Busy, cause)
    }
}

/// The requests that have not received a response. Implements `Source`, which provides the images
/// of the requests that have begun.
pub(crate) struct Requests<B> {
    pub(super) limits: Limits,
    state: Mutex<State<B>>,
    /// Notified when there is a new request or a new run, or when the decoder is closed.
    changed: Condvar,
}

struct State<B> {
    /// Pending requests by ticket, oldest first.
    queued: BTreeMap<u64, Request<B>>,
    /// The batches of the run, starting at `number`.
    begun: VecDeque<Begun<B>>,
    number: u64,
    /// The ticket of the next request.
    ticket: u64,
    /// Source index of the next image.
    next: u64,
    /// Number of the run. A new run begins after an error that ends the previous one.
    epoch: u64,
    closed: bool,
    /// Whether the threads that make batches have ended. If so, requests fail with the reason.
    ended: bool,
}

struct Request<B> {
    since: Instant,
    images: Arc<[Image]>,
    reply: Arc<Reply<B>>,
}

struct Begun<B> {
    ticket: u64,
    /// Source index of the request's first image.
    first: u64,
    count: u64,
    /// The request; `None` once it has been cancelled.
    request: Option<Request<B>>,
}

impl<B> State<B> {
    /// Returns the index in `begun` of the request with this ticket.
    fn place(&self, ticket: u64) -> Option<usize> {
        self.begun.binary_search_by_key(&ticket, |begun| begun.ticket).ok()
    }

    /// Starts the oldest request of the queue.
    fn begin_next(&mut self) -> Option<&Begun<B>> {
        let (ticket, request) = self.queued.pop_first()?;
        let (first, count) = (self.next, request.images.len() as u64);
        self.next += count;
        self.begun.push_back(Begun { ticket, first, count, request: Some(request) });
        self.begun.back()
    }
}

impl<B> Requests<B> {
    /// Name of the sample field with the encoded image.
    pub(crate) const FIELD: &'static str = "image";

    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            queued: BTreeMap::new(),
            begun: VecDeque::new(),
            number: 0,
            ticket: 0,
            next: 0,
            epoch: 0,
            closed: false,
            ended: false,
        };
        Requests { limits, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("nothing panics while holding it")
    }

    /// Queues a request. Returns its ticket and its reply.
    ///
    /// # Errors
    /// If there are no images or too many images, or if the queue is full.
    pub(crate) fn ask(&self, images: Vec<Owned>) -> Result<(u64, Arc<Reply<B>>)> {
        let images = self.limits.request(images)?;
        let state = self.state();
        if !state.closed && state.queued.len() >= self.limits.queued {
            drop(state);
            return Err(self.limits.busy());
        }
        Ok(self.put(state, images))
    }

    /// Queues the images of a dynamic batch, even if the queue is full, because the dynamic batcher
    /// has a bounded queue of its own.
    pub(super) fn ask_joined(&self, images: Vec<Image>) -> (u64, Arc<Reply<B>>) {
        self.put(self.state(), images)
    }

    fn put(&self, mut state: MutexGuard<'_, State<B>>, images: Vec<Image>) -> (u64, Arc<Reply<B>>) {
        let (ticket, reply) = (state.ticket, Arc::new(Reply::default()));
        if state.closed {
            drop(state);
            reply.give(Err(ended()));
            return (ticket, reply);
        }
        let images = images.into();
        state.ticket += 1;
        state.queued.insert(ticket, Request { since: Instant::now(), images, reply: reply.clone() });
        drop(state);
        self.changed.notify_all();
        (ticket, reply)
    }

    /// Cancels the request with this ticket.
    pub(crate) fn cancel(&self, ticket: u64) {
        let mut state = self.state();
        let queued = state.queued.remove(&ticket);
        let begun = state.place(ticket).and_then(|place| state.begun[place].request.take());
        drop(state);
        // Dropping images runs user code, so the lock is released first.
        drop((queued, begun));
    }

    /// Waits for a request. Returns false if the decoder is closed.
    pub(crate) fn wait(&self) -> bool {
        let idle = |state: &mut State<B>| state.queued.is_empty() && state.begun.is_empty() && !state.closed;
        !self.changed.wait_while(self.state(), idle).expect("nothing panics while holding it").closed
    }

    /// Responds to the oldest request.
    pub(crate) fn answer(&self, batch: Result<B>) {
        let mut state = self.state();
        let oldest = match state.begun.pop_front() {
            Some(Begun { request, .. }) => {
                state.number += 1;
                request
            }
            // The error arrived before any batch was begun.
            None if batch.is_err() => state.queued.pop_first().map(|(_, request)| request),
            None => None,
        };
        drop(state);
        if let Some(Request { reply, .. }) = oldest {
            reply.give(batch);
        }
    }

    /// Fails the requests that have waited too long, either with `cause` or with an error that all
    /// `room` batches are held. Other requests continue.
    pub(crate) fn give_up_late(&self, room: usize, cause: &Error) {
        let is_late = |request: &Request<B>| request.since.elapsed() >= self.limits.timeout;
        let mut late = Vec::new();
        let mut state = self.state();
        late.extend(state.begun.iter_mut().filter_map(|begun| begun.request.take_if(|request| is_late(request))));
        while state.queued.first_entry().is_some_and(|first| is_late(first.get())) {
            late.extend(state.queued.pop_first().map(|(_, request)| request));
        }
        drop(state);
        for Request { since, reply, .. } in late {
            let text = || {
                format!(
                    "the request waited {:.1} s for a batch: the program holds all {room} batches of the decoder; drop some before \
                     requesting more, or raise prefetch",
                    since.elapsed().as_secs_f64()
                )
            };
            let is_held = cause.kind() == ErrorKind::Timeout;
            reply.give(Err(if is_held { Error::new(ErrorKind::Timeout, text()) } else { cause.clone() }));
        }
    }

    /// Ends the run. Returns the number of the next run and the number of its first batch.
    pub(crate) fn begin_run(&self) -> (u64, u64) {
        let mut state = self.state();
        state.epoch += 1;
        state.begun.retain(|begun| begun.request.is_some());
        self.changed.notify_all();
        (state.epoch, state.number)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Closes the queue and fails all requests.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        state.closed = true;
        let begun = std::mem::take(&mut state.begun).into_iter().filter_map(|begun| begun.request);
        let waiting: Vec<_> = begun.chain(std::mem::take(&mut state.queued).into_values()).collect();
        drop(state);
        self.changed.notify_all();
        waiting.into_iter().for_each(|request| request.reply.give(Err(ended())));
    }
}

fn ended() -> Error {
    Error::config("the decoder was dropped or closed, or its threads have ended, before the batch was decoded")
}

impl<B: Send> BatchSampler for Requests<B> {
    fn fill(&self, epoch: u64, number: u64, entries: &mut Vec<Entry>) {
        entries.clear();
        let mut state = self.state();
        let Begun { first, count, .. } = loop {
            let Some(place) =
                number.checked_sub(state.number).filter(|_| !(state.closed || state.ended) && state.epoch == epoch)
            else {
                return;
            };
            let found =
                if (place as usize) < state.begun.len() { state.begun.get(place as usize) } else { state.begin_next() };
            if let Some(begun) = found {
                break begun;
            }
            state = self.changed.wait(state).expect("nothing panics while holding it");
        };
        entries.extend((*first..first + count).map(|sample| Entry { sample, variant: 0, valid: true }));
    }

    fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }
}

impl<B: Send> Source for Requests<B> {
    fn len(&self) -> usize {
        if self.limits.images == 0 { 0 } else { usize::MAX }
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let index = index as u64;
        let state = self.state();
        let after = state.begun.partition_point(|begun| begun.first <= index);
        let begun = after.checked_sub(1).and_then(|place| state.begun.get(place));
        let found = begun.and_then(|begun| Some((index - begun.first, begun.request.as_ref()?.images.clone())));
        drop(state);
        let image = found.as_ref().and_then(|(place, images)| images.get(*place as usize));
        match image.ok_or_else(|| Error::in_source("the request was cancelled"))? {
            Image::Kept(image) => {
                scratch.clear();
                scratch.extend_from_slice((**image).as_ref());
                Sample::new("").with_field(Self::FIELD, scratch)
            }
            Image::TooLarge(bytes) => {
                let most = self.limits.image_bytes;
                Err(Error::in_source(format!("the image has {bytes} bytes, max_sample_bytes is {most}")))
            }
        }
    }

    fn kind(&self) -> &'static str {
        "requests"
    }
}
