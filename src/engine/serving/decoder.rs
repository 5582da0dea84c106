//! A decoder for inference servers, which turns each request into one batch.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use super::requests::{Image, OwnedBytes, Requests};
use super::response::Response;
use crate::batch::{Delivered, ReleaseDeferred, is_recoverable};
use crate::engine::delivering::Batches;
use crate::engine::settings::MemoryPlan;
use crate::engine::state::{LoaderHandle, check_process};
use crate::error::{Error, ErrorKind, Result};
use crate::trace::Stats;

/// Interval at which the server thread checks whether the decoder has been closed, and at which a
/// thread that waits for a response releases deferred batches.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Decodes images on request, for inference servers. A request is a list of encoded images. The
/// response is one batch, with the same pixels that a loader with the same options delivers.
///
/// [`Decoder::builder`] starts with the default options.
/// [`Loader::decoder`](crate::Loader::decoder) takes the options from a loader.
///
/// ```
/// use warpfeed::{Augment, Decoder, Dtype, HostBatch, Layout, Normalize};
///
/// # fn main() -> warpfeed::Result<()> {
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/datasets/mini");
/// # let source = warpfeed::source::open(folder)?;
/// # let read = |index| Ok::<_, warpfeed::Error>(source.read(index, &mut Vec::new())?.field("jpg").unwrap().to_vec());
/// let options = Decoder::builder().batch_size(64).augment(Augment::eval(72, 64));
/// let options = options.normalize(Normalize::IMAGENET).dtype(Dtype::F16).layout(Layout::Nchw);
/// let decoder: Decoder<HostBatch> = options.host()?;
///
/// let uploads: Vec<Vec<u8>> = vec![read(0)?, b"no image".to_vec(), read(1)?];
/// let batch = decoder.decode(uploads)?;
/// assert_eq!(batch.images().shape(), [3, 3, 64, 64]);
/// // A bad image affects only its own row.
/// assert!(batch.error(0).is_none() && batch.error(2).is_none());
/// assert!(batch.error(1).unwrap().to_string().starts_with("sample 1: decode: "));
/// assert!(batch.valid().eq([true, false, true]));
/// # Ok(())
/// # }
/// ```
///
/// - **Images** are encoded bytes in any format that a [loader
///   reads](crate::decode#supported-formats), including progressive, rotated and CMYK JPEGs. The
///   format is detected from the first bytes.
/// - **Bad images** are black in the batch. [`BatchInfo::error`](crate::BatchInfo::error) returns
///   the cause, and [`BatchInfo::valid`](crate::BatchInfo::valid) is false for the row.
/// - **Threads.** Any number of threads may call [`decode`](Decoder::decode) at the same time.
///   While the device decodes one request, workers prepare the next. Batches become ready in the
///   order of the requests.
/// - **Asynchronous requests.** [`submit`](Decoder::submit) immediately returns a [`Pending`],
///   which you can `wait` for or await as a future. Dropping the [`Pending`] cancels the request.
/// - **Overload.** Once [`max_queued`](crate::DecoderBuilder::max_queued) requests are queued,
///   further ones are rejected with [`ErrorKind::Busy`](crate::ErrorKind::Busy). An image larger
///   than [`max_sample_bytes`](crate::DecoderBuilder::max_sample_bytes) fails without affecting
///   other images, and its bytes are freed immediately.
/// - **Streams.** A device batch is ready on the stream that the decoder was opened with. Only your
///   threads use that stream: the thread that receives a response makes the stream wait for the
///   batch, and the thread that drops the batch records an event in the stream. The event of a
///   batch that is dropped during a CUDA graph capture is recorded after the capture, by the next
///   thread that submits a request, waits for a response, or receives or drops a batch.
/// - **Memory** for batches is allocated when the decoder is opened, and then reused; see
///   [`memory_plan`](Decoder::memory_plan). In addition, the decoder owns the bytes of each request
///   until it has responded or the request is canceled.
///   [`max_in_flight`](crate::DecoderBuilder::max_in_flight) sets the number of requests in flight,
///   3 by default. At most `max_in_flight` + 1 batches can exist at once on a device
///   (`max_in_flight` + 2 in host memory), and a response counts until you have received and
///   dropped it. At that limit, further requests wait, and fail after
///   [`held_batches_timeout`](crate::DecoderBuilder::held_batches_timeout). So receive responses
///   roughly in the order of the requests, and copy batches that you want to keep.
/// - **Large images** are decoded on the device only while the images of a request fit into the
///   device buffer. This buffer holds 16,384 blocks of 8x8 samples times
///   [`batch_size`](crate::DecoderBuilder::batch_size), but at least 524,288 blocks (a photograph
///   of 12 megapixels has 281,250 if its chroma is subsampled by 2 in both directions). Workers
///   decode the other images, with bit-identical results. Set
///   [`max_pixels`](crate::DecoderBuilder::max_pixels) to reject images that are too large to
///   serve.
///
/// Dropping the decoder ends its threads. Requests without a response fail; batches stay valid.
pub struct Decoder<B> {
    pub(super) requests: Arc<Requests<B>>,
    handle: LoaderHandle,
    memory_plan: MemoryPlan,
    thread: Option<JoinHandle<()>>,
    /// The thread that receives a response calls this function with the batch. The function may use
    /// the user's stream.
    on_receive: fn(&B) -> Result<()>,
    /// Called by threads that may use the user's stream, when they submit or wait.
    deferred_release: Option<ReleaseDeferred>,
    batchers: Mutex<Vec<Weak<dyn CloseWithDecoder>>>,
    process: u32,
}

pub(super) trait CloseWithDecoder: Send + Sync {
    fn close(&self);
}

impl<B: Send + 'static> Decoder<B> {
    /// `requests` must be the source of `batches`.
    pub(crate) fn new(requests: Arc<Requests<B>>, batches: Batches<B>) -> Result<Self>
    where
        B: Delivered,
    {
        let (handle, memory_plan) = (batches.handle(), batches.memory_plan());
        let deferred_release = batches.deferred_release();
        let capacity = if memory_plan.device_slots > 0 { memory_plan.device_slots } else { memory_plan.slots };
        let server = Server { requests: requests.clone(), batches, capacity };
        let thread = std::thread::Builder::new()
            .name("warpfeed-answer".into())
            .spawn(move || server.serve())
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the decoder's thread: {e}")))?;
        let (on_receive, process) = (B::on_receive as fn(&B) -> _, std::process::id());
        let batchers = Mutex::default();
        let thread = Some(thread);
        Ok(Decoder { requests, handle, memory_plan, thread, on_receive, deferred_release, batchers, process })
    }

    /// Decodes `images` into a batch, in order, and waits for the batch. A device batch is returned
    /// once decoding has finished, because only then are damaged images known. Does not wait for
    /// work on your stream.
    ///
    /// `P` can be any type that owns bytes, such as `Vec<u8>`, `Arc<[u8]>` or `bytes::Bytes`. The
    /// bytes are not copied on the calling thread.
    ///
    /// # Errors
    /// See [`submit`](Decoder::submit) and [`Pending::wait`]. A bad image is not an error. If the
    /// stream may be captured during the call, use [`submit`](Decoder::submit): the response can
    /// still be received after the capture.
    pub fn decode<P>(&self, images: impl IntoIterator<Item = P>) -> Result<B>
    where
        P: AsRef<[u8]> + Send + Sync + 'static,
    {
        self.submit(images)?.wait()
    }

    /// Queues a request to decode `images`, without waiting. Dropping the [`Pending`] cancels the
    /// request.
    ///
    /// ```
    /// # fn main() -> warpfeed::Result<()> {
    /// # let decoder = warpfeed::Decoder::builder().host()?;
    /// # let [first, second] = [vec![b"first".to_vec()], vec![b"second".to_vec()]];
    /// let (first, second) = (decoder.submit(first)?, decoder.submit(second)?);
    /// let batches = [first.wait()?, second.wait()?];
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if `images` is empty or has more than
    /// [`max_batch`](Decoder::max_batch) items, or if called in a process other than the one that
    /// opened the decoder. [`ErrorKind::Busy`](crate::ErrorKind::Busy) if
    /// [`max_queued`](crate::DecoderBuilder::max_queued) requests are queued.
    pub fn submit<P>(&self, images: impl IntoIterator<Item = P>) -> Result<Pending<B>>
    where
        P: AsRef<[u8]> + Send + Sync + 'static,
    {
        check_process("decoder", self.process)?;
        self.release_deferred();
        let images = images.into_iter().map(|image| Box::new(image) as OwnedBytes).collect();
        Ok(self.create_pending(self.requests.submit(images)?))
    }

    pub(super) fn submit_dynamic(&self, images: Vec<Image>) -> Pending<B> {
        self.create_pending(self.requests.submit_dynamic(images))
    }

    fn create_pending(&self, (ticket, response): (u64, Arc<Response<B>>)) -> Pending<B> {
        Pending {
            response,
            requests: self.requests.clone(),
            ticket,
            on_receive: self.on_receive,
            deferred_release: self.deferred_release.clone(),
            process: self.process,
        }
    }
}

impl<B> Decoder<B> {
    /// Returns the maximum number of images per request, as set with
    /// [`batch_size`](crate::DecoderBuilder::batch_size).
    pub fn max_batch(&self) -> usize {
        self.requests.limits.max_images
    }

    /// Closes the decoder for all threads that share it. Requests without a response and later
    /// requests fail, including requests of a [dynamic batcher](Decoder::dynamic_batcher). Batches
    /// that the program holds stay valid. The memory is freed when the last owner drops the
    /// decoder.
    pub fn close(&self) {
        if check_process("decoder", self.process).is_ok() {
            self.requests.close();
            let batchers = std::mem::take(&mut *self.batchers());
            batchers.iter().filter_map(Weak::upgrade).for_each(|batcher| batcher.close());
        }
    }

    pub(super) fn register(&self, batcher: Arc<dyn CloseWithDecoder>) {
        let mut batchers = self.batchers();
        batchers.retain(|batcher| batcher.strong_count() > 0);
        batchers.push(Arc::downgrade(&batcher));
        drop(batchers);
        if self.requests.is_closed() {
            batcher.close();
        }
    }

    fn batchers(&self) -> MutexGuard<'_, Vec<Weak<dyn CloseWithDecoder>>> {
        self.batchers.lock().expect("no code panics while holding this lock")
    }

    /// Releases the memory of batches that the program dropped during a graph capture, if the
    /// capture has ended.
    pub(super) fn release_deferred(&self) {
        self.deferred_release.iter().for_each(|release| release());
    }

    /// Returns the decoder's memory plan, without pending requests and your copies of batches.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.memory_plan
    }

    /// Returns the statistics of each stage so far.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }
}

impl<B> Drop for Decoder<B> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // A forked child has no such thread, and locks that the parent held stay locked.
        if std::process::id() == self.process {
            self.requests.close();
            let _ = thread.join();
        }
    }
}

impl<B> fmt::Debug for Decoder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("max_batch", &self.max_batch()).field("plan", &self.memory_plan()).finish()
    }
}

/// The pending response of a [`Decoder`], a batch that can be received once. A `Pending` is also a
/// future. After an error of kind [`Capturing`](crate::ErrorKind::Capturing), the batch can still be
/// received, so await `&mut pending` if the stream may be captured.
///
/// Dropping this value cancels the request. Images that are already being decoded are finished.
#[must_use = "dropping it cancels the request"]
pub struct Pending<B> {
    response: Arc<Response<B>>,
    requests: Arc<Requests<B>>,
    ticket: u64,
    on_receive: fn(&B) -> Result<()>,
    deferred_release: Option<ReleaseDeferred>,
    process: u32,
}

impl<B> Pending<B> {
    /// Waits for the batch. Makes the decoder's stream wait until a device batch is ready.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if the request has waited for longer than
    /// [`held_batches_timeout`](crate::DecoderBuilder::held_batches_timeout), because the program
    /// holds all of the decoder's batches, or because it has dropped them during a CUDA graph
    /// capture. [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) if the decoder's stream is
    /// being captured into a CUDA graph. The batch is not lost: wait again after the capture.
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if the driver reports an error.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the batch has already been received, if
    /// the decoder was dropped or [closed](Decoder::close) before it decoded the batch, or if
    /// called in a process other than the one that opened the decoder.
    /// [`ErrorKind::Panic`](crate::ErrorKind::Panic) if a thread of the decoder has panicked.
    pub fn wait(&self) -> Result<B> {
        self.take(self.on_receive)
    }

    /// Waits for the batch, calls `on_batch` with it, and takes it. If `on_batch` fails, the batch
    /// can still be received.
    fn take(&self, on_batch: impl FnOnce(&B) -> Result<()>) -> Result<B> {
        check_process("decoder", self.process)?;
        while self.deferred_release.is_some() && !self.is_ready_within(POLL_INTERVAL) {}
        self.response.wait(on_batch)
    }

    /// Returns whether [`wait`](Pending::wait) would return without blocking.
    pub fn is_ready(&self) -> bool {
        self.is_ready_within(Duration::ZERO)
    }

    /// Waits at most `timeout` for the batch. Returns whether [`wait`](Pending::wait) would now
    /// return without blocking.
    pub fn is_ready_within(&self, timeout: Duration) -> bool {
        check_process("decoder", self.process).is_err() || {
            self.release_deferred();
            self.response.wait_timeout(timeout)
        }
    }

    /// Returns `Ready` if [`wait`](Pending::wait) would return without blocking. Otherwise, stores
    /// the waker of `context`, and wakes it as soon as `wait` would no longer block. A later call
    /// replaces the waker.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if check_process("decoder", self.process).is_err() {
            return Poll::Ready(());
        }
        self.release_deferred();
        self.response.poll(context)
    }

    fn release_deferred(&self) {
        self.deferred_release.iter().for_each(|release| release());
    }
}

#[cfg(feature = "_device")]
impl<G: crate::device::Gpu> Pending<crate::device::DeviceBatch<G>> {
    /// Like [`wait`](Pending::wait), but makes `stream`, a stream handle of a different library,
    /// wait for the batch instead of the decoder's stream. After the batch is dropped, its memory
    /// is reused once the work that was submitted to `stream` has finished.
    ///
    /// # Safety
    /// See [`DeviceBatch::use_on`](crate::device::DeviceBatch::use_on).
    ///
    /// # Errors
    /// See [`wait`](Pending::wait).
    #[allow(unsafe_code)]
    pub unsafe fn wait_on(&self, stream: usize) -> Result<crate::device::DeviceBatch<G>> {
        // SAFETY: the caller upholds the requirements of `use_on`, and `take_on` has the same
        // requirements.
        self.take(|batch| unsafe { batch.take_on(stream) })
    }
}

impl<B> Future for Pending<B> {
    type Output = Result<B>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<B>> {
        self.poll_ready(context).map(|()| self.wait())
    }
}

impl<B> Drop for Pending<B> {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            self.requests.cancel(self.ticket);
        }
    }
}

impl<B> fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_ready", &self.is_ready()).finish()
    }
}

/// The thread that turns batches into responses. It must not use the user's stream.
struct Server<B> {
    requests: Arc<Requests<B>>,
    batches: Batches<B>,
    /// Maximum number of batches that can exist at once.
    capacity: usize,
}

impl<B> Server<B> {
    fn serve(mut self) {
        self.batches.begin(0);
        while self.requests.wait() {
            let requests = &self.requests;
            let result = self.batches.next_interruptible(&mut || (!requests.is_closed()).then_some(POLL_INTERVAL));
            if requests.is_closed() {
                break;
            }
            match result.unwrap_or_else(|| Err(Error::new(ErrorKind::Panic, "the decoder's threads have ended"))) {
                // The run continues, so the batches in flight will still arrive.
                Err(e) if is_recoverable(&e) => {
                    requests.fail_late_requests(self.capacity, &e);
                }
                Err(e) => {
                    requests.respond(Err(e));
                    // Start a new run with the requests that were in flight.
                    let (epoch, number) = requests.begin_run();
                    self.batches.begin_from(epoch, number);
                }
                batch => requests.respond(batch),
            }
        }
    }
}

impl<B> Drop for Server<B> {
    fn drop(&mut self) {
        self.requests.fail_all();
    }
}
