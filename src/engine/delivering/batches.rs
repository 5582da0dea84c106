//! The open loader, which delivers batches to the program.
//!
//! `Batches` starts and stops runs, and tracks the position. The batches come from a [`Feed`],
//! which is the engine or the ring of a device. *Cursors of a run* and *States of an epoch* in
//! `engine/README.md` explain how.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{BatchInfo, Delivered, Feed, ReleaseDeferred, RunPlan, Wait, is_recoverable};
use crate::engine::state::{self, Checkpoint, LoaderHandle, SampleError, Shared};
use crate::error::{Error, ErrorKind, Result, counted, guarded, panicked};
use crate::sampler::UpdatableOrder;
use crate::source::BatchIndex;
use crate::trace::{self, BATCH_WAIT, Stats};

/// Interval at which a waiting consumer checks whether its batch can still arrive.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An open loader, with running workers and allocated buffers. [`epoch`](Batches::epoch) iterates
/// over the batches of an epoch.
///
/// Dropping the loader stops the workers and joins their threads. Batches that you still hold stay
/// valid. A loader is `Send` but not `Sync`: it can be moved to a different thread, but only one
/// thread at a time can request batches.
///
/// A loader belongs to the process that opened it. After `fork`, every batch fails in the child
/// process, which has no worker threads, and dropping the child's copy frees nothing.
pub struct Batches<B> {
    /// `None` only while the loader is being dropped.
    feed: Option<Box<dyn Feed<Batch = B>>>,
    info: fn(&B) -> &BatchInfo,
    handle: LoaderHandle,
    process: u32,
    first_epoch: u64,
    /// Position at which a resumed loader continues. Reset when an epoch begins.
    resume_start: BatchIndex,
    run_count: u64,
    pub(super) batches_left: u64,
    /// What the next call to `next_interruptible` does. Unused once the epoch has no batches left.
    pub(super) next_step: NextStep,
    /// The last epoch that was delivered completely.
    finished_epoch: Option<u64>,
    /// Time that interrupted calls have already waited for the next batch.
    earlier_wait: Option<Duration>,
}

/// What [`Batches::next_interruptible`] does while an epoch is in progress.
pub(super) enum NextStep {
    Batch,
    /// Returns the next batch of a run that began in an earlier epoch. If that run has ended,
    /// starts a run with this plan instead.
    Prepared(RunPlan),
    /// Skips the failed batch at the current position.
    AfterFailed,
    Error(Error),
}

impl<B> Batches<B> {
    /// Delivers the batches of `feed`, starting at the position in `shared`.
    pub(crate) fn new(feed: impl Feed<Batch = B> + 'static, shared: &Arc<Shared>) -> Self
    where
        B: Delivered,
    {
        let position = shared.position();
        Batches {
            feed: Some(Box::new(feed)),
            info: B::info,
            handle: LoaderHandle(shared.clone()),
            process: std::process::id(),
            first_epoch: position.epoch,
            resume_start: position,
            run_count: 0,
            batches_left: 0,
            next_step: NextStep::Batch,
            finished_epoch: None,
            earlier_wait: None,
        }
    }

    /// See [`Feed::deferred_release`].
    pub(crate) fn deferred_release(&self) -> Option<ReleaseDeferred> {
        self.feed.as_ref()?.deferred_release()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.handle.0
    }

    pub(super) fn check_process(&self) -> Result<()> {
        state::check_process("loader", self.process)
    }

    /// Returns the feed, or `None` in a forked child, where the feed's threads do not exist, and
    /// where locks that the parent's threads held stay locked.
    pub(super) fn feed(&mut self) -> Option<&mut dyn Feed<Batch = B>> {
        let is_this_process = std::process::id() == self.process;
        self.feed.as_deref_mut().filter(|_| is_this_process).map(|feed| feed as _)
    }

    /// Returns the index of the first batch that [`epoch(epoch)`](Batches::epoch) delivers: 0, or
    /// the saved batch for the saved epoch of a [resumed](crate::Loader::resume) loader. Returns
    /// `None` for epochs before the saved epoch, until the saved epoch or a later one has begun, or
    /// [`epoch_from`](Batches::epoch_from) has been called.
    pub fn first_batch(&self, epoch: u64) -> Option<u64> {
        let start = self.resume_start;
        match epoch.cmp(&start.epoch) {
            Ordering::Less => None,
            Ordering::Equal => Some(start.batch),
            Ordering::Greater => Some(0),
        }
    }

    /// Ends the epoch in progress, and begins `epoch`. Request the batches of the epoch with
    /// [`next_interruptible`](Batches::next_interruptible). Unlike [`epoch`](Batches::epoch), this
    /// method does not borrow the loader, so iterators in other languages can use it.
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
    ///     while let Some(batch) = batches.next_interruptible(&mut || Some(Duration::from_millis(50))) {
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

    /// Returns the number of batches that the epoch in progress has not delivered yet, or 0 after
    /// an error that ends the epoch. A failed batch counts until the next batch is requested. If
    /// the epoch cannot begin, the number is 1 until the error has been returned.
    pub fn remaining(&self) -> u64 {
        self.batches_left
    }

    /// Ends the epoch in progress, and begins `epoch` at batch `first`; see
    /// [`epoch_from`](Batches::epoch_from).
    pub fn begin_from(&mut self, epoch: u64, first: u64) {
        self.resume_start = BatchIndex::default();
        let first = self.start(epoch, first);
        if self.feed().is_none() {
            return;
        }
        self.move_to(BatchIndex { epoch, batch: first });
    }

    /// Begins `epoch` at batch `first`, or at the end of the epoch if `first` is too large. Returns
    /// the index of the first batch. If the epoch cannot begin, the next request for a batch
    /// returns the error.
    pub(super) fn start(&mut self, epoch: u64, first: u64) -> u64 {
        self.end();
        let batch_count = match state::count_batches(&self.shared().schedule, epoch)
            .and_then(|batch_count| self.check_source().and(Ok(batch_count)))
        {
            Ok(batch_count) => batch_count,
            Err(e) => {
                self.stop();
                (self.batches_left, self.next_step) = (1, NextStep::Error(e));
                return first;
            }
        };
        let first = BatchIndex { epoch, batch: first.min(batch_count) };
        self.batches_left = batch_count - first.batch;
        let is_prepared = self.feed().is_some_and(|feed| feed.position() == Some(first)) && self.is_source_unchanged();
        let is_prepared = is_prepared & !self.shared().take_outdated();
        tracing::debug!(epoch, first = first.batch, end = batch_count, ahead = is_prepared, "epoch begins");
        if !is_prepared {
            self.stop();
        }
        if self.feed().is_some() {
            self.shared().runtime.begin();
        }
        if self.batches_left > 0 {
            let run_plan = self.plan_run(first);
            if is_prepared {
                self.next_step = NextStep::Prepared(run_plan);
            } else if let Some(feed) = self.feed() {
                feed.start(run_plan);
            }
        }
        first.batch
    }

    pub(super) fn plan_run(&mut self, first: BatchIndex) -> RunPlan {
        self.run_count += 1;
        let (batch_count, repeats_epoch) = (first.batch + self.batches_left, self.finished_epoch == Some(first.epoch));
        RunPlan { run: self.run_count, first, batch_count, repeats_epoch, epoch_limit: self.shared().epoch_limit }
    }

    /// Makes the source, which may be user code, check its files.
    fn check_source(&mut self) -> Result<()> {
        if self.feed().is_none() {
            return Ok(());
        }
        guarded(|| self.shared().recipe.read_source.check())
            .map_err(|e| panicked(e, || "the source panicked when it was checked".to_owned()))
    }

    fn is_source_unchanged(&mut self) -> bool {
        self.feed().is_some() && guarded(|| Ok(self.shared().recipe.read_source.is_unchanged())).unwrap_or(false)
    }

    /// Ends the epoch in progress and discards its prefetched batches. Batches that were prepared
    /// for the next epoch remain if the epoch was delivered to its end.
    pub fn end(&mut self) {
        let is_over = self.batches_left == 0;
        (self.batches_left, self.next_step, self.earlier_wait) = (0, NextStep::Batch, None);
        if self.feed().is_some() {
            self.shared().runtime.end();
        }
        if !is_over {
            self.stop();
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(feed) = self.feed() {
            feed.stop();
        }
    }

    /// Moves the position to `position`, or to the next epoch if the current one is over.
    fn move_to(&self, position: BatchIndex) {
        let epoch = position.epoch.saturating_add(1);
        self.shared().set_position(if self.batches_left > 0 { position } else { BatchIndex { epoch, batch: 0 } });
    }

    fn finish_batch(&mut self) -> BatchIndex {
        let BatchIndex { epoch, batch } = self.shared().position();
        let position = BatchIndex { epoch, batch: batch + 1 };
        self.batches_left -= 1;
        if self.batches_left == 0 {
            self.finished_epoch = Some(epoch);
        }
        self.move_to(position);
        position
    }

    /// Returns the next batch of the epoch in progress. Returns `None` after the last batch, if no
    /// epoch is in progress, or if `idle` returned `None`.
    ///
    /// `idle` is called before each wait, so that the caller can check for signals. It returns the
    /// maximum duration of that wait, or `None` to stop waiting. The next call continues to wait
    /// for the same batch.
    ///
    /// # Errors
    /// See [`Epoch`](crate::Epoch), which explains how to continue after each error.
    pub fn next_interruptible(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        if matches!(self.next_step, NextStep::AfterFailed) && self.feed().is_some() {
            self.next_step = NextStep::Batch;
            let first = self.finish_batch();
            if self.batches_left > 0 {
                let run_plan = self.plan_run(first);
                self.feed()?.start(run_plan);
            }
        }
        if self.batches_left > 0
            && self.feed().is_some()
            && matches!(self.next_step, NextStep::Batch | NextStep::Prepared(_))
        {
            self.restart_if_changed();
        }
        if self.batches_left == 0 {
            // Stop the clock here, because the program may keep the `Epoch` longer.
            if self.feed().is_some() {
                self.shared().runtime.end();
            }
            return None;
        }
        let batch = self.receive(idle)?;
        let is_this_process = self.feed().is_some();
        match (&batch, &self.next_step) {
            (Ok(_), _) => {
                let position = self.finish_batch();
                if self.batches_left > 0 && self.feed.as_ref()?.position() != Some(position) {
                    self.stop();
                    self.next_step = NextStep::Error(changed_length_error(position, self.batches_left));
                }
            }
            // The position stays at the failed batch until the program requests the next batch.
            (Err(_), NextStep::AfterFailed) if is_this_process => self.stop(),
            (Err(e), NextStep::Batch | NextStep::Prepared(_)) if is_recoverable(e) => {}
            (Err(_), _) => {
                self.batches_left = 0;
                self.stop();
            }
        }
        Some(batch)
    }

    /// Receives the next batch, and records its failures and statistics, without moving the
    /// position. Returns `None` if `idle` returns `None`.
    pub(super) fn receive(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        if let NextStep::Error(e) = &self.next_step {
            return Some(Err(e.clone()));
        }
        if let Err(e) = self.check_process() {
            return Some(Err(e));
        }
        let Batches {
            feed: Some(feed),
            handle: LoaderHandle(shared),
            batches_left: remaining_batches,
            next_step,
            earlier_wait,
            ..
        } = self
        else {
            unreachable!("only drop takes the feed")
        };
        let _range = trace::range(BATCH_WAIT);
        let wait_start = match *earlier_wait {
            None => shared.runtime.counters.record_request(feed.ready()),
            Some(previous_wait) => Instant::now().checked_sub(previous_wait).unwrap_or_else(Instant::now),
        };
        let mut wait = Wait::new(wait_start, earlier_wait.is_some(), idle);
        // Take the index from the feed, because `replay` does not move the loader's own position.
        let mut index = feed.position();
        let mut result = feed.next(&mut wait);
        if let (None, false, NextStep::Prepared(run_plan)) = (&result, wait.given_up, &next_step) {
            // The earlier run ended before this epoch. `start` has checked the epoch, so a new run
            // can begin.
            feed.start(*run_plan);
            (index, *next_step) = (feed.position(), NextStep::Batch);
            result = feed.next(&mut wait);
        }
        *earlier_wait = wait.given_up.then(|| wait_start.elapsed());
        let batch = match result {
            Some(batch) => batch,
            None if wait.given_up => return None,
            None => {
                let cause = format!(
                    "the epoch ended {} early; open the loader again",
                    counted(*remaining_batches, "batch", "batches")
                );
                Err(Error::new(ErrorKind::Panic, cause))
            }
        };
        let index = index.unwrap_or_default();
        // Errors of samples affect only their batch.
        let are_samples_at_fault = batch.as_ref().map_or_else(|e| !e.failed().is_empty(), |_| true);
        let batch = match batch {
            Ok(batch) => shared.record_failures(index, (self.info)(&batch).failed()).map(|()| batch),
            Err(e) => {
                Err(shared.record_failures(index, e.failed().iter().map(|(sample, e)| (*sample, e))).err().unwrap_or(e))
            }
        };
        match &batch {
            Ok(batch) => {
                *next_step = NextStep::Batch;
                shared.runtime.record_delivery((self.info)(batch), feed.delayed_since(wait_start));
            }
            Err(_) if are_samples_at_fault => *next_step = NextStep::AfterFailed,
            Err(_) => {}
        }
        Some(batch)
    }

    /// Moves the loader to the position of `state`, like [`Loader::resume`](crate::Loader::resume).
    /// Ends the epoch in progress. The new position takes effect when the next epoch begins.
    ///
    /// # Errors
    /// See [`Loader::resume`](crate::Loader::resume). An error ends the epoch, but keeps the
    /// position.
    pub fn resume(&mut self, state: &Checkpoint) -> Result<()> {
        self.end();
        let (position, order) = self.resume_position(state)?;
        if let (Some(order), Some(changes)) = (order, self.shared().schedule.live_order()) {
            changes.set(order);
            self.shared().mark_outdated();
        }
        (self.resume_start, self.first_epoch) = (position, position.epoch);
        self.shared().set_position(position);
        Ok(())
    }

    /// Checks whether [`resume`](Batches::resume) would accept `checkpoint`, without changing
    /// anything. The epoch in progress continues.
    ///
    /// # Errors
    /// See [`Loader::resume`](crate::Loader::resume).
    pub fn check_checkpoint(&self, checkpoint: &Checkpoint) -> Result<()> {
        self.resume_position(checkpoint).map(drop)
    }

    /// Returns the position at which the loader would continue, and the order if it can change.
    fn resume_position(&self, state: &Checkpoint) -> Result<(BatchIndex, Option<Arc<dyn UpdatableOrder>>)> {
        let Shared { recipe, runtime, schedule, .. } = self.shared();
        state.check(recipe, &runtime.counters, schedule)
    }

    /// Returns the first epoch to run: the checkpoint's epoch after
    /// [`resume`](crate::Loader::resume), otherwise 0.
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

    /// Returns a handle that can be used while an epoch borrows the loader; see [`LoaderHandle`].
    pub fn handle(&self) -> LoaderHandle {
        self.handle.clone()
    }

    /// Returns a checkpoint of the run. [`Loader::resume`](crate::Loader::resume) continues with
    /// the first batch that was not delivered. A batch is delivered when the iterator or
    /// `next_interruptible` returns it, so save the checkpoint together with the model that was
    /// trained on that batch.
    ///
    /// The first call reads the keys of eight samples, and later calls read no samples. Inside an
    /// epoch, call `epoch.checkpoint()`, because an [`Epoch`](crate::Epoch) dereferences to its
    /// loader.
    pub fn checkpoint(&self) -> Checkpoint {
        self.handle.checkpoint()
    }

    /// Returns the statistics of each stage so far. [`Stats::verdict`] names the bottleneck.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Returns the samples that were skipped so far, ordered by their first failure; see
    /// [`OnError::Skip`](crate::OnError::Skip). Each sample is listed once, with the cause, the
    /// epoch and the batch of its first failure. The list has at most `max_skipped` + 1 entries.
    pub fn sample_errors(&self) -> Vec<SampleError> {
        self.handle.sample_errors()
    }
}

#[cfg(feature = "_device")]
impl<G: crate::device::Gpu> Batches<crate::device::DeviceBatch<G>> {
    /// Returns the memory used on the device, and the number of bytes copied to it.
    pub fn device_stats(&self) -> crate::device::DeviceStats {
        self.shared().device_counters.get().expect("batches on a device have a ring").stats()
    }
}

fn changed_length_error(next: BatchIndex, remaining_batches: u64) -> Error {
    let BatchIndex { epoch, batch } = next;
    let new_batch_count = batch + remaining_batches;
    Error::config(format!(
        "the order returned {batch} batches for epoch {epoch} when the epoch was prepared, but {new_batch_count} when \
         it began; an order must always return the same length"
    ))
}

impl<B> Drop for Batches<B> {
    fn drop(&mut self) {
        if self.feed().is_none() {
            // In a forked child, the feed's threads do not exist, and locks that they held stay
            // locked.
            std::mem::forget(self.feed.take());
            return;
        }
        self.end();
        drop(self.feed.take());
        // A `LoaderHandle` may keep the counters alive, so end the trace here.
        self.shared().runtime.counters.end_trace();
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

    #[test]
    fn a_forked_child_takes_no_lock() {
        let samples = (0..8).map(|n| OwnedSample::new(n.to_string()).field("x.json", "1")).collect();
        let loader = Loader::source(Memory::new(samples)).drop_field("image").drop_field("label");
        let loader = loader.field("x", crate::field::NdArray::new(crate::Dtype::F32, [])).batch_size(2).workers(1);
        let (count_sender, count_receiver) = channel();
        std::thread::spawn(move || {
            let mut batches = loader.host().unwrap();
            assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 4);
            let shared = batches.handle.0.clone();
            let guards = (shared.position.lock().unwrap(), shared.sample_errors.lock().unwrap());
            batches.process += 1;
            assert!(batches.epoch(1).next().is_some_and(|batch| batch.is_err()));
            assert!(batches.epoch_from(1, 2).next().is_some_and(|batch| batch.is_err()));
            batches.end();
            batches.process -= 1;
            drop(guards);
            count_sender.send(batches.epoch(2).filter(|batch| batch.is_ok()).count()).unwrap();
        });
        let batch_count = count_receiver.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(batch_count, Ok(4), "the thread must not block on a lock or fail");
    }
}
