//! Keeps page-locked host slots from being reused while a device may still be reading them.
//!
//! Safe code can start an asynchronous upload from page-locked memory on any stream, and drop the
//! batch immediately. The loader cannot know which stream is still reading the slot. So it reuses
//! the slot only once the devices have finished all work that was submitted before the drop:
//!
//! ```text
//! drop(batch) ──► unmarked ──(next() marks)──► marked ──(done)──► free
//! release_on(stream) ─────────────────────────────┘
//! ```
//!
//! A mark is one event per device, recorded after all work submitted to that device so far. (The
//! mark of `release_on` is one event on one stream.) Recording could disturb a CUDA graph capture,
//! so a drop records the events only if the consumer is already waiting in `next()`. Otherwise, the
//! next call of `next()` records them. If the loader is dropped before such a call, or if a capture
//! prevents recording, a separate thread records them later. This thread also checks the marks, so
//! neither the consumer nor a worker waits for a device.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::batch::{HostBatch, SlotReclaimer};
use crate::error::{Error, ErrorKind, Result};

const POLL_INTERVAL: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(crate) enum Marked<M> {
    At(M),
    Capturing,
    /// The driver cannot set marks, and blocking was not allowed.
    Unable,
}

pub(crate) trait Marker: Send + Sync + 'static {
    type Mark: Send;

    /// Marks all work that has been submitted to any device so far. May block only if `block` is
    /// true.
    fn mark_all(&self, block: bool) -> Result<Marked<Self::Mark>>;
    fn is_done(&self, mark: &Self::Mark) -> Result<bool>;
    fn recycle(&self, mark: Self::Mark);
}

type ReturnedSlot<T, M> = (T, Option<M>);

/// Keeps slots of type `T` from being reused until no device can be reading them.
pub(crate) struct Handoff<W: Marker, T: Send + 'static> {
    shared: Arc<Shared<W>>,
    unmarked_slots: Mutex<Vec<T>>,
    /// Whether the consumer is waiting for a batch. If so, a slot is marked as soon as its batch is
    /// dropped.
    is_waiting: AtomicBool,
    returned: Sender<ReturnedSlot<T, W::Mark>>,
    free: Sender<T>,
}

struct Shared<W> {
    marker: W,
    open_slots: AtomicUsize,
    idle_start: Mutex<Instant>,
    /// Whether a slot cannot be marked until a capture ends.
    is_capturing: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl<W: Marker, T: Send + 'static> Handoff<W, T> {
    /// Starts the thread, which sends slots to `free` once their marks have completed.
    pub(crate) fn new(marker: W, free: Sender<T>) -> Result<Self> {
        let idle_start = Mutex::new(Instant::now());
        let shared = Arc::new(Shared {
            marker,
            open_slots: AtomicUsize::new(0),
            idle_start,
            is_capturing: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let (sender, returned) = unbounded();
        let thread = Thread { shared: shared.clone(), returned, free: free.clone(), pending_slots: Vec::new() };
        std::thread::Builder::new().name("warpfeed-pinned".into()).spawn(move || thread.run()).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot start the thread that holds page-locked batches: {e}"))
        })?;
        Ok(Handoff {
            shared,
            unmarked_slots: Mutex::default(),
            is_waiting: AtomicBool::new(false),
            returned: sender,
            free,
        })
    }

    pub(crate) fn marker(&self) -> &W {
        &self.shared.marker
    }

    /// Frees `slot` once `mark` has completed. If `mark` is `None`, the thread sets one as soon as
    /// it can.
    pub(crate) fn keep_until(&self, slot: T, mark: Option<W::Mark>) {
        self.shared.open_slots.fetch_add(1, SeqCst);
        self.hand_to_thread(slot, mark);
    }

    fn hand_to_thread(&self, slot: T, mark: Option<W::Mark>) {
        let mark = match mark {
            Some(mark) if matches!(self.shared.marker.is_done(&mark), Ok(true)) => {
                self.shared.marker.recycle(mark);
                self.shared.count_freed();
                return drop(self.free.send(slot));
            }
            mark => mark,
        };
        let _ = self.returned.send((slot, mark));
    }

    fn mark_slots(&self) {
        // Do not hold the lock during driver calls.
        loop {
            let Some(slot) = self.unmarked_slots().pop() else { return };
            // If this fails, the thread tries again, and reports an error if it also fails.
            let mark = match self.shared.marker.mark_all(false) {
                Ok(Marked::At(mark)) => Some(mark),
                _ => None,
            };
            self.hand_to_thread(slot, mark);
        }
    }

    fn unmarked_slots(&self) -> MutexGuard<'_, Vec<T>> {
        self.unmarked_slots.lock().expect("no code panics while holding this lock")
    }
}

impl<W: Marker, T: Send + 'static> SlotReclaimer<T> for Handoff<W, T> {
    fn reclaim(&self, slot: T) {
        self.shared.open_slots.fetch_add(1, SeqCst);
        self.unmarked_slots().push(slot);
        if self.is_waiting.load(SeqCst) {
            self.mark_slots();
        }
    }

    fn set_waiting(&self, is_waiting: bool) -> Result<()> {
        self.is_waiting.store(is_waiting, SeqCst);
        if is_waiting {
            self.mark_slots();
        }
        self.shared.failure.lock().expect("no code panics while holding this lock").clone().map_or(Ok(()), Err)
    }

    fn pending_slots(&self) -> usize {
        self.shared.open_slots.load(SeqCst)
    }

    fn is_blocked_by_capture(&self) -> bool {
        self.shared.is_capturing.load(SeqCst)
    }

    fn idle_since(&self) -> Option<Instant> {
        let idle_start = *self.shared.idle_start.lock().expect("no code panics while holding this lock");
        (self.pending_slots() == 0).then_some(idle_start)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<W: Marker, T: Send + 'static> Drop for Handoff<W, T> {
    /// Sends the slots without a mark to the thread, which ends once it has freed all its slots.
    fn drop(&mut self) {
        for slot in self.unmarked_slots().drain(..) {
            let _ = self.returned.send((slot, None));
        }
    }
}

impl<W: Marker> Shared<W> {
    fn count_freed(&self) {
        *self.idle_start.lock().expect("no code panics while holding this lock") = Instant::now();
        self.open_slots.fetch_sub(1, SeqCst);
    }
}

struct Thread<W: Marker, T> {
    shared: Arc<Shared<W>>,
    returned: Receiver<ReturnedSlot<T, W::Mark>>,
    free: Sender<T>,
    pending_slots: Vec<ReturnedSlot<T, W::Mark>>,
}

impl<W: Marker, T> Thread<W, T> {
    fn run(mut self) {
        let mut is_open = true;
        while is_open || !self.pending_slots.is_empty() {
            let result = if self.pending_slots.is_empty() {
                self.returned.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.returned.recv_timeout(POLL_INTERVAL)
            };
            match result {
                Ok(slot) => self.pending_slots.push(slot),
                Err(RecvTimeoutError::Timeout) => {}
                // Sleep from now on, because receiving from a closed channel returns immediately.
                Err(RecvTimeoutError::Disconnected) if is_open => is_open = false,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
            }
            self.check_marks();
        }
    }

    fn check_marks(&mut self) {
        let (mut index, mut is_capturing) = (0, false);
        while let Some((_, mark)) = self.pending_slots.get_mut(index) {
            match wait_state(&self.shared.marker, mark) {
                Ok(state) if state != WaitState::Over => {
                    is_capturing |= state == WaitState::ForACapture;
                    index += 1;
                }
                Ok(_) => {
                    let (slot, mark) = self.pending_slots.remove(index);
                    mark.into_iter().for_each(|mark| self.shared.marker.recycle(mark));
                    self.shared.count_freed();
                    // If the loader has been dropped, the send fails, and `slot` is freed here.
                    let _ = self.free.send(slot);
                }
                // Neither reuse nor free the slot, because the device may still be reading it.
                Err(e) => {
                    let (slot, _) = self.pending_slots.remove(index);
                    std::mem::forget(slot);
                    self.shared.failure.lock().expect("no code panics while holding this lock").get_or_insert(e);
                }
            }
        }
        self.shared.is_capturing.store(is_capturing, SeqCst);
    }
}

#[derive(PartialEq)]
enum WaitState {
    Over,
    ForADevice,
    ForACapture,
}

/// Returns what a slot is waiting for. Sets the mark first if it is missing.
fn wait_state<W: Marker>(marker: &W, mark: &mut Option<W::Mark>) -> Result<WaitState> {
    if mark.is_none() {
        match marker.mark_all(true)? {
            Marked::At(new_mark) => *mark = Some(new_mark),
            Marked::Capturing => return Ok(WaitState::ForACapture),
            Marked::Unable => return Ok(WaitState::ForADevice),
        }
    }
    let is_done = mark.as_ref().map_or(Ok(false), |mark| marker.is_done(mark))?;
    Ok(if is_done { WaitState::Over } else { WaitState::ForADevice })
}

/// A stream on which a program uploads batches from page-locked memory.
pub trait UploadStream {
    /// Returns `batch` to the loader once the work that has been queued in the stream so far is
    /// done.
    #[doc(hidden)]
    fn release(&self, batch: HostBatch) -> Result<()>;
}

impl HostBatch {
    /// Returns the batch to the loader once the work that has been queued in `stream` so far is
    /// done.
    ///
    /// A batch in page-locked memory ([`Loader::pinned`](crate::Loader::pinned)) may be dropped at
    /// any time, but then its memory is reused only after all devices have finished all work
    /// submitted before the drop. If you name the stream that reads the batch, the loader waits
    /// only for the work in that stream:
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
    /// A batch in pageable memory is returned immediately: an upload from pageable memory blocks
    /// until the batch has been read.
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
