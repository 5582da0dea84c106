use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use super::reply::Reply;
use super::requests::{Image, Owned, Requests};
use crate::batch::{Delivered, goes_on};
use crate::engine::delivering::Batches;
use crate::engine::settings::MemoryPlan;
use crate::engine::state::{LoaderHandle, check_process};
use crate::error::{Error, ErrorKind, Result};
use crate::trace::Stats;

/// Interval at which a wait for a batch checks whether the decoder is closed.
const TICK: Duration = Duration::from_millis(20);

/// Decodes images that come in requests, for inference servers. A request is a list of encoded
/// images. Its answer is one batch, with the pixels that a loader with the same options gives.
///
/// [`Decoder::builder`] sets its options, and [`Loader::decoder`](crate::Loader::decoder) takes
/// those of a loader.
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
/// // A bad image affects only its own place.
/// assert!(batch.error(0).is_none() && batch.error(2).is_none());
/// assert!(batch.error(1).unwrap().to_string().starts_with("sample 1: decode: "));
/// assert!(batch.valid().eq([true, false, true]));
/// # Ok(())
/// # }
/// ```
///
/// - **Images** are bytes of any kind that a [loader reads](crate::decode#what-is-read): JPEGs
///   (also progressive, turned or CMYK), PNG, WebP and others, detected by their first bytes.
/// - **Bad images** are black in the batch. At their places,
///   [`BatchInfo::error`](crate::BatchInfo::error) returns the cause, and
///   [`BatchInfo::valid`](crate::BatchInfo::valid) is false.
/// - **Threads.** Many threads may call [`decode`](Decoder::decode) at once. While one request is
///   on the device, workers already prepare the next. Answers come in the order of the requests.
/// - **No waiting.** [`submit`](Decoder::submit) returns a [`Pending`] at once. Wait for it, or
///   await it as a future. Dropping the [`Pending`] cancels the request.
/// - **Overload.** If [`max_queued`](crate::DecoderBuilder::max_queued) requests are queued, the
///   next is refused with [`ErrorKind::Busy`](crate::ErrorKind::Busy). An image of more than
///   [`max_sample_bytes`](crate::DecoderBuilder::max_sample_bytes) is dropped at once, and is an
///   error at its place.
/// - **Streams.** On a device, batches are ordered on the stream that the decoder was opened with.
///   The decoder's own threads never touch that stream: the thread that takes an answer makes it
///   wait.
/// - **Memory** is allocated on opening and reused; see [`memory_plan`](Decoder::memory_plan). The
///   bytes of a request are yours, and are kept until it is answered.
///   [`prefetch`](crate::DecoderBuilder::prefetch) sets the number of requests in flight, 3 by
///   default. On a device `prefetch` + 1 batches may be alive at once, in host memory `prefetch` +
///   2, including answers that were not taken yet. If all of them are alive, a request waits, and
///   fails after [`timeout`](crate::DecoderBuilder::timeout). So take answers about in the order of
///   the requests, and copy what you keep.
/// - **Large images** are decoded on the device too, as long as the images of a request fit
///   together: 10,240 blocks of 64 samples for each of the
///   [`batch_size`](crate::DecoderBuilder::batch_size) images, and at least 327,680 blocks, which
///   is a photograph of 12 megapixels. Workers decode the others, to the same bits.
///   [`max_pixels`](crate::DecoderBuilder::max_pixels) refuses images that are too large to
///   serve.
///
/// Dropping the decoder ends its threads. Unanswered requests become errors. Batches that you hold
/// stay valid.
pub struct Decoder<B> {
    pub(super) requests: Arc<Requests<B>>,
    monitor: LoaderHandle,
    memory: MemoryPlan,
    thread: Option<JoinHandle<()>>,
    /// Called for each batch on the thread that takes it.
    taken: fn(&B) -> Result<()>,
    /// What ends with the decoder.
    ends: Mutex<Vec<Weak<dyn Ends>>>,
    process: u32,
}

/// What ends when a decoder is closed.
pub(super) trait Ends: Send + Sync {
    fn end(&self);
}

impl<B: Send + 'static> Decoder<B> {
    /// Answers `requests` with `batches`, whose samples are those of the requests.
    pub(crate) fn new(requests: Arc<Requests<B>>, batches: Batches<B>) -> Result<Self>
    where
        B: Delivered,
    {
        let (monitor, memory) = (batches.handle(), batches.memory_plan());
        let room = if memory.device_slots > 0 { memory.device_slots } else { memory.slots };
        let server = Server { requests: requests.clone(), batches, room };
        let thread = std::thread::Builder::new()
            .name("warpfeed-answer".into())
            .spawn(move || server.serve())
            .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start the decoder's thread: {e}")))?;
        let (taken, process) = (B::taken as fn(&B) -> _, std::process::id());
        Ok(Decoder { requests, monitor, memory, thread: Some(thread), taken, ends: Mutex::default(), process })
    }

    /// Decodes `images` to a batch, in their order, and waits for it. On a device it also waits
    /// for decoding, because only decoding shows which images are damaged. It does not wait for
    /// work on your stream.
    ///
    /// `P` is any owner of the bytes: `Vec<u8>`, `Arc<[u8]>`, `bytes::Bytes`. The calling thread
    /// does not copy them.
    ///
    /// # Errors
    /// Those of [`submit`](Decoder::submit) and of [`Pending::wait`]. A bad image is an error at
    /// its place, but not of the batch. If the stream may be captured meanwhile, use
    /// [`submit`](Decoder::submit), whose answer can still be taken after the capture.
    pub fn decode<P>(&self, images: impl IntoIterator<Item = P>) -> Result<B>
    where
        P: AsRef<[u8]> + Send + Sync + 'static,
    {
        self.submit(images)?.wait()
    }

    /// Begins to decode `images`, and returns at once. Dropping the [`Pending`] cancels the
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
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) without images, with more than
    /// [`max_batch`](Decoder::max_batch), and in a process other than the one that opened the
    /// decoder. [`ErrorKind::Busy`](crate::ErrorKind::Busy) if
    /// [`max_queued`](crate::DecoderBuilder::max_queued) requests are queued.
    pub fn submit<P>(&self, images: impl IntoIterator<Item = P>) -> Result<Pending<B>>
    where
        P: AsRef<[u8]> + Send + Sync + 'static,
    {
        check_process("decoder", self.process)?;
        let images = images.into_iter().map(|image| Box::new(image) as Owned).collect();
        Ok(self.pending(self.requests.ask(images)?))
    }

    /// Begins to decode the images of joined requests.
    pub(super) fn begin_joined(&self, images: Vec<Image>) -> Pending<B> {
        self.pending(self.requests.ask_joined(images))
    }

    fn pending(&self, (ticket, reply): (u64, Arc<Reply<B>>)) -> Pending<B> {
        Pending { reply, requests: self.requests.clone(), ticket, taken: self.taken, process: self.process }
    }
}

impl<B> Decoder<B> {
    /// Maximum number of images per request: [`batch_size`](crate::DecoderBuilder::batch_size).
    pub fn max_batch(&self) -> usize {
        self.requests.limits.images
    }

    /// Ends the decoder for all threads that share it. Unanswered and further requests become
    /// errors, also those that are [joined](Decoder::dynamic_batcher). Batches that the program holds stay
    /// valid. Memory is freed when the last owner drops the decoder.
    pub fn close(&self) {
        if check_process("decoder", self.process).is_ok() {
            self.requests.close();
            let ends = std::mem::take(&mut *self.all_ends());
            ends.iter().filter_map(Weak::upgrade).for_each(|ends| ends.end());
        }
    }

    /// Ends `joined` when the decoder is closed.
    pub(super) fn ends(&self, joined: Arc<dyn Ends>) {
        let mut ends = self.all_ends();
        ends.retain(|ends| ends.strong_count() > 0);
        ends.push(Arc::downgrade(&joined));
        drop(ends);
        if self.requests.is_closed() {
            joined.end();
        }
    }

    fn all_ends(&self) -> MutexGuard<'_, Vec<Weak<dyn Ends>>> {
        self.ends.lock().expect("nothing panics while holding it")
    }

    /// The memory that the decoder holds. It does not include pending requests, or copies that you
    /// make of batches.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.memory
    }

    /// Statistics of the decoder so far, by stage.
    pub fn stats(&self) -> Stats {
        self.monitor.stats()
    }
}

impl<B> Drop for Decoder<B> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // After `fork` the thread does not exist in this process, and locks may be held
        // permanently.
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

/// The pending answer to a request of a [`Decoder`]: one batch, which can be taken once. It is also
/// a future. After an error of the kind [`Capturing`](crate::ErrorKind::Capturing) the batch can
/// still be taken; so await `&mut pending` if that may happen.
///
/// Dropping it cancels the request: images whose decoding has not begun are not decoded.
#[must_use = "dropping it cancels the request"]
pub struct Pending<B> {
    reply: Arc<Reply<B>>,
    requests: Arc<Requests<B>>,
    ticket: u64,
    taken: fn(&B) -> Result<()>,
    process: u32,
}

impl<B> Pending<B> {
    /// Waits for the batch and takes it. On a device, the decoder's stream waits for it from here
    /// on.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if all batches that the decoder has room
    /// for stay alive for longer than [`timeout`](crate::DecoderBuilder::timeout).
    /// [`ErrorKind::Capturing`](crate::ErrorKind::Capturing) if the decoder's stream is being
    /// captured into a CUDA graph. The batch stays here: wait again after the capture.
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) from the driver.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the batch was taken before, if the
    /// decoder is dropped first, and in a process other than the one that opened it.
    pub fn wait(&self) -> Result<B> {
        self.take(self.taken)
    }

    /// Waits for the batch and takes it, unless `order` fails.
    fn take(&self, order: impl FnOnce(&B) -> Result<()>) -> Result<B> {
        check_process("decoder", self.process)?;
        self.reply.wait(order)
    }

    /// Whether [`wait`](Pending::wait) would return at once.
    pub fn is_ready(&self) -> bool {
        self.is_ready_within(Duration::ZERO)
    }

    /// Waits for the batch for at most `timeout`. Returns whether [`wait`](Pending::wait) would now
    /// return at once.
    pub fn is_ready_within(&self, timeout: Duration) -> bool {
        check_process("decoder", self.process).is_err() || self.reply.is_given(timeout)
    }

    /// Whether [`wait`](Pending::wait) would return at once. If not, wakes the waker of `context`
    /// when it would. Only the waker of the last call is woken.
    pub fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if check_process("decoder", self.process).is_err() { Poll::Ready(()) } else { self.reply.poll(context) }
    }
}

#[cfg(feature = "_device")]
impl<G: crate::device::Gpu> Pending<crate::device::DeviceBatch<G>> {
    /// As [`wait`](Pending::wait), for a stream of another library, given by its handle. That
    /// stream waits for the batch instead of the decoder's. The memory is reused only after the
    /// work that the stream was given before the batch is dropped.
    ///
    /// # Safety
    /// As [`DeviceBatch::use_on`](crate::device::DeviceBatch::use_on).
    ///
    /// # Errors
    /// As [`wait`](Pending::wait).
    #[allow(unsafe_code)]
    pub unsafe fn wait_on(&self, stream: usize) -> Result<crate::device::DeviceBatch<G>> {
        // SAFETY: the caller's promise.
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

/// Takes batches and answers the requests. It does not touch the user's stream: the thread that
/// takes an answer does.
struct Server<B> {
    requests: Arc<Requests<B>>,
    batches: Batches<B>,
    /// Number of batches that may be alive at once.
    room: usize,
}

impl<B> Server<B> {
    fn serve(mut self) {
        self.batches.begin(0);
        while self.requests.wait() {
            let requests = &self.requests;
            let came = self.batches.next(&mut || (!requests.is_closed()).then_some(TICK));
            if requests.is_closed() {
                break;
            }
            match came.unwrap_or_else(|| Err(Error::new(ErrorKind::Panic, "the decoder's threads have ended"))) {
                // The run continues, with its batches in flight.
                Err(e) if goes_on(&e) => {
                    requests.give_up_late(self.room, &e);
                }
                Err(e) => {
                    requests.answer(Err(e));
                    // Requests in flight behind it begin again.
                    let (epoch, number) = requests.begin_run();
                    self.batches.begin_from(epoch, number);
                }
                batch => requests.answer(batch),
            }
        }
    }
}

impl<B> Drop for Server<B> {
    fn drop(&mut self) {
        self.requests.give_up();
    }
}
