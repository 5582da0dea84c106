//! Dynamic batching: collects requests until a batch is full or the maximum delay has passed.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::decoder::{CloseWithDecoder, Decoder, Pending};
use super::requests::{Image, Limits, OwnedBytes};
use crate::engine::state::check_process;
use crate::error::{Error, ErrorKind, Result};

const MAX_DELAY: Duration = Duration::from_secs(60);

const BATCHES_AHEAD: usize = 2;

/// Combines requests into batches. Created by [`Decoder::dynamic_batcher`].
///
/// Any thread can submit a request, together with a value of type `T`, such as the sender of a
/// channel for the response. One of your threads receives the batches from
/// [`next`](DynamicBatcher::next). A batch contains one or more complete requests, in the order of
/// submission. It is sent to the decoder once it is full, once the next request does not fit, or
/// once `max_delay` has passed since its first request was submitted.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::mpsc::{Sender, channel};
/// use std::time::Duration;
/// use warpfeed::{Augment, Decoder, Result};
///
/// # fn main() -> Result<()> {
/// # let [first, second, third] = [b"1".to_vec(), b"2".to_vec(), b"3".to_vec()];
/// let decoder = Arc::new(Decoder::builder().batch_size(64).augment(Augment::eval(72, 64)).host()?);
/// let batcher = decoder.dynamic_batcher::<Sender<Result<usize>>>(Duration::from_millis(5))?;
/// let (responder, responses) = channel();
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while let Some(batch) = batcher.next() {
///             let images = batch.pending.wait();
///             // Run a model on the whole batch here.
///             for (responder, rows) in batch.requests {
///                 let _ = responder.send(images.as_ref().map(|_| rows.len()).map_err(Clone::clone));
///             }
///         }
///     });
///     batcher.submit([first, second], responder.clone())?;
///     batcher.submit([third], responder)?;
///     assert_eq!(responses.recv().unwrap()?, 2);
///     assert_eq!(responses.recv().unwrap()?, 1);
///     batcher.close();
///     Ok(())
/// })
/// # }
/// ```
///
/// - **Bad images.** A bad image does not affect other images, even of the same request.
/// - **Overload.** Up to three batches are sent to the decoder ahead of the consumer. Meanwhile,
///   further requests are queued. Requests fail with [`ErrorKind::Busy`] while the queue contains
///   [`max_queued`](crate::DecoderBuilder::max_queued) requests.
/// - **Memory.** The bytes of a request stay in memory until its batch is decoded or canceled. An
///   image larger than [`max_sample_bytes`](crate::DecoderBuilder::max_sample_bytes) fails, and its
///   bytes are freed immediately.
/// - **Closing.** Dropping the dynamic batcher drops all requests that `next` has not returned, but
///   leaves the decoder open. [Closing the decoder](Decoder::close) closes the dynamic batcher.
pub struct DynamicBatcher<B, T> {
    queue: Arc<Queue<T>>,
    batches: Option<Receiver<DynamicBatch<B, T>>>,
    thread: Option<JoinHandle<()>>,
    /// Also keeps the decoder alive for batches that are received after the thread has ended.
    decoder: Arc<Decoder<B>>,
    process: u32,
}

/// A batch of one or more requests, as returned by [`DynamicBatcher::next`].
#[derive(Debug)]
pub struct DynamicBatch<B, T> {
    /// The batch, which may still be decoding. Dropping it cancels all requests of the batch.
    pub pending: Pending<B>,
    /// The value of each request, and the rows of its images in the batch.
    pub requests: Vec<(T, Range<usize>)>,
}

impl<B: Send + 'static> Decoder<B> {
    /// Starts a [`DynamicBatcher`], which combines the images of several requests into batches.
    ///
    /// A batch is sent to the decoder once it has [`max_batch`](Decoder::max_batch) images, once
    /// the next request does not fit, once `max_delay` has passed since its first request was
    /// submitted, or once the dynamic batcher is closed. While three batches are ahead of the
    /// consumer, the next batch waits.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `max_delay` exceeds 60 seconds, and [`ErrorKind::Io`] if a thread
    /// cannot be started.
    pub fn dynamic_batcher<T: Send + 'static>(self: &Arc<Self>, max_delay: Duration) -> Result<DynamicBatcher<B, T>> {
        if max_delay > MAX_DELAY {
            return Err(Error::config(format!("max_delay={max_delay:?}: the maximum is {MAX_DELAY:?}")));
        }
        let queue = Arc::new(Queue::new(self.requests.limits, max_delay));
        self.register(queue.clone());
        let (batch_sender, batches) = bounded(BATCHES_AHEAD);
        let collector = Collector { decoder: self.clone(), queue: queue.clone(), batch_sender };
        let thread = std::thread::Builder::new()
            .name("warpfeed-batcher".into())
            .spawn(move || collector.run())
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the thread for dynamic batching: {e}")))?;
        let (batches, thread) = (Some(batches), Some(thread));
        Ok(DynamicBatcher { queue, batches, thread, decoder: self.clone(), process: std::process::id() })
    }
}

impl<B, T> DynamicBatcher<B, T> {
    /// Submits `images` as one request. `value` is returned with the batch, together with the rows
    /// of these images. Returns a request number for [`cancel`](DynamicBatcher::cancel).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `images` is empty or has more than [`Decoder::max_batch`] items, if
    /// the dynamic batcher is [closed](DynamicBatcher::close), or if called in a process other than
    /// the one that opened the decoder. [`ErrorKind::Busy`] if
    /// [`max_queued`](crate::DecoderBuilder::max_queued) requests are waiting for a batch.
    pub fn submit<P>(&self, images: impl IntoIterator<Item = P>, value: T) -> Result<u64>
    where
        P: AsRef<[u8]> + Send + Sync + 'static,
    {
        check_process("decoder", self.process)?;
        self.decoder.release_deferred();
        self.queue.push(images.into_iter().map(|image| Box::new(image) as OwnedBytes).collect(), value)
    }

    /// Cancels a queued request, and returns its value. Returns `None` if the request is already
    /// part of a batch or has been canceled.
    pub fn cancel(&self, request: u64) -> Option<T> {
        check_process("decoder", self.process).ok()?;
        self.queue.remove(request)
    }

    /// Waits for the next batch, which may still be decoding. Returns `None` after
    /// [`close`](DynamicBatcher::close), once all batches have been returned, and in a process
    /// other than the one that opened the decoder. Several threads may call this method, and each
    /// call returns a different batch.
    pub fn next(&self) -> Option<DynamicBatch<B, T>> {
        check_process("decoder", self.process).ok()?;
        self.batches.as_ref()?.recv().ok()
    }

    /// Stops accepting requests. The waiting requests form the last batches.
    pub fn close(&self) {
        if check_process("decoder", self.process).is_ok() {
            self.queue.close();
        }
    }
}

impl<B, T> Drop for DynamicBatcher<B, T> {
    fn drop(&mut self) {
        let (batches, Some(thread)) = (self.batches.take(), self.thread.take()) else { return };
        if check_process("decoder", self.process).is_err() {
            std::mem::forget((batches, thread));
            return;
        }
        drop(batches);
        self.queue.close();
        let _ = thread.join();
    }
}

impl<B, T> fmt::Debug for DynamicBatcher<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicBatcher").field("max_delay", &self.queue.max_delay).finish_non_exhaustive()
    }
}

struct Collector<B, T> {
    decoder: Arc<Decoder<B>>,
    queue: Arc<Queue<T>>,
    batch_sender: Sender<DynamicBatch<B, T>>,
}

impl<B: Send + 'static, T> Collector<B, T> {
    fn run(self) {
        while let Some(queued_requests) = self.queue.take() {
            let (mut images, mut requests) = (Vec::new(), Vec::new());
            for request in queued_requests {
                let first_row = images.len();
                images.extend(request.images);
                requests.push((request.value, first_row..images.len()));
            }
            let pending = self.decoder.submit_dynamic(images);
            if self.batch_sender.send(DynamicBatch { pending, requests }).is_err() {
                break;
            }
        }
    }
}

impl<T: Send> CloseWithDecoder for Queue<T> {
    fn close(&self) {
        Queue::close(self);
    }
}

struct Queue<T> {
    limits: Limits,
    max_delay: Duration,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    requests: VecDeque<Request<T>>,
    next_number: u64,
    is_closed: bool,
}

struct Request<T> {
    number: u64,
    submit_time: Instant,
    images: Vec<Image>,
    value: T,
}

impl<T> Queue<T> {
    fn new(limits: Limits, max_delay: Duration) -> Self {
        let state = State { requests: VecDeque::new(), next_number: 0, is_closed: false };
        Queue { limits, max_delay, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no code panics while holding this lock")
    }

    fn push(&self, images: Vec<OwnedBytes>, value: T) -> Result<u64> {
        let images = self.limits.check_request(images)?;
        // Dropping images or a value runs user code, which must not run under the lock. The guard
        // is created last, so an early return drops it first.
        let mut state = self.state();
        if state.is_closed {
            return Err(Error::config("requests are no longer accepted: close was called, or the decoder was closed"));
        }
        if state.requests.len() >= self.limits.max_queued {
            return Err(self.limits.busy_error());
        }
        let number = state.next_number;
        state.next_number += 1;
        state.requests.push_back(Request { number, submit_time: Instant::now(), images, value });
        drop(state);
        self.changed.notify_all();
        Ok(number)
    }

    fn remove(&self, number: u64) -> Option<T> {
        let mut state = self.state();
        let index = state.requests.binary_search_by_key(&number, |request| request.number).ok()?;
        let request = state.requests.remove(index);
        // Release the lock first, because dropping images runs user code.
        drop(state);
        request.map(|request| request.value)
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for the requests of the next batch. Returns `None` once the queue is closed and empty.
    fn take(&self) -> Option<Vec<Request<T>>> {
        let mut state = self.state();
        loop {
            let Some(first_request) = state.requests.front() else {
                if state.is_closed {
                    return None;
                }
                state = self.changed.wait(state).expect("no code panics while holding this lock");
                continue;
            };
            let remaining_delay = self.max_delay.saturating_sub(first_request.submit_time.elapsed());
            let mut image_count = 0;
            let has_space = |request: &&Request<T>| {
                image_count += request.images.len();
                image_count <= self.limits.max_images
            };
            let request_count = state.requests.iter().take_while(has_space).count();
            // `image_count` includes the first request that does not fit.
            if image_count >= self.limits.max_images || remaining_delay.is_zero() || state.is_closed {
                return Some(state.requests.drain(..request_count).collect());
            }
            state =
                self.changed.wait_timeout(state, remaining_delay).expect("no code panics while holding this lock").0;
        }
    }
}
