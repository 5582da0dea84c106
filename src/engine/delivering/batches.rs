use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::metered::Metered;
use crate::batch::{Delivered, Feed};
use crate::engine::settings::{MemoryPlan, Settings};
use crate::engine::state::{self, Checkpoint, Fault, Monitor, Position, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::order::Rank;
use crate::source::Source;
use crate::trace::Stats;

/// How often a waiting consumer checks whether another batch can still come.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// An open loader. Its workers run, and its buffers are allocated. [`epoch`](Batches::epoch)
/// delivers batches.
///
/// Dropping it stops the workers and joins their threads. Batches that you still hold stay valid.
/// It is `Send`: another thread may take it over. It is not `Sync`: one thread at a time asks for
/// batches.
///
/// It belongs to the process that opened it. After `fork` the child has no worker threads. There
/// every batch is an error, and dropping the loader frees nothing.
pub struct Batches<B> {
    /// Leaves in drop and in `into_parts` only.
    feed: Option<Box<dyn Feed<Batch = B>>>,
    shared: Arc<Shared>,
    process: u32,
    /// Where it began.
    first: Position,
    /// Where it is to go on, until it has.
    resume: Option<Position>,
}

impl<B> Batches<B> {
    /// Batches of `feed`, to go on at `resume`.
    pub(crate) fn new(feed: impl Feed<Batch = B> + 'static, shared: Arc<Shared>, resume: Option<Position>) -> Self
    where
        B: Delivered,
    {
        let first = shared.position();
        let feed = Box::new(Metered { feed, run: shared.run.clone(), given_up: None });
        Batches { feed: Some(feed), shared, process: std::process::id(), first, resume }
    }

    /// What makes the batches, and what may be asked of it.
    pub(crate) fn into_parts(mut self) -> (Box<dyn Feed<Batch = B>>, Arc<Shared>) {
        (self.feed.take().expect("it leaves here and in drop only"), self.shared.clone())
    }

    /// The feed, if this is the process that it belongs to.
    fn feed(&mut self) -> Option<&mut dyn Feed<Batch = B>> {
        let here = std::process::id() == self.process;
        self.feed.as_deref_mut().filter(|_| here).map(|feed| feed as _)
    }

    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<B>> {
        let process = self.process;
        match self.feed() {
            Some(feed) => feed.next(idle),
            None => Some(Err(Error::config(format!(
                "the loader was opened by process {process}, this is {}: worker threads do not survive fork; open it after forking",
                std::process::id()
            )))),
        }
    }

    /// The batches of epoch `epoch`, in order. Workers start at once, and go on while the consumer
    /// works.
    ///
    /// ```no_run
    /// # let mut batches = warpfeed::Loader::new("train").host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// The order and every pixel depend on the seed and on `epoch` alone. Dropping the iterator
    /// early ends the epoch and discards what was prepared ahead.
    ///
    /// In a [resumed](crate::Loader::resume) loader the saved epoch starts at the saved batch, and
    /// earlier epochs are empty, so the same loop serves fresh and resumed runs. This holds until
    /// the saved epoch or a later one has begun.
    pub fn epoch(&mut self, epoch: u64) -> Epoch<'_, B> {
        Epoch { cursor: self.enter(epoch), batches: self }
    }

    /// The batches of epoch `epoch` from number `first` on. This costs no more than from 0.
    pub fn epoch_from(&mut self, epoch: u64, first: u64) -> Epoch<'_, B> {
        Epoch { cursor: self.enter_at(epoch, first), batches: self }
    }

    /// Begins `epoch` where it is to begin.
    pub(crate) fn enter(&mut self, epoch: u64) -> Cursor {
        match self.resume {
            Some(saved) if epoch < saved.epoch => self.begin(epoch, u64::MAX),
            Some(saved) if epoch == saved.epoch => self.enter_at(epoch, saved.batch),
            _ => self.enter_at(epoch, 0),
        }
    }

    /// Begins `epoch` at batch `first`, which is where the run then stands.
    pub(crate) fn enter_at(&mut self, epoch: u64, first: u64) -> Cursor {
        self.resume = None;
        let cursor = self.begin(epoch, first);
        self.reach(&cursor);
        cursor
    }

    fn begin(&mut self, epoch: u64, first: u64) -> Cursor {
        // Where the order panics, the feed gives its error in the place of the first batch.
        let end = state::batches(&self.shared.schedule, epoch).unwrap_or(first.saturating_add(1));
        tracing::debug!(epoch, first, end, "epoch begins");
        if let Some(feed) = self.feed() {
            feed.start(epoch, first.min(end));
        }
        Cursor { epoch, next: first.min(end), end, failed: false }
    }

    /// Ends the epoch.
    fn stop(&mut self) {
        if let Some(feed) = self.feed() {
            feed.stop();
        }
    }

    /// Ends the epoch that `cursor` is in. What was prepared ahead is discarded.
    pub(crate) fn leave(&mut self, cursor: &Cursor) {
        tracing::debug!(epoch = cursor.epoch, left = cursor.left(), "epoch ends");
        self.stop();
    }

    /// Lets the next epochs begin where `state` stands, as in a loader that was opened with it.
    pub(crate) fn go_on_at(&mut self, state: &Checkpoint) -> Result<()> {
        let Shared { recipe, run, schedule, .. } = &*self.shared;
        let position = state.check(recipe, &run.counters, schedule)?;
        self.resume = Some(position);
        self.first = position;
        self.shared.reach(position);
        Ok(())
    }

    /// Notes where the run stands: after an epoch's last batch that is the next epoch's first.
    fn reach(&mut self, &Cursor { epoch, next, end, .. }: &Cursor) {
        self.shared.reach(if next < end {
            Position { epoch, batch: next }
        } else {
            Position { epoch: epoch.saturating_add(1), batch: 0 }
        });
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
        self.first.epoch
    }

    /// A handle for use while batches are taken; see [`Monitor`].
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    /// Where the run stands. [`Loader::resume`](crate::Loader::resume) goes on with the first batch
    /// that was not delivered. A batch is delivered once `next` has returned it. So save the
    /// checkpoint together with what was learned from that batch.
    ///
    /// The first call reads eight samples. Later calls read nothing. Inside an epoch use
    /// [`Epoch::checkpoint`] or [`Monitor::checkpoint`].
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.checkpoint()
    }

    /// Makes the first `n` batches of epoch 0 once, and then serves them again and again. It shows
    /// how fast a training loop would be if the loader took no time.
    ///
    /// The iterator is endless: `take` as many batches as the measurement needs. The call waits for
    /// the `n` batches. Batches that are served later do not count in the statistics. A shorter
    /// epoch gives fewer batches.
    ///
    /// ```no_run
    /// # fn main() -> warpfeed::Result<()> {
    /// # let mut batches = warpfeed::Loader::new("train").host()?;
    /// # fn train_step(_: &warpfeed::HostBatch) {}
    /// for batch in batches.replay(2)?.take(1000) {
    ///     train_step(&batch);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As a batch of [`epoch`](Batches::epoch). [`ErrorKind::Config`](crate::ErrorKind::Config) if
    /// `n` is 0 or exceeds the room of the loader. The room is the
    /// [prefetch](crate::Loader::prefetch) that was set plus 1, or 3 if it is automatic.
    pub fn replay(&mut self, n: usize) -> Result<Replay<B>> {
        Ok(self.replay_while(n, &mut || Some(TICK))?.expect("it never gives up"))
    }

    /// As [`replay`](Batches::replay); none where `idle` gives up.
    pub(crate) fn replay_while(
        &mut self,
        n: usize,
        idle: &mut dyn FnMut() -> Option<Duration>,
    ) -> Result<Option<Replay<B>>> {
        let room = self.shared.room;
        if n == 0 || n > room {
            return Err(Error::config(format!(
                "replay({n}): from 1 to {room} batches fit the loader; raise prefetch for more"
            )));
        }
        // No cursor takes the batches: a measurement does not move the position of the run.
        let Cursor { end, .. } = self.begin(0, 0);
        let mut given_up = false;
        let mut idle = || {
            let wait = idle();
            given_up = wait.is_none();
            wait
        };
        let taken = (0..end.min(n as u64)).map_while(|_| self.next(&mut idle));
        let batches = taken.map(|batch| batch.map(Arc::new)).collect::<Result<Vec<_>>>();
        self.stop();
        let batches = batches?;
        if given_up {
            return Ok(None);
        }
        if batches.is_empty() {
            return Err(Error::config("replay: the epoch has no batches"));
        }
        Ok(Some(Replay { batches, next: 0 }))
    }

    /// Number of batches in `epoch`.
    ///
    /// # Panics
    /// If an [`Order`](crate::order::Order) of your own panics when asked for its length.
    /// [`epoch`](Batches::epoch) returns an error for such an epoch.
    pub fn num_batches(&self, epoch: u64) -> u64 {
        self.shared.schedule.num_batches(epoch)
    }

    /// The rank that this loader serves.
    pub fn rank(&self) -> Rank {
        self.shared.schedule.rank()
    }

    /// Number of samples in the source. Options that choose samples do not change it; see
    /// [`epoch_len`](Batches::epoch_len).
    pub fn source_len(&self) -> usize {
        self.shared.recipe.source.len()
    }

    /// Number of samples that `epoch` delivers, on all ranks together.
    /// [`subset`](crate::Loader::subset), [`repeat`](crate::Loader::repeat) and similar options
    /// change it. Samples of a [dropped](crate::LastBatch::Drop) last batch and padding do not
    /// count.
    ///
    /// # Panics
    /// As [`num_batches`](Batches::num_batches).
    pub fn epoch_len(&self, epoch: u64) -> u64 {
        self.shared.schedule.samples(epoch)
    }

    /// Names of the classes by label, if the source knows them.
    pub fn classes(&self) -> &[String] {
        self.shared.recipe.source.classes()
    }

    /// The source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared.recipe.source
    }

    /// The memory that the loader holds.
    pub fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan { slots_in_use: Settings::slots_for(self.prefetch()), ..self.shared.memory }
    }

    /// The number of batches made ahead of the consumer. If
    /// [`Loader::prefetch`](crate::Loader::prefetch) is automatic, this is the current number.
    pub fn prefetch(&self) -> usize {
        self.shared.run.settings.prefetch()
    }

    /// The number of worker threads.
    pub fn workers(&self) -> usize {
        self.shared.run.settings.workers
    }

    /// What the loader has done so far, stage by stage. [`Stats::verdict`] says what limits it.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The samples that were skipped so far, in order of their first failure. Each is listed once,
    /// with the epoch and batch of that failure and its cause; see
    /// [`OnError::Skip`](crate::OnError::Skip). The list has at most `max_skipped` + 1 entries.
    pub fn faults(&self) -> Vec<Fault> {
        self.shared.faults()
    }
}

#[cfg(feature = "cuda")]
impl Batches<crate::device::CudaBatch> {
    /// What the device's memory holds, and what was sent there.
    pub fn device_stats(&self) -> crate::device::DeviceStats {
        self.shared.device.as_ref().expect("batches on a device have a ring").stats()
    }
}

impl<B> Drop for Batches<B> {
    fn drop(&mut self) {
        if self.feed().is_none() {
            // Its threads are not here to be joined, and its locks may be held by them for good.
            std::mem::forget(self.feed.take());
            return;
        }
        drop(self.feed.take());
        // A monitor keeps the counters; the trace is whole without its end.
        self.shared.run.counters.end_trace();
    }
}

impl<B> fmt::Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("source", &self.shared.recipe.source.kind())
            .field("plan", &self.memory_plan())
            .finish()
    }
}

/// The same batches again and again; see [`Batches::replay`].
#[derive(Debug)]
pub struct Replay<B> {
    batches: Vec<Arc<B>>,
    next: usize,
}

impl<B> Iterator for Replay<B> {
    type Item = Arc<B>;

    fn next(&mut self) -> Option<Arc<B>> {
        let batch = &self.batches[self.next % self.batches.len()];
        self.next += 1;
        Some(batch.clone())
    }
}

/// The position in an epoch.
pub(crate) struct Cursor {
    epoch: u64,
    next: u64,
    end: u64,
    /// The last call was an error.
    failed: bool,
}

impl Cursor {
    /// The next of `batches`, which have begun with the epoch. `idle` is called before each wait. It
    /// gives the longest time to wait, or gives up with `None`; then the epoch can go on later.
    pub(crate) fn next<B>(
        &mut self,
        batches: &mut Batches<B>,
        idle: &mut dyn FnMut() -> Option<Duration>,
    ) -> Option<Result<B>> {
        if self.next == self.end {
            // From here on the time is the program's, though the epoch still lives. (After `fork` no
            // lock of the parent's may be taken.)
            if batches.feed().is_some() {
                batches.shared.run.end();
            }
            return None;
        }
        let mut given_up = false;
        let batch = batches.next(&mut || {
            let wait = idle();
            given_up = wait.is_none();
            wait
        });
        match &batch {
            Some(Ok(_)) => {
                self.next += 1;
                batches.reach(self);
            }
            // Whoever drops a batch, or ends the capture, may go on with the one that this call
            // asked for. (An error of the source that has this kind has ended the run.)
            Some(Err(e)) if matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Capturing) => {}
            None if given_up => {}
            // Any other error ends the epoch; the state stays at the batch that failed.
            Some(Err(_)) => self.end = self.next,
            None if self.failed => self.end = self.next,
            // The order, which may be the user's, was asked for its length again.
            None => {
                let Cursor { epoch, next, end, .. } = *self;
                self.end = next;
                return Some(Err(Error::config(format!(
                    "the order had {end} batches in epoch {epoch} when it began, and has fewer now: none is left before batch {next}"
                ))));
            }
        }
        self.failed = matches!(batch, Some(Err(_)));
        batch
    }

    fn left(&self) -> u64 {
        self.end - self.next
    }
}

/// The batches of one epoch; see [`Batches::epoch`].
///
/// An error is the last item, with two exceptions:
///
/// - The [timeout](crate::Loader::timeout) of a consumer that holds every batch. It may drop some
///   and go on.
/// - [`ErrorKind::Capturing`]. The batch may be asked for again when the capture has ended.
pub struct Epoch<'a, B> {
    cursor: Cursor,
    batches: &'a mut Batches<B>,
}

impl<B> fmt::Debug for Epoch<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { epoch, next, end, .. } = self.cursor;
        f.debug_struct("Epoch").field("epoch", &epoch).field("next", &next).field("end", &end).finish_non_exhaustive()
    }
}

impl<B> Iterator for Epoch<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        self.cursor.next(self.batches, &mut || Some(TICK))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error ends the epoch early.
        (0, usize::try_from(self.cursor.left()).ok())
    }
}

impl<B> std::iter::FusedIterator for Epoch<'_, B> {}

impl<B> Epoch<'_, B> {
    /// What the loader has done so far.
    pub fn stats(&self) -> Stats {
        self.batches.stats()
    }

    /// Where the run stands; see [`Batches::checkpoint`].
    pub fn checkpoint(&self) -> Checkpoint {
        self.batches.checkpoint()
    }
}

impl<B> Drop for Epoch<'_, B> {
    fn drop(&mut self) {
        self.batches.leave(&self.cursor);
    }
}
