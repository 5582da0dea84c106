//! The queue of requests, and the source that provides their images to the engine.
//!
//! A request waits in a queue until it is assigned a slot. It has then *begun*, and is one batch of
//! the run. Canceling removes a request from the queue. If the request has begun, canceling only
//! drops its images: its batch stays in the run, so that later batches keep their indices.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::reply::Reply;
use crate::engine::working::BatchSampler;
use crate::error::{Error, ErrorKind, Result, guarded};
use crate::sampler::Entry;
use crate::source::{Sample, Source};

/// A value from the user's program that owns the bytes of an encoded image.
pub(crate) type Owned = Box<dyn AsRef<[u8]> + Send + Sync>;

/// An encoded image of a request.
pub(super) enum Image {
    Kept(Owned),
    /// An image that exceeded the limit. The value is its size in bytes. The bytes have been
    /// dropped.
    TooLarge(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) images: usize,
    /// Maximum size of an encoded image, in bytes.
    pub(crate) image_bytes: u64,
    pub(crate) queued: usize,
    /// Maximum time that a request may wait while the program holds every batch.
    pub(crate) timeout: Duration,
}

impl Limits {
    /// Checks the number of images in a request, and drops the bytes of images that are too large.
    ///
    /// # Errors
    /// If there are no images, or too many images.
    pub(super) fn request(&self, images: Vec<Owned>) -> Result<Vec<Image>> {
        let (count, max_images) = (images.len(), self.images);
        if count == 0 || count > max_images {
            return Err(Error::config(format!("a request has {count} images: the decoder accepts 1 to {max_images}")));
        }
        let images_for_decoder = images.into_iter().map(|image| {
            // `as_ref` is user code. Ignore a panic here, because it will panic again, and fail the
            // image, when the image is read.
            match guarded(|| Ok((*image).as_ref().len())) {
                Ok(bytes) if bytes as u64 > self.image_bytes => Image::TooLarge(bytes),
                _ => Image::Kept(image),
            }
        });
        Ok(images_for_decoder.collect())
    }

    pub(super) fn busy(&self) -> Error {
        let queued = self.queued;
        let cause =
            format!("{queued} requests are queued, and max_queued is {queued}; retry later, or raise max_queued");
        Error::new(ErrorKind::Busy, cause)
    }
}

/// All requests without a response. The `Source` provides the images of requests that have begun,
/// and the `BatchSampler` makes each request one batch.
pub(crate) struct Requests<B> {
    pub(super) limits: Limits,
    state: Mutex<State<B>>,
    /// Notified when a request arrives, when a run begins, and when the decoder is closed.
    changed: Condvar,
}

struct State<B> {
    /// Requests that have not begun, by ticket.
    queued: BTreeMap<u64, Request<B>>,
    /// Requests that have begun, in the order of their batches.
    begun: VecDeque<Begun<B>>,
    /// Index of the batch of the first request in `begun`.
    first_batch: u64,
    next_ticket: u64,
    /// Source index of the first image of the next request to begin.
    next_image: u64,
    /// Epoch of the current run. If an error ends the run, the next run uses the next epoch.
    epoch: u64,
    closed: bool,
    /// Whether the engine has ended, so that no more batches will be delivered.
    ended: bool,
}

struct Request<B> {
    since: Instant,
    images: Arc<[Image]>,
    reply: Arc<Reply<B>>,
}

struct Begun<B> {
    ticket: u64,
    first: u64,
    count: u64,
    /// The request, or `None` once it has been canceled or has failed.
    request: Option<Request<B>>,
}

impl<B> State<B> {
    fn begun_index(&self, ticket: u64) -> Option<usize> {
        self.begun.binary_search_by_key(&ticket, |begun| begun.ticket).ok()
    }

    fn begin_next(&mut self) -> Option<&Begun<B>> {
        let (ticket, request) = self.queued.pop_first()?;
        let (first, count) = (self.next_image, request.images.len() as u64);
        self.next_image += count;
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
            first_batch: 0,
            next_ticket: 0,
            next_image: 0,
            epoch: 0,
            closed: false,
            ended: false,
        };
        Requests { limits, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("no code panics while holding this lock")
    }

    /// Fails if there are no images, if there are too many images, or if the queue is full.
    pub(crate) fn submit(&self, images: Vec<Owned>) -> Result<(u64, Arc<Reply<B>>)> {
        let images = self.limits.request(images)?;
        let state = self.state();
        if !state.closed && state.queued.len() >= self.limits.queued {
            drop(state);
            return Err(self.limits.busy());
        }
        Ok(self.push(state, images))
    }

    /// Queues the images of a dynamic batch, even if the queue is full, because the dynamic batcher
    /// bounds its own queue.
    pub(super) fn submit_dynamic(&self, images: Vec<Image>) -> (u64, Arc<Reply<B>>) {
        self.push(self.state(), images)
    }

    fn push(&self, mut state: MutexGuard<'_, State<B>>, images: Vec<Image>) -> (u64, Arc<Reply<B>>) {
        let (ticket, reply) = (state.next_ticket, Arc::new(Reply::default()));
        if state.closed {
            drop(state);
            reply.set(Err(ended()));
            return (ticket, reply);
        }
        let images = images.into();
        state.next_ticket += 1;
        state.queued.insert(ticket, Request { since: Instant::now(), images, reply: reply.clone() });
        drop(state);
        self.changed.notify_all();
        (ticket, reply)
    }

    pub(crate) fn cancel(&self, ticket: u64) {
        let mut state = self.state();
        let queued = state.queued.remove(&ticket);
        let begun = state.begun_index(ticket).and_then(|index| state.begun[index].request.take());
        drop(state);
        // Release the lock first, because dropping images runs user code.
        drop((queued, begun));
    }

    /// Waits for a request. Returns false if the decoder is closed.
    pub(crate) fn wait(&self) -> bool {
        let idle = |state: &mut State<B>| state.queued.is_empty() && state.begun.is_empty() && !state.closed;
        !self.changed.wait_while(self.state(), idle).expect("no code panics while holding this lock").closed
    }

    pub(crate) fn respond(&self, batch: Result<B>) {
        let mut state = self.state();
        let oldest = match state.begun.pop_front() {
            Some(Begun { request, .. }) => {
                state.first_batch += 1;
                request
            }
            // The run failed before any request had begun.
            None if batch.is_err() => state.queued.pop_first().map(|(_, request)| request),
            None => None,
        };
        drop(state);
        if let Some(Request { reply, .. }) = oldest {
            reply.set(batch);
        }
    }

    /// Fails the requests that have waited longer than the timeout. If `cause` is itself a timeout,
    /// the error says instead that the program holds all `capacity` batches.
    pub(crate) fn fail_late(&self, capacity: usize, cause: &Error) {
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
                    "the request waited {:.1} s for a batch: the program holds all {capacity} batches of the decoder; drop \
                     some before requesting more, or raise prefetch",
                    since.elapsed().as_secs_f64()
                )
            };
            let is_held = cause.kind() == ErrorKind::Timeout;
            reply.set(Err(if is_held { Error::new(ErrorKind::Timeout, text()) } else { cause.clone() }));
        }
    }

    /// Begins a run with the requests that had begun in the previous run. Returns its epoch and the
    /// index of its first batch.
    pub(crate) fn begin_run(&self) -> (u64, u64) {
        let mut state = self.state();
        state.epoch += 1;
        state.begun.retain(|begun| begun.request.is_some());
        self.changed.notify_all();
        (state.epoch, state.first_batch)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Closes the queue, but keeps the requests in it.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Closes the queue, and fails all requests without a response.
    pub(crate) fn fail_all(&self) {
        let mut state = self.state();
        state.closed = true;
        let begun = std::mem::take(&mut state.begun).into_iter().filter_map(|begun| begun.request);
        let waiting: Vec<_> = begun.chain(std::mem::take(&mut state.queued).into_values()).collect();
        drop(state);
        self.changed.notify_all();
        waiting.into_iter().for_each(|request| request.reply.set(Err(ended())));
    }
}

fn ended() -> Error {
    Error::config("the decoder was dropped or closed, or its threads have ended, before the batch was decoded")
}

impl<B: Send> BatchSampler for Requests<B> {
    fn fill(&self, epoch: u64, batch: u64, entries: &mut Vec<Entry>) {
        entries.clear();
        let mut state = self.state();
        let Begun { first, count, .. } = loop {
            let Some(index) =
                batch.checked_sub(state.first_batch).filter(|_| !(state.closed || state.ended) && state.epoch == epoch)
            else {
                return;
            };
            let next_request =
                if (index as usize) < state.begun.len() { state.begun.get(index as usize) } else { state.begin_next() };
            if let Some(begun) = next_request {
                break begun;
            }
            state = self.changed.wait(state).expect("no code panics while holding this lock");
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
        let begun = after.checked_sub(1).and_then(|before| state.begun.get(before));
        let location = begun.and_then(|begun| Some((index - begun.first, begun.request.as_ref()?.images.clone())));
        drop(state);
        let image = location.as_ref().and_then(|(offset, images)| images.get(*offset as usize));
        match image.ok_or_else(|| Error::in_source("the request was canceled"))? {
            Image::Kept(image) => {
                scratch.clear();
                scratch.extend_from_slice((**image).as_ref());
                Sample::new("").with_field(Self::FIELD, scratch)
            }
            Image::TooLarge(bytes) => {
                let max_bytes = self.limits.image_bytes;
                Err(Error::in_source(format!("the image has {bytes} bytes, but max_sample_bytes is {max_bytes}")))
            }
        }
    }

    fn kind(&self) -> &'static str {
        "requests"
    }
}
