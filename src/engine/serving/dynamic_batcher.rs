use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::decoder::{Decoder, Ends, Pending};
use super::requests::{Image, Limits, Owned};
use crate::engine::state::check_process;
use crate::error::{Error, ErrorKind, Result};

/// Longest delay that can be set.
const LONGEST: Duration = Duration::from_secs(60);

/// Number of batches that are decoded ahead of the consumer. The decoder works on one of them while
/// the consumer works on the batch before.
const AHEAD: usize = 2;

/// Batches across requests, from [`Decoder::dynamic_batcher`].
///
/// Any thread submits requests, each with a value `T` of its own, such as the sender of a channel
/// for the answer. A thread of yours takes the batches with [`next`](DynamicBatcher::next). A batch has the
/// images of one or more whole requests, in the order in which they were submitted. It begins
/// when it is full, or `max_delay` after its first request.
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
/// let joined = decoder.dynamic_batcher::<Sender<Result<usize>>>(Duration::from_millis(5))?;
/// let (answer, answers) = channel();
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while let Some(batch) = joined.next() {
///             let images = batch.pending.wait();
///             // Run a model on the whole batch here.
///             for (answer, places) in batch.requests {
///                 let _ = answer.send(images.as_ref().map(|_| places.len()).map_err(Clone::clone));
///             }
///         }
///     });
///     joined.submit([first, second], answer.clone())?;
///     joined.submit([third], answer)?;
///     assert_eq!(answers.recv().unwrap()?, 2);
///     assert_eq!(answers.recv().unwrap()?, 1);
///     joined.close();
///     Ok(())
/// })
/// # }
/// ```
///
/// - **Bad images** are errors at their own places of the batch, as in every request.
/// - **Overload.** [`max_queued`](crate::DecoderBuilder::max_queued) limits the requests that wait
///   for a batch. Two batches are decoded ahead of the consumer. If it is slower than the clients,
///   requests wait until the next one is refused with [`ErrorKind::Busy`].
/// - **Memory.** The bytes of a request are kept until its batch is decoded. An image of more than
///   [`max_sample_bytes`](crate::DecoderBuilder::max_sample_bytes) is dropped at once.
/// - **The end.** Dropping it drops the requests that are not taken yet. The decoder stays open.
///   [Closing the decoder](Decoder::close) closes it, too.
pub struct DynamicBatcher<B, T> {
    queue: Arc<Queue<T>>,
    batches: Option<Receiver<DynamicBatch<B, T>>>,
    thread: Option<JoinHandle<()>>,
    /// Keeps the decoder for the batches that are taken after [`close`](DynamicBatcher::close), when the
    /// thread has ended.
    _decoder: Arc<Decoder<B>>,
    process: u32,
}

/// The batch of several requests, from [`DynamicBatcher::next`].
#[derive(Debug)]
pub struct DynamicBatch<B, T> {
    /// The batch, which is being decoded. Dropping it cancels the requests in it.
    pub pending: Pending<B>,
    /// The value of each request, and the places of its images in the batch.
    pub requests: Vec<(T, Range<usize>)>,
}

impl<B: Send + 'static> Decoder<B> {
    /// Joins the images of several requests into batches.
    ///
    /// A batch begins when no further request fits into [`max_batch`](Decoder::max_batch) images,
    /// or `max_delay` after its first request was submitted. See [`DynamicBatcher`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a delay of more than 60 seconds, and [`ErrorKind::Io`] if a thread
    /// cannot be started.
    pub fn dynamic_batcher<T: Send + 'static>(self: &Arc<Self>, max_delay: Duration) -> Result<DynamicBatcher<B, T>> {
        if max_delay > LONGEST {
            return Err(Error::config(format!("max_delay of {max_delay:?}: at most {LONGEST:?} are possible")));
        }
        let queue = Arc::new(Queue::new(self.requests.limits, max_delay));
        self.ends(queue.clone());
        let (begun, batches) = bounded(AHEAD);
        let collector = Collector { decoder: self.clone(), queue: queue.clone(), begun };
        let thread = std::thread::Builder::new()
            .name("warpfeed-joined".into())
            .spawn(move || collector.run())
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the thread that joins requests: {e}")))?;
        let (batches, thread) = (Some(batches), Some(thread));
        Ok(DynamicBatcher { queue, batches, thread, _decoder: self.clone(), process: std::process::id() })
    }
}

impl<B, T> DynamicBatcher<B, T> {
    /// Submits `images` as one request, and returns its number for [`cancel`](DynamicBatcher::cancel).
    /// `value` comes back with the batch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] without images, with more than [`Decoder::max_batch`], after
    /// [`close`](DynamicBatcher::close), and in a process other than the decoder's. [`ErrorKind::Busy`] if
    /// [`max_queued`](crate::DecoderBuilder::max_queued) requests wait for their batch.
    pub fn submit<P>(&self, images: impl IntoIterator<Item = P>, value: T) -> Result<u64>
    where
        P: AsRef<[u8]> + Send + Sync + 'static,
    {
        check_process("decoder", self.process)?;
        self.queue.put(images.into_iter().map(|image| Box::new(image) as Owned).collect(), value)
    }

    /// Takes a request back that does not belong to a batch yet, and returns its value.
    pub fn cancel(&self, request: u64) -> Option<T> {
        check_process("decoder", self.process).ok()?;
        self.queue.remove(request)
    }

    /// Waits for the next batch to begin. `None` after [`close`](DynamicBatcher::close), once all requests
    /// were in a batch. Several threads may call it; each gets batches of its own.
    pub fn next(&self) -> Option<DynamicBatch<B, T>> {
        check_process("decoder", self.process).ok()?;
        self.batches.as_ref()?.recv().ok()
    }

    /// Refuses further requests, and begins a batch with those that wait.
    pub fn close(&self) {
        if check_process("decoder", self.process).is_ok() {
            self.queue.close();
        }
    }
}

impl<B, T> Drop for DynamicBatcher<B, T> {
    fn drop(&mut self) {
        let (batches, Some(thread)) = (self.batches.take(), self.thread.take()) else { return };
        // After `fork` the thread does not exist in this process.
        if check_process("decoder", self.process).is_err() {
            std::mem::forget((batches, thread));
            return;
        }
        // The thread may wait for room for a batch.
        drop(batches);
        self.queue.close();
        let _ = thread.join();
    }
}

impl<B, T> fmt::Debug for DynamicBatcher<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("max_delay", &self.queue.delay).finish_non_exhaustive()
    }
}

/// The thread that begins batches.
struct Collector<B, T> {
    decoder: Arc<Decoder<B>>,
    queue: Arc<Queue<T>>,
    begun: Sender<DynamicBatch<B, T>>,
}

impl<B: Send + 'static, T> Collector<B, T> {
    fn run(self) {
        while let Some(joined) = self.queue.take() {
            let (mut images, mut requests) = (Vec::new(), Vec::new());
            for request in joined {
                let first = images.len();
                images.extend(request.images);
                requests.push((request.value, first..images.len()));
            }
            let pending = self.decoder.begin_joined(images);
            if self.begun.send(DynamicBatch { pending, requests }).is_err() {
                break;
            }
        }
    }
}

impl<T: Send> Ends for Queue<T> {
    fn end(&self) {
        self.close();
    }
}

/// Requests that are in no batch yet.
struct Queue<T> {
    limits: Limits,
    delay: Duration,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<Request<T>>,
    /// Number of the next request.
    number: u64,
    closed: bool,
}

struct Request<T> {
    number: u64,
    since: Instant,
    images: Vec<Image>,
    value: T,
}

impl<T> Queue<T> {
    fn new(limits: Limits, delay: Duration) -> Self {
        let state = State { waiting: VecDeque::new(), number: 0, closed: false };
        Queue { limits, delay, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("nothing panics while holding it")
    }

    fn put(&self, images: Vec<Owned>, value: T) -> Result<u64> {
        let images = self.limits.request(images)?;
        // Dropping images or a value runs the user's code, so the lock is not held then: it was
        // taken last, so it is released first.
        let mut state = self.state();
        if state.closed {
            return Err(Error::config("requests are no longer joined: close was called, or the decoder was closed"));
        }
        if state.waiting.len() >= self.limits.queued {
            return Err(self.limits.busy());
        }
        let number = state.number;
        state.number += 1;
        state.waiting.push_back(Request { number, since: Instant::now(), images, value });
        drop(state);
        self.changed.notify_all();
        Ok(number)
    }

    fn remove(&self, number: u64) -> Option<T> {
        let mut state = self.state();
        let place = state.waiting.binary_search_by_key(&number, |request| request.number).ok()?;
        let request = state.waiting.remove(place);
        drop(state);
        // Dropping images runs the user's code, so the lock is not held.
        request.map(|request| request.value)
    }

    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Waits until a batch is due, and takes its requests. `None` once the queue is closed and
    /// empty.
    fn take(&self) -> Option<Vec<Request<T>>> {
        let mut state = self.state();
        loop {
            let Some(first) = state.waiting.front() else {
                if state.closed {
                    return None;
                }
                state = self.changed.wait(state).expect("nothing panics while holding it");
                continue;
            };
            let left = self.delay.saturating_sub(first.since.elapsed());
            let mut count = 0;
            let fits = |request: &&Request<T>| {
                count += request.images.len();
                count <= self.limits.images
            };
            let fitting = state.waiting.iter().take_while(fits).count();
            // `count` includes the first request that does not fit.
            if count >= self.limits.images || left.is_zero() || state.closed {
                return Some(state.waiting.drain(..fitting).collect());
            }
            state = self.changed.wait_timeout(state, left).expect("nothing panics while holding it").0;
        }
    }
}
