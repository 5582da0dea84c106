//! The queue of requests, and the source that provides their images to the engine.
//!
//! A request waits in a queue until the coordinator makes it the next batch of the run. The request
//! has then *begun*. Canceling removes a request from the queue. If the request has begun,
//! canceling only drops its images. Its batch stays in the run, so that later batches keep their
//! indices.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::response::Response;
use crate::engine::working::BatchSampler;
use crate::error::{Error, ErrorKind, Result, counted, guarded};
use crate::sampler::Entry;
use crate::source::{Sample, Source};

/// A value from the user's program that owns the bytes of an encoded image.
pub(crate) type OwnedBytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// An encoded image of a request.
pub(super) enum Image {
    Bytes(OwnedBytes),
    /// Size in bytes of an image that exceeded the limit. The bytes have been dropped.
    TooLarge(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_images: usize,
    pub(crate) max_image_bytes: u64,
    pub(crate) max_queued: usize,
    /// Maximum time that a request may wait while the program holds every batch.
    pub(crate) timeout: Duration,
}

impl Limits {
    /// Drops the bytes of images that are too large. Fails if the number of images is wrong.
    pub(super) fn check_request(&self, images: Vec<OwnedBytes>) -> Result<Vec<Image>> {
        let (count, max_images) = (images.len(), self.max_images);
        if count == 0 || count > max_images {
            return Err(Error::config(format!("a request has {count} images: the decoder accepts 1 to {max_images}")));
        }
        let checked_images = images.into_iter().map(|image| {
            // `as_ref` is user code. Ignore a panic here: if `as_ref` panics again when the image
            // is read, only this image fails.
            match guarded(|| Ok((*image).as_ref().len())) {
                Ok(bytes) if bytes as u64 > self.max_image_bytes => Image::TooLarge(bytes),
                _ => Image::Bytes(image),
            }
        });
        Ok(checked_images.collect())
    }

    pub(super) fn busy_error(&self) -> Error {
        let max_queued = self.max_queued;
        let cause = format!(
            "{} queued, and max_queued is {max_queued}; retry later, or raise max_queued",
            counted(max_queued as u64, "request is", "requests are")
        );
        Error::new(ErrorKind::Busy, cause)
    }
}

/// All requests without a response. As a `Source`, this type provides the images of requests that
/// have begun. As a `BatchSampler`, it turns each request into one batch.
pub(crate) struct Requests<B> {
    pub(super) limits: Limits,
    state: Mutex<State<B>>,
    changed: Condvar,
}

struct State<B> {
    /// By ticket.
    queued_requests: BTreeMap<u64, Request<B>>,
    /// In the order of their batches.
    begun_requests: VecDeque<BegunRequest<B>>,
    /// Index of the batch that contains the first request in `begun_requests`.
    first_batch: u64,
    next_ticket: u64,
    /// Source index of the first image of the next request to begin.
    next_image: u64,
    /// Epoch of the current run. If an error ends the run, the next run uses the next epoch.
    epoch: u64,
    is_closed: bool,
    has_ended: bool,
}

struct Request<B> {
    submit_time: Instant,
    images: Arc<[Image]>,
    response: Arc<Response<B>>,
}

struct BegunRequest<B> {
    ticket: u64,
    first_image: u64,
    image_count: u64,
    /// `None` once the request has been canceled or has failed.
    request: Option<Request<B>>,
}

impl<B> State<B> {
    fn begun_index(&self, ticket: u64) -> Option<usize> {
        self.begun_requests.binary_search_by_key(&ticket, |begun| begun.ticket).ok()
    }

    fn begin_next(&mut self) -> Option<&BegunRequest<B>> {
        let (ticket, request) = self.queued_requests.pop_first()?;
        let (first_image, image_count) = (self.next_image, request.images.len() as u64);
        self.next_image += image_count;
        self.begun_requests.push_back(BegunRequest { ticket, first_image, image_count, request: Some(request) });
        self.begun_requests.back()
    }
}

impl<B> Requests<B> {
    /// Name of the sample field that contains the encoded image.
    pub(crate) const FIELD: &'static str = "image";

    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            queued_requests: BTreeMap::new(),
            begun_requests: VecDeque::new(),
            first_batch: 0,
            next_ticket: 0,
            next_image: 0,
            epoch: 0,
            is_closed: false,
            has_ended: false,
        };
        Requests { limits, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn submit(&self, images: Vec<OwnedBytes>) -> Result<(u64, Arc<Response<B>>)> {
        let images = self.limits.check_request(images)?;
        let state = self.state();
        if !state.is_closed && state.queued_requests.len() >= self.limits.max_queued {
            drop(state);
            return Err(self.limits.busy_error());
        }
        Ok(self.push(state, images))
    }

    /// Queues a dynamic batch even if the queue is full, because the dynamic batcher limits the
    /// number of its own requests.
    pub(super) fn submit_dynamic(&self, images: Vec<Image>) -> (u64, Arc<Response<B>>) {
        self.push(self.state(), images)
    }

    fn push(&self, mut state: MutexGuard<'_, State<B>>, images: Vec<Image>) -> (u64, Arc<Response<B>>) {
        let (ticket, response) = (state.next_ticket, Arc::new(Response::default()));
        if state.is_closed {
            drop(state);
            response.set(Err(ended_error()));
            return (ticket, response);
        }
        let images = images.into();
        state.next_ticket += 1;
        state
            .queued_requests
            .insert(ticket, Request { submit_time: Instant::now(), images, response: response.clone() });
        drop(state);
        self.changed.notify_all();
        (ticket, response)
    }

    pub(crate) fn cancel(&self, ticket: u64) {
        let mut state = self.state();
        let queued_request = state.queued_requests.remove(&ticket);
        let begun_request = state.begun_index(ticket).and_then(|index| state.begun_requests[index].request.take());
        // Release the lock first, because dropping images runs user code.
        drop(state);
        drop((queued_request, begun_request));
    }

    /// Waits until there is a request without a response. Returns false if the decoder is closed.
    pub(crate) fn wait(&self) -> bool {
        let is_idle = |state: &mut State<B>| {
            state.queued_requests.is_empty() && state.begun_requests.is_empty() && !state.is_closed
        };
        !self.changed.wait_while(self.state(), is_idle).expect("no code panics while holding this lock").is_closed
    }

    pub(crate) fn respond(&self, batch: Result<B>) {
        let mut state = self.state();
        let request = match state.begun_requests.pop_front() {
            Some(BegunRequest { request, .. }) => {
                state.first_batch += 1;
                request
            }
            // The run failed without a request in flight, so the next request in the queue fails.
            None if batch.is_err() => state.queued_requests.pop_first().map(|(_, request)| request),
            None => None,
        };
        drop(state);
        if let Some(Request { response, .. }) = request {
            response.set(batch);
        }
    }

    /// Fails the requests that have waited for at least the timeout. The errors are timeouts, so
    /// that [`ErrorKind::Capturing`] always means that the batch can still be received. Their text
    /// contains `cause`, unless `cause` says that the program holds all `capacity` batches.
    pub(crate) fn fail_late_requests(&self, capacity: usize, cause: &Error) {
        let is_late = |request: &Request<B>| request.submit_time.elapsed() >= self.limits.timeout;
        let mut late_requests = Vec::new();
        let mut state = self.state();
        late_requests.extend(
            state.begun_requests.iter_mut().filter_map(|begun| begun.request.take_if(|request| is_late(request))),
        );
        while state.queued_requests.first_entry().is_some_and(|first| is_late(first.get())) {
            late_requests.extend(state.queued_requests.pop_first().map(|(_, request)| request));
        }
        drop(state);
        for Request { submit_time, response, .. } in late_requests {
            let cause = match cause.kind() {
                ErrorKind::Timeout => format!(
                    "the program holds all {capacity} batches of the decoder; drop some before requesting more, or \
                     raise max_in_flight"
                ),
                _ => cause.cause().to_owned(),
            };
            let text = format!("the request waited {:.1} s for a batch: {cause}", submit_time.elapsed().as_secs_f64());
            response.set(Err(Error::new(ErrorKind::Timeout, text)));
        }
    }

    /// Begins a run with the requests that had begun in the previous run, except for canceled and
    /// failed ones. Returns its epoch and the index of its first batch.
    pub(crate) fn begin_run(&self) -> (u64, u64) {
        let mut state = self.state();
        state.epoch += 1;
        state.begun_requests.retain(|begun| begun.request.is_some());
        self.changed.notify_all();
        (state.epoch, state.first_batch)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Closes the queue, but keeps the requests in it.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn fail_all(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let begun_requests = std::mem::take(&mut state.begun_requests).into_iter().filter_map(|begun| begun.request);
        let requests: Vec<_> = begun_requests.chain(std::mem::take(&mut state.queued_requests).into_values()).collect();
        drop(state);
        self.changed.notify_all();
        requests.into_iter().for_each(|request| request.response.set(Err(ended_error())));
    }
}

fn ended_error() -> Error {
    Error::config("the decoder was dropped or closed, or its threads have ended, before the batch was decoded")
}

impl<B: Send> BatchSampler for Requests<B> {
    fn fill(&self, epoch: u64, batch: u64, entries: &mut Vec<Entry>) {
        entries.clear();
        let mut state = self.state();
        let BegunRequest { first_image, image_count, .. } = loop {
            let Some(index) = batch
                .checked_sub(state.first_batch)
                .filter(|_| !(state.is_closed || state.has_ended) && state.epoch == epoch)
            else {
                return;
            };
            let next_request = if (index as usize) < state.begun_requests.len() {
                state.begun_requests.get(index as usize)
            } else {
                state.begin_next()
            };
            if let Some(begun_request) = next_request {
                break begun_request;
            }
            state = self.changed.wait(state).expect("no code panics while holding this lock");
        };
        entries.extend((*first_image..first_image + image_count).map(|sample| Entry {
            sample,
            variant: 0,
            valid: true,
        }));
    }

    fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }
}

impl<B: Send> Source for Requests<B> {
    fn len(&self) -> usize {
        if self.limits.max_images == 0 { 0 } else { usize::MAX }
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let index = index as u64;
        let state = self.state();
        let begun_count = state.begun_requests.partition_point(|begun| begun.first_image <= index);
        let begun = begun_count.checked_sub(1).and_then(|position| state.begun_requests.get(position));
        let location =
            begun.and_then(|begun| Some((index - begun.first_image, begun.request.as_ref()?.images.clone())));
        drop(state);
        let image = location.as_ref().and_then(|(offset, images)| images.get(*offset as usize));
        match image.ok_or_else(|| Error::in_source("the request was canceled"))? {
            Image::Bytes(image) => {
                scratch.clear();
                scratch.extend_from_slice((**image).as_ref());
                Sample::new("").with_field(Self::FIELD, scratch)
            }
            Image::TooLarge(bytes) => {
                let max_bytes = self.limits.max_image_bytes;
                Err(Error::in_source(format!("the image has {bytes} bytes, but max_sample_bytes is {max_bytes}")))
            }
        }
    }

    fn kind(&self) -> &'static str {
        "requests"
    }
}
