//! Holds returned page-locked host slots while a device may still read them.
//!
//! Safe code can asynchronously upload a batch in page-locked memory, on any stream, and drop the
//! batch immediately. The loader does not know which stream still reads its slot. The loader
//! therefore holds a returned slot until the devices have done all work submitted before the
//! return:
//!
//! ```text
//! drop(batch) ──► unmarked ──(next() marks)──► marked ──(done)──► free
//! release_on(stream) ─────────────────────────────┘
//! ```
//!
//! A mark is an event recorded after all work submitted so far. It is recorded by the next call of
//! `next()`, or immediately if a consumer is already waiting in `next()`. Dropping a batch does not
//! record anything, so it cannot disturb a CUDA graph capture. A separate thread checks the marks.
//! Neither the consumer nor a worker waits for a device.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::batch::{HostBatch, Keeper};
use crate::error::{Error, ErrorKind, Result};

/// Interval between checks whether marks have completed.
const POLL: Duration = Duration::from_micros(200);

/// Result of marking all submitted work.
#[derive(Debug)]
pub(crate) enum Marked<M> {
    /// The work is marked.
    At(M),
    /// Nothing was marked, because a stream is being captured.
    Capturing,
    /// Nothing was marked, because with this driver the only way is to wait for the work.
    Unable,
}

/// Sets marks in the work submitted to devices, and checks them.
pub(crate) trait Watch: Send + Sync + 'static {
    type Mark: Send;

    /// Marks all work submitted to any device so far. May block the host only if `block` is set.
    fn mark_all(&self, block: bool) -> Result<Marked<Self::Mark>>;
    fn is_done(&self, mark: &Self::Mark) -> Result<bool>;
    /// Takes back a completed mark for reuse.
    fn recycle(&self, mark: Self::Mark);
}

/// A slot that a device may still read, and its mark once it has been set.
type ReturnedSlot<T, M> = (T, Option<M>);

/// Holds returned slots of type `T` until no device reads them.
pub(crate) struct Handoff<W: Watch, T: Send + 'static> {
    shared: Arc<Shared<W>>,
    unmarked: Mutex<Vec<T>>,
    /// Whether a consumer is waiting for a batch. If so, a slot is marked as soon as it is
    /// returned.
    wanted: AtomicBool,
    kept: Sender<ReturnedSlot<T, W::Mark>>,
    free: Sender<T>,
}

struct Shared<W> {
    watch: W,
    /// Number of slots that are still held.
    open: AtomicUsize,
    /// Time at which the most recent slot was freed.
    idle: Mutex<Instant>,
    /// Whether a slot cannot be marked before a capture ends.
    capturing: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl<W: Watch, T: Send + 'static> Handoff<W, T> {
    /// Starts the thread, which sends slots to `free` once their marks have completed.
    pub(crate) fn new(watch: W, free: Sender<T>) -> Result<Self> {
        let idle = Mutex::new(Instant::now());
        let shared = Arc::new(Shared {
            watch,
            open: AtomicUsize::new(0),
            idle,
            capturing: AtomicBool::new(false),
            failed: Mutex::default(),
        });
        let (kept, comes) = unbounded();
        let thread = Thread { shared: shared.clone(), comes, free: free.clone(), kept: Vec::new() };
        std::thread::Builder::new().name("warpfeed-pinned".into()).spawn(move || thread.run()).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot start the thread that holds page-locked batches: {e}"))
        })?;
        Ok(Handoff { shared, unmarked: Mutex::default(), wanted: AtomicBool::new(false), kept, free })
    }

    pub(crate) fn watch(&self) -> &W {
        &self.shared.watch
    }

    /// Holds a slot until `mark` has completed. Without a mark, the thread sets one as soon as it
    /// can.
    pub(crate) fn keep_until(&self, slot: T, mark: Option<W::Mark>) {
        self.shared.open.fetch_add(1, SeqCst);
        self.pass(slot, mark);
    }

    fn pass(&self, slot: T, mark: Option<W::Mark>) {
        let mark = match mark {
            Some(mark) if matches!(self.shared.watch.is_done(&mark), Ok(true)) => {
                self.shared.watch.recycle(mark);
                self.shared.lands();
                return drop(self.free.send(slot));
            }
            mark => mark,
        };
        let _ = self.kept.send((slot, mark));
    }

    /// Marks the slots that were returned since the last call.
    fn mark(&self) {
        // Hold no lock during driver calls.
        loop {
            let Some(slot) = self.unmarked().pop() else { return };
            // If marking fails, the thread will get the same error and report it.
            let mark = match self.shared.watch.mark_all(false) {
                Ok(Marked::At(mark)) => Some(mark),
                _ => None,
            };
            self.pass(slot, mark);
        }
    }

    fn unmarked(&self) -> MutexGuard<'_, Vec<T>> {
        self.unmarked.lock().expect("nothing panics while holding it")
    }
}

impl<W: Watch, T: Send + 'static> Keeper<T> for Handoff<W, T> {
    fn keep(&self, slot: T) {
        self.shared.open.fetch_add(1, SeqCst);
        self.unmarked().push(slot);
        if self.wanted.load(SeqCst) {
            self.mark();
        }
    }

    fn wanted(&self, wanted: bool) -> Result<()> {
        self.wanted.store(wanted, SeqCst);
        if wanted {
            self.mark();
        }
        self.shared.failed.lock().expect("nothing panics while holding it").clone().map_or(Ok(()), Err)
    }

    fn kept(&self) -> usize {
        self.shared.open.load(SeqCst)
    }

    fn waits_for_a_capture(&self) -> bool {
        self.shared.capturing.load(SeqCst)
    }

    fn idle_since(&self) -> Option<Instant> {
        let idle = *self.shared.idle.lock().expect("nothing panics while holding it");
        (self.kept() == 0).then_some(idle)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<W: Watch, T: Send + 'static> Drop for Handoff<W, T> {
    /// Runs after the loader and its last batch have been dropped. The thread ends once the devices
    /// have finished their work.
    fn drop(&mut self) {
        for slot in self.unmarked().drain(..) {
            let _ = self.kept.send((slot, None));
        }
    }
}

impl<W: Watch> Shared<W> {
    /// Records that a slot is no longer held.
    fn lands(&self) {
        *self.idle.lock().expect("nothing panics while holding it") = Instant::now();
        self.open.fetch_sub(1, SeqCst);
    }
}

struct Thread<W: Watch, T> {
    shared: Arc<Shared<W>>,
    comes: Receiver<ReturnedSlot<T, W::Mark>>,
    free: Sender<T>,
    kept: Vec<ReturnedSlot<T, W::Mark>>,
}

impl<W: Watch, T> Thread<W, T> {
    fn run(mut self) {
        let mut open = true;
        while open || !self.kept.is_empty() {
            let came = if self.kept.is_empty() {
                self.comes.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.comes.recv_timeout(POLL)
            };
            match came {
                Ok(kept) => self.kept.push(kept),
                Err(RecvTimeoutError::Timeout) => {}
                // Receiving from a closed channel returns immediately, so stop receiving and sleep
                // instead.
                Err(RecvTimeoutError::Disconnected) if open => open = false,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
            }
            self.look();
        }
    }

    /// Frees the slots whose marks have completed.
    fn look(&mut self) {
        let (mut at, mut capturing) = (0, false);
        while let Some((_, mark)) = self.kept.get_mut(at) {
            match waits(&self.shared.watch, mark) {
                Ok(waits) if waits != Waits::Over => {
                    capturing |= waits == Waits::ForACapture;
                    at += 1;
                }
                Ok(_) => {
                    let (slot, mark) = self.kept.remove(at);
                    mark.into_iter().for_each(|mark| self.shared.watch.recycle(mark));
                    self.shared.lands();
                    // If the loader is gone, sending fails and the slot is freed here.
                    let _ = self.free.send(slot);
                }
                // The device may still read the slot, so neither refill nor free it.
                Err(e) => {
                    let (slot, _) = self.kept.remove(at);
                    std::mem::forget(slot);
                    self.shared.failed.lock().expect("nothing panics while holding it").get_or_insert(e);
                }
            }
        }
        self.shared.capturing.store(capturing, SeqCst);
    }
}

#[derive(PartialEq)]
enum Waits {
    Over,
    ForADevice,
    ForACapture,
}

/// Checks the mark of a slot, or sets one if the slot has none.
fn waits<W: Watch>(watch: &W, mark: &mut Option<W::Mark>) -> Result<Waits> {
    if mark.is_none() {
        match watch.mark_all(true)? {
            Marked::At(new) => *mark = Some(new),
            Marked::Capturing => return Ok(Waits::ForACapture),
            Marked::Unable => return Ok(Waits::ForADevice),
        }
    }
    let over = mark.as_ref().map_or(Ok(false), |mark| watch.is_done(mark))?;
    Ok(if over { Waits::Over } else { Waits::ForADevice })
}

/// A stream on which the user's code uploads page-locked batches.
pub trait UploadStream {
    /// Returns `batch` to the loader once the work queued in the stream so far is done.
    #[doc(hidden)]
    fn release(&self, batch: HostBatch) -> Result<()>;
}

impl HostBatch {
    /// Returns the batch to the loader as soon as the work queued in `stream` so far is done.
    ///
    /// Batches in page-locked memory ([`Loader::pinned`](crate::Loader::pinned)) may be dropped at
    /// any time. The loader then waits in the background for all work submitted to any device. This
    /// method tells the loader which stream reads the batch, so the memory is reused as soon as the
    /// upload is done:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut batches = warpfeed::Loader::new("train").pinned(true).host()?;
    /// let stream = warpfeed::cuda::stream(0)?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    ///     let images = stream.clone_htod(batch.images().bytes())?;
    ///     batch.release_on(&stream)?;
    ///     // ... train on `images`
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A batch in pageable memory is returned immediately, because an upload from pageable memory
    /// blocks until the batch has been read.
    ///
    /// # Errors
    /// [`ErrorKind::Capturing`] if `stream` is being captured into a CUDA graph.
    /// [`ErrorKind::Cuda`] if a driver call fails. After an error, the batch is returned as if it
    /// had been dropped.
    #[cfg(feature = "_device")]
    pub fn release_on(self, stream: &impl UploadStream) -> Result<()> {
        stream.release(self)
    }
}

#[cfg(test)]
mod tests;
