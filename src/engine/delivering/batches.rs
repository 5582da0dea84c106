use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{BatchInfo, Course, Delivered, Feed, Wait, goes_on};
use crate::engine::state::{self, Checkpoint, LoaderHandle, SampleError, Shared};
use crate::error::{Error, ErrorKind, Result, counted, guarded, panicked};
use crate::source::BatchIndex;
use crate::trace::{self, Stats, WAIT};

/// Interval at which a waiting consumer checks whether another batch can still arrive.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// An open loader. Its workers run, and its buffers are allocated. [`epoch`](Batches::epoch)
/// delivers batches.
///
/// Dropping it stops the workers and joins their threads. Batches that you still hold stay valid.
/// It is `Send`, so another thread may take it over. It is not `Sync`: one thread at a time
/// requests batches.
///
/// It belongs to the process that opened it. After `fork`, the child has no worker threads: every
/// batch is an error there, and dropping the loader frees nothing.
pub struct Batches<B> {
    /// `None` in drop only.
    feed: Option<Box<dyn Feed<Batch = B>>>,
    info: fn(&B) -> &BatchInfo,
    monitor: LoaderHandle,
    process: u32,
    /// The epoch at which the loader was opened.
    first_epoch: u64,
    /// Position at which a resumed run continues. It has no effect later.
    resume: BatchIndex,
    /// Number of runs of the feed.
    runs: u64,
    /// Number of batches that the epoch in progress has yet to deliver.
    left: u64,
    /// What the next call returns, if a batch is left.
    next: Next,
    /// The last epoch that was delivered to its end.
    finished: Option<u64>,
    /// Time that earlier calls waited for the next batch before they gave up, if any did.
    given_up: Option<Duration>,
}

/// What the next call of an epoch in progress returns.
enum Next {
    /// The next batch of the feed.
    Batch,
    /// The same, but the run was started for an earlier epoch. If it ends here, this one is
    /// started.
    Prepared(Course),
    /// The batch after the one at the position, which failed.
    AfterFailed,
    /// This error. The epoch ends with it.
    Error(Error),
}

impl<B> Batches<B> {
    /// The batches of `feed`, from the position of `shared` on.
    pub(crate) fn new(feed: impl Feed<Batch = B> + 'static, shared: &Arc<Shared>) -> Self
    where
        B: Delivered,
    {
        let position = shared.position();
        Batches {
            feed: Some(Box::new(feed)),
            info: B::info,
            monitor: LoaderHandle(shared.clone()),
            process: std::process::id(),
            first_epoch: position.epoch,
            resume: position,
            runs: 0,
            left: 0,
            next: Next::Batch,
            finished: None,
            given_up: None,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.monitor.0
    }

    /// The feed, if this process opened it.
    fn feed(&mut self) -> Option<&mut dyn Feed<Batch = B>> {
        let here = std::process::id() == self.process;
        self.feed.as_deref_mut().filter(|_| here).map(|feed| feed as _)
    }

    /// Number of the batch with which [`epoch(epoch)`](Batches::epoch) begins: 0, or the saved
    /// batch in a [resumed](crate::Loader::resume) loader. `None` for an epoch before the saved
    /// one.
    pub fn first_batch(&self, epoch: u64) -> Option<u64> {
        let saved = self.resume;
        match epoch.cmp(&saved.epoch) {
            // Its batches were delivered before.
            Ordering::Less => None,
            Ordering::Equal => Some(saved.batch),
            Ordering::Greater => Some(0),
        }
    }

    /// Begins epoch `epoch` like [`epoch`](Batches::epoch), for iterators that cannot borrow the
    /// loader, such as those of other languages. [`next`](Batches::next) returns the batches. Ends
    /// the epoch in progress.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use warpfeed::{Augment, Loader};
    ///
    /// # fn main() -> warpfeed::Result<()> {
    /// # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
    /// let loader = Loader::new("datasets/mini").augment(Augment::train(64)).batch_size(16);
    /// let mut batches = loader.host()?;
    /// let mut samples = 0;
    /// for epoch in 0..2 {
    ///     batches.begin(epoch);
    ///     while let Some(batch) = batches.next(&mut || Some(Duration::from_millis(50))) {
    ///         samples += batch?.len();
    ///     }
    /// }
    /// assert_eq!(samples, 2 * batches.source_len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&mut self, epoch: u64) {
        match self.first_batch(epoch) {
            None => self.end(),
            Some(first) => self.begin_from(epoch, first),
        }
    }

    /// Number of batches that the epoch in progress has yet to deliver. One that failed counts until
    /// the next is requested.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Begins epoch `epoch` at batch `first` like [`epoch_from`](Batches::epoch_from). Ends the epoch
    /// in progress.
    pub fn begin_from(&mut self, epoch: u64, first: u64) {
        self.resume = BatchIndex::default();
        let first = self.start(epoch, first);
        // After `fork`, no lock of the parent may be taken.
        if self.feed().is_none() {
            return;
        }
        self.reach(BatchIndex { epoch, batch: first });
    }

    /// Begins `epoch` at batch `first`, or at the end of the epoch if that comes before. The feed
    /// continues if this is what it prepares, and starts again otherwise. Returns the number of the
    /// first batch.
    pub(super) fn start(&mut self, epoch: u64, first: u64) -> u64 {
        self.end();
        let end = match state::batches(&self.shared().schedule, epoch).and_then(|end| self.check().and(Ok(end))) {
            Ok(end) => end,
            Err(e) => {
                self.stop();
                (self.left, self.next) = (1, Next::Error(e));
                return first;
            }
        };
        let first = BatchIndex { epoch, batch: first.min(end) };
        self.left = end - first.batch;
        let ahead = self.feed().is_some_and(|feed| feed.at() == Some(first)) && self.is_unchanged();
        tracing::debug!(epoch, first = first.batch, end, ahead, "epoch begins");
        if !ahead {
            self.stop();
        }
        if self.feed().is_some() {
            self.shared().run.begin();
        }
        if self.left > 0 {
            let course = self.course(first);
            if ahead {
                self.next = Next::Prepared(course);
            } else if let Some(feed) = self.feed() {
                feed.start(course);
            }
        }
        first.batch
    }

    /// A run that begins with the batches that are left, from `first` on.
    fn course(&mut self, first: BatchIndex) -> Course {
        self.runs += 1;
        let (batches, again) = (first.batch + self.left, self.finished == Some(first.epoch));
        Course { run: self.runs, first, batches, again, epochs: self.shared().epochs }
    }

    /// Checks the source.
    fn check(&mut self) -> Result<()> {
        // After `fork`, no lock of the parent may be taken.
        if self.feed().is_none() {
            return Ok(());
        }
        guarded(|| self.shared().recipe.reads.check())
            .map_err(|e| panicked(e, || "the source panicked when it was checked".to_owned()))
    }

    /// Whether the source still has the samples that were prepared ahead.
    fn is_unchanged(&mut self) -> bool {
        self.feed().is_some() && guarded(|| Ok(self.shared().recipe.reads.is_unchanged())).unwrap_or(false)
    }

    /// Ends the epoch in progress, and discards its batches that were made ahead. After the last
    /// batch of an epoch, those of the next one stay.
    pub fn end(&mut self) {
        let is_over = self.left == 0;
        (self.left, self.next, self.given_up) = (0, Next::Batch, None);
        // After `fork`, no lock of the parent may be taken.
        if self.feed().is_some() {
            self.shared().run.end();
        }
        if !is_over {
            self.stop();
        }
    }

    /// Discards all batches that were made ahead.
    fn stop(&mut self) {
        if let Some(feed) = self.feed() {
            feed.stop();
        }
    }

    /// Moves the position to `next`, or to the start of the next epoch after the last batch of an
    /// epoch.
    fn reach(&self, next: BatchIndex) {
        let epoch = next.epoch.saturating_add(1);
        self.shared().reach(if self.left > 0 { next } else { BatchIndex { epoch, batch: 0 } });
    }

    /// Moves the position past its batch. Returns the place of the next one.
    fn pass(&mut self) -> BatchIndex {
        let BatchIndex { epoch, batch } = self.shared().position();
        let next = BatchIndex { epoch, batch: batch + 1 };
        self.left -= 1;
        if self.left == 0 {
            self.finished = Some(epoch);
        }
        self.reach(next);
        next
    }

    /// The next batch of the epoch in progress. `None` after its last batch, without an epoch, and
    /// if `idle` gave up.
    ///
    /// `idle` is called before each wait and returns its maximum length, for example to check for
    /// signals in between. `None` gives up: the batch is not lost, and the next call continues to
    /// wait for it.
    ///
    /// # Errors
    /// The errors of [`Epoch`](crate::Epoch), which says how to go on after each.
    pub fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        // After `fork`, no lock of the parent may be taken.
        if matches!(self.next, Next::AfterFailed) && self.feed().is_some() {
            self.next = Next::Batch;
            let first = self.pass();
            if self.left > 0 {
                let course = self.course(first);
                self.feed()?.start(course);
            }
        }
        if self.left == 0 {
            // From here on, time belongs to the program, although the epoch still exists.
            if self.feed().is_some() {
                self.shared().run.end();
            }
            return None;
        }
        let batch = self.receive(idle)?;
        match (&batch, &self.next) {
            (Ok(_), _) => {
                let next = self.pass();
                if self.left > 0 && self.feed.as_ref()?.at() != Some(next) {
                    self.stop();
                    self.next = Next::Error(other_length(next, self.left));
                }
            }
            // The position stays at the batch that failed, until the program asks for the one after
            // it.
            (Err(_), Next::AfterFailed) => self.stop(),
            (Err(e), Next::Batch | Next::Prepared(_)) if goes_on(e) => {}
            // Any other error ends the epoch. The position stays at the batch that failed.
            (Err(_), _) => {
                self.left = 0;
                self.stop();
            }
        }
        Some(batch)
    }

    /// The next batch of the feed; `None` if `idle` gives up. Counts the request, the batch and the
    /// consumer's wait.
    pub(super) fn receive(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        if let Next::Error(e) = &self.next {
            return Some(Err(e.clone()));
        }
        if let Err(e) = state::check_process("loader", self.process) {
            return Some(Err(e));
        }
        let Batches { feed: Some(feed), monitor: LoaderHandle(shared), left, next, given_up, .. } = self else {
            unreachable!("the feed leaves in drop only")
        };
        let _range = trace::range(WAIT);
        let since = match *given_up {
            None => shared.run.counters.asked(feed.ready()),
            Some(before) => Instant::now().checked_sub(before).unwrap_or_else(Instant::now),
        };
        let mut wait = Wait::new(since, given_up.is_some(), idle);
        // The position does not follow a measurement, so it may be that of another batch.
        let mut place = feed.at();
        let mut came = feed.next(&mut wait);
        if let (None, false, Next::Prepared(course)) = (&came, wait.given_up, &next) {
            // The epoch could not be prepared. It can be now, or `start` would have failed.
            feed.start(*course);
            (place, *next) = (feed.at(), Next::Batch);
            came = feed.next(&mut wait);
        }
        *given_up = wait.given_up.then(|| since.elapsed());
        let batch = match came {
            Some(batch) => batch,
            None if wait.given_up => return None,
            None => {
                let cause =
                    format!("the epoch ended {} early; open the loader again", counted(*left, "batch", "batches"));
                Err(Error::new(ErrorKind::Panic, cause))
            }
        };
        let place = place.unwrap_or_default();
        // An error of a sample fails its batch. All other errors end the epoch.
        let of_samples = batch.as_ref().map_or_else(|e| !e.failed().is_empty(), |_| true);
        let batch = match batch {
            Ok(batch) => shared.skip(place, (self.info)(&batch).failed()).map(|()| batch),
            Err(e) => Err(shared.skip(place, e.failed().iter().map(|(sample, e)| (*sample, e))).err().unwrap_or(e)),
        };
        match &batch {
            Ok(batch) => {
                *next = Next::Batch;
                shared.run.delivered((self.info)(batch), feed.held_up_since(since));
            }
            Err(_) if of_samples => *next = Next::AfterFailed,
            Err(_) => {}
        }
        Some(batch)
    }

    /// Moves the loader to the position of `state`, like [`Loader::resume`](crate::Loader::resume).
    /// This takes effect when the next epoch begins. Ends the epoch in progress.
    ///
    /// # Errors
    /// The errors of [`Loader::resume`](crate::Loader::resume). The position then does not change.
    pub fn resume(&mut self, state: &Checkpoint) -> Result<()> {
        self.end();
        let position = self.place(state)?;
        (self.resume, self.first_epoch) = (position, position.epoch);
        self.shared().reach(position);
        Ok(())
    }

    /// Checks that [`resume`](Batches::resume) would accept `state`. Nothing changes, and the epoch
    /// in progress goes on.
    ///
    /// # Errors
    /// The errors of [`Loader::resume`](crate::Loader::resume).
    pub fn fits(&self, state: &Checkpoint) -> Result<()> {
        self.place(state).map(drop)
    }

    /// Position at which the loader would continue from `state`.
    fn place(&self, state: &Checkpoint) -> Result<BatchIndex> {
        let Shared { recipe, run, schedule, .. } = self.shared();
        state.check(recipe, &run.counters, schedule)
    }

    /// The first epoch to run: that of the checkpoint after [`resume`](crate::Loader::resume), else
    /// 0.
    ///
    /// ```no_run
    /// # fn main() -> warpfeed::Result<()> {
    /// # let (loader, saved) = (warpfeed::Loader::new("train"), None);
    /// # let (train_step, save) = (|_| (), |_| ());
    /// let loader = match saved {
    ///     Some(checkpoint) => loader.resume(checkpoint),
    ///     None => loader,
    /// };
    /// let mut batches = loader.host()?;
    /// for epoch in batches.first_epoch()..90 {
    ///     let mut epoch = batches.epoch(epoch);
    ///     while let Some(batch) = epoch.next() {
    ///         train_step(batch?);
    ///         save(epoch.checkpoint()); // together with the model
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn first_epoch(&self) -> u64 {
        self.first_epoch
    }

    /// A handle for use while batches are taken; see [`LoaderHandle`].
    pub fn handle(&self) -> LoaderHandle {
        self.monitor.clone()
    }

    /// The position of the run. [`Loader::resume`](crate::Loader::resume) continues with the first
    /// batch that was not delivered. A batch is delivered once `next` has returned it, so save the
    /// checkpoint together with the model that was trained on that batch.
    ///
    /// The first call reads eight samples. Later calls read nothing. An [`Epoch`](crate::Epoch)
    /// dereferences to its loader, so `epoch.checkpoint()` works inside an epoch.
    pub fn checkpoint(&self) -> Checkpoint {
        self.monitor.checkpoint()
    }

    /// Statistics of the loader so far, by stage. [`Stats::verdict`] says what limits it.
    pub fn stats(&self) -> Stats {
        self.monitor.stats()
    }

    /// The samples that were skipped so far, in order of their first failure. Each is listed once,
    /// with the epoch and batch of that failure and its cause; see
    /// [`OnError::Skip`](crate::OnError::Skip). The list has at most `max_skipped` + 1 entries.
    pub fn sample_errors(&self) -> Vec<SampleError> {
        self.monitor.sample_errors()
    }
}

#[cfg(feature = "_device")]
impl<G: crate::device::Gpu> Batches<crate::device::DeviceBatch<G>> {
    /// Memory use of the device, and data sent there.
    pub fn device_stats(&self) -> crate::device::DeviceStats {
        self.shared().device.get().expect("batches on a device have a ring").stats()
    }
}

/// The error of an epoch that was prepared with `next.batch` batches, although `left` more follow.
fn other_length(next: BatchIndex, left: u64) -> Error {
    let BatchIndex { epoch, batch } = next;
    let began = batch + left;
    Error::config(format!(
        "the order gave epoch {epoch} another number of batches when it was prepared, {batch}, than when it began, {began}; an order must \
         return the same answer at any time"
    ))
}

impl<B> Drop for Batches<B> {
    fn drop(&mut self) {
        if self.feed().is_none() {
            // Its threads do not exist here, and they may have held its locks at the time of
            // `fork`.
            std::mem::forget(self.feed.take());
            return;
        }
        self.end();
        drop(self.feed.take());
        // A monitor may keep the counters alive, so dropping them would not end the trace.
        self.shared().run.counters.end_trace();
    }
}

impl<B> fmt::Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("source", &self.shared().recipe.source.kind())
            .field("plan", &self.memory_plan())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use crate::Loader;
    use crate::source::{Memory, OwnedSample};

    /// In a forked child, a lock that another thread of the parent held stays locked.
    #[test]
    fn a_forked_child_takes_no_lock() {
        let samples = (0..8).map(|n| OwnedSample::new(n.to_string()).field("x.json", "1")).collect();
        let loader = Loader::source(Memory::new(samples)).drop_field("image").drop_field("label");
        let loader = loader.field("x", crate::field::NdArray::new(crate::Dtype::F32, [])).batch_size(2).workers(1);
        let (done, came) = channel();
        std::thread::spawn(move || {
            let mut batches = loader.host().unwrap();
            assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 4);
            let shared = batches.monitor.0.clone();
            let held = (shared.at.lock().unwrap(), shared.faults.lock().unwrap());
            batches.process += 1;
            assert!(batches.epoch(1).next().is_some_and(|batch| batch.is_err()));
            assert!(batches.epoch_from(1, 2).next().is_some_and(|batch| batch.is_err()));
            batches.end();
            batches.process -= 1;
            drop(held);
            done.send(batches.epoch(2).filter(|batch| batch.is_ok()).count()).unwrap();
        });
        let came = came.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(came, Ok(4), "the thread waits for a lock, or failed");
    }
}
