use std::fmt;
use std::sync::{Arc, Mutex};

use serde::Serialize;

use super::{Engine, Work};
use crate::batch::HostBatch;
use crate::error::{Error, Result};
use crate::order::{Rank, Schedule};
use crate::source::Source;
use crate::trace::Stats;

/// What happens when a sample cannot be read, decoded or transformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The batch is an `Err` that names the sample, and the epoch ends.
    #[default]
    Stop,
    /// Another sample of the batch stands in for it, marked as not [valid](crate::HostBatch::valid), so that the batch keeps its shape. Each is
    /// logged and listed in [`Batches::faults`].
    Skip {
        /// More failures than this, over the life of the loader, are an `Err`.
        at_most: u64,
    },
}

/// A sample that was skipped.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fault {
    /// Epoch in which it failed.
    pub epoch: u64,
    /// Number of the batch it was meant for.
    pub batch: u64,
    /// The sample, and why it failed.
    pub error: Error,
}

/// The memory a loader holds, all of it taken when it was opened. In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Batch buffers on the host.
    pub slots: usize,
    /// Bytes of one of them.
    pub slot_bytes: usize,
    /// Bytes of all of them.
    pub host_bytes: usize,
    /// How many of those are page-locked: all or none.
    pub pinned_bytes: usize,
    /// Bytes on the device, all together.
    pub device_bytes: usize,
    /// How many of those images pass through before they are converted.
    pub staging_bytes: usize,
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let kind = if self.pinned_bytes > 0 { "page-locked" } else { "ordinary" };
        write!(
            f,
            "{} slots of {:.1} MiB: {:.1} MiB of {kind} host memory",
            self.slots,
            mib(self.slot_bytes),
            mib(self.host_bytes)
        )?;
        if self.device_bytes > 0 {
            write!(f, ", {:.1} MiB on the device", mib(self.device_bytes))?;
            write!(f, " ({:.1} MiB of them staging)", mib(self.staging_bytes))?;
        }
        Ok(())
    }
}

/// Where batches come from, in order: the seam between the engine and the kinds of batch.
pub(crate) trait Feed: Send {
    type Batch;

    /// Begins `epoch` at batch `first`, dropping what is under way.
    fn start(&mut self, epoch: u64, first: u64);

    /// The next batch; `None` after the last, and after an error.
    fn next(&mut self) -> Option<Result<Self::Batch>>;

    /// Ends the epoch early.
    fn stop(&mut self);

    /// What the device's memory holds, if there is one.
    #[cfg(feature = "cuda")]
    fn device_stats(&self) -> Option<crate::device::DeviceStats> {
        None
    }
}

/// What is known of an open loader, whatever it delivers.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) work: Arc<Work>,
    pub(crate) schedule: Schedule,
    pub(crate) faults: Arc<Mutex<Vec<Fault>>>,
    pub(crate) plan: MemoryPlan,
    pub(crate) prefetch: usize,
}

impl Opened {
    pub(crate) fn new(engine: &Engine, plan: MemoryPlan, prefetch: usize) -> Self {
        Opened {
            work: engine.work().clone(),
            schedule: engine.schedule.clone(),
            faults: engine.faults().clone(),
            plan,
            prefetch,
        }
    }
}

/// An open loader: workers running, buffers allocated. [`epoch`](Batches::epoch) delivers.
///
/// Dropping it stops the workers and joins their threads; batches still in the user's hands stay valid.
///
/// It belongs to the process that opened it. After `fork` the child has no worker threads: there every batch is an error, and dropping it
/// gives nothing back.
pub struct Batches<B> {
    /// Leaves in drop only.
    feed: Option<Box<dyn Feed<Batch = B>>>,
    opened: Opened,
    process: u32,
}

impl<B> Batches<B> {
    pub(crate) fn new(feed: Box<dyn Feed<Batch = B>>, opened: Opened) -> Self {
        Batches { feed: Some(feed), opened, process: std::process::id() }
    }

    /// The feed, if this is the process that it belongs to.
    fn feed(&mut self) -> Option<&mut dyn Feed<Batch = B>> {
        let here = std::process::id() == self.process;
        self.feed.as_deref_mut().filter(|_| here).map(|feed| feed as _)
    }

    fn next(&mut self) -> Option<Result<B>> {
        let process = self.process;
        match self.feed() {
            Some(feed) => feed.next(),
            None => Some(Err(Error::config(format!(
                "the loader was opened by process {process}, this is {}: worker threads do not survive fork; open it after forking",
                std::process::id()
            )))),
        }
    }

    /// The batches of epoch `epoch`, in order. Workers start at once, and go on while the consumer works.
    ///
    /// The order and every pixel depend on the seed and on `epoch` alone. Dropping the iterator early ends the epoch; what was
    /// prepared ahead is dropped.
    pub fn epoch(&mut self, epoch: u64) -> Epoch<'_, B> {
        self.epoch_from(epoch, 0)
    }

    /// The batches of epoch `epoch` from number `first` on, which costs no more than from 0.
    pub fn epoch_from(&mut self, epoch: u64, first: u64) -> Epoch<'_, B> {
        let end = self.batches(epoch);
        tracing::debug!(epoch, first, end, "epoch begins");
        if let Some(feed) = self.feed() {
            feed.start(epoch, first.min(end));
        }
        Epoch {
            epoch,
            left: end.saturating_sub(first),
            #[cfg(feature = "progress")]
            bar: self.opened.work.progress.then(|| super::progress::bar(epoch, first.min(end), end)),
            batches: self,
        }
    }

    /// The first `n` batches of epoch 0, made once and then served again and again without work: the upper bound of a training loop, as it would
    /// be with a loader that takes no time.
    ///
    /// Endless: `take` as many as the measurement needs. Waits for the `n` batches before it returns; what it serves afterwards counts in no statistics. A shorter epoch
    /// gives fewer batches.
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
    /// As a batch of [`epoch`](Batches::epoch); [`ErrorKind::Config`](crate::ErrorKind::Config) if `n` is 0 or more than the loader has room for, which is
    /// [`prefetch`](Batches::prefetch)` + 1`.
    pub fn replay(&mut self, n: usize) -> Result<Replay<B>> {
        let room = self.prefetch() + 1;
        if n == 0 || n > room {
            return Err(Error::config(format!(
                "replay({n}): from 1 to {room} batches fit the loader; raise prefetch for more"
            )));
        }
        let batches = self.epoch(0).take(n).map(|batch| batch.map(Arc::new)).collect::<Result<Vec<_>>>()?;
        if batches.is_empty() {
            return Err(Error::config("replay: the epoch has no batches"));
        }
        Ok(Replay { batches, next: 0 })
    }

    /// Number of batches in `epoch`.
    pub fn batches(&self, epoch: u64) -> u64 {
        self.opened.schedule.batches(epoch)
    }

    /// Which of the processes that train together this loader serves.
    pub fn rank(&self) -> Rank {
        self.opened.schedule.rank()
    }

    /// Number of samples in the source.
    pub fn samples(&self) -> usize {
        self.opened.work.source.len()
    }

    /// Names of the classes by label, if the source knows them.
    pub fn classes(&self) -> &[String] {
        self.opened.work.source.classes()
    }

    /// The source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.opened.work.source
    }

    /// The memory it holds.
    pub fn plan(&self) -> MemoryPlan {
        self.opened.plan
    }

    /// Batches made ahead of the consumer.
    pub fn prefetch(&self) -> usize {
        self.opened.prefetch
    }

    /// What it did so far: where the time went, stage by stage, and with [`Stats::verdict`] what limits it.
    pub fn stats(&self) -> Stats {
        let Opened { work, plan, prefetch, .. } = &self.opened;
        let mut stats = work.counters.stats();
        (stats.slots, stats.prefetch) = (plan.slots, *prefetch);
        (stats.host_bytes, stats.pinned_bytes, stats.device_bytes) =
            (plan.host_bytes, plan.pinned_bytes, plan.device_bytes);
        stats
    }

    /// The samples that were skipped so far, with their places and causes; see [`OnError::Skip`].
    pub fn faults(&self) -> Vec<Fault> {
        self.opened.faults.lock().expect("nothing panics while holding it").clone()
    }
}

#[cfg(feature = "cuda")]
impl Batches<crate::device::CudaBatch> {
    /// What the device's memory holds, and what went there.
    pub fn device_stats(&self) -> crate::device::DeviceStats {
        self.feed.as_ref().and_then(|feed| feed.device_stats()).expect("batches on a device have a ring")
    }
}

impl<B> Drop for Batches<B> {
    fn drop(&mut self) {
        if self.feed().is_none() {
            // Its threads are not here to be joined, and its locks may be held by them for good.
            std::mem::forget(self.feed.take());
        }
    }
}

impl<B> fmt::Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("source", &self.opened.work.source.kind())
            .field("plan", &self.opened.plan)
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

/// The batches of one epoch; see [`Batches::epoch`].
pub struct Epoch<'a, B> {
    epoch: u64,
    batches: &'a mut Batches<B>,
    left: u64,
    #[cfg(feature = "progress")]
    bar: Option<indicatif::ProgressBar>,
}

impl<B> Iterator for Epoch<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        if self.left == 0 {
            return None;
        }
        let batch = self.batches.next();
        self.left = if let Some(Ok(_)) = batch { self.left - 1 } else { 0 };
        #[cfg(feature = "progress")]
        if let (Some(bar), Some(Ok(_))) = (&self.bar, &batch) {
            bar.inc(1);
        }
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error ends the epoch early.
        (0, usize::try_from(self.left).ok())
    }
}

impl<B> std::iter::FusedIterator for Epoch<'_, B> {}

impl<B> Epoch<'_, B> {
    /// What the loader did so far.
    pub fn stats(&self) -> Stats {
        self.batches.stats()
    }
}

impl<B> Drop for Epoch<'_, B> {
    fn drop(&mut self) {
        tracing::debug!(epoch = self.epoch, left = self.left, "epoch ends");
        if let Some(feed) = self.batches.feed() {
            feed.stop();
        }
    }
}

/// One pass over a [`Loader`](crate::Loader) that went straight into `for`. If the loader cannot be opened, the only item is the error.
pub struct IntoIter(State);

enum State {
    Open(Batches<HostBatch>),
    Failed(Option<Error>),
}

impl IntoIter {
    pub(crate) fn new(opened: Result<Batches<HostBatch>>) -> Self {
        IntoIter(match opened {
            Ok(mut batches) => {
                if let Some(feed) = batches.feed() {
                    feed.start(0, 0);
                }
                State::Open(batches)
            }
            Err(e) => State::Failed(Some(e)),
        })
    }
}

impl Iterator for IntoIter {
    type Item = Result<HostBatch>;

    fn next(&mut self) -> Option<Result<HostBatch>> {
        match &mut self.0 {
            State::Open(batches) => {
                let batch = batches.next();
                if matches!(batch, Some(Err(_))) {
                    self.0 = State::Failed(None);
                }
                batch
            }
            State::Failed(error) => error.take().map(Err),
        }
    }
}
