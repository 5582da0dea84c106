use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::resume::{self, Checkpoint, Probe};
use super::run::Run;
use super::sample_errors::{Faults, OnError, SampleError};
use crate::decode::Codecs;
use crate::device::Gauge;
use crate::engine::settings::{MemoryPlan, Settings};
use crate::error::{Error, ErrorKind, Result, counted, guarded};
use crate::recipe::Recipe;
use crate::sampler::Schedule;
use crate::source::{self, BatchIndex, Sample, retried};
use crate::trace::{Stats, Verdict};

/// State of an open loader that is independent of the batch type.
pub(crate) struct Shared {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) run: Arc<Run>,
    pub(crate) schedule: Schedule,
    pub(crate) on_error: OnError,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) memory: MemoryPlan,
    /// Number of epochs that are prepared ahead.
    pub(crate) epochs: u64,
    /// Counters of the device's ring, if there is a device.
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) device: OnceLock<Gauge>,
    /// The first batch that was not delivered.
    pub(crate) at: Mutex<BatchIndex>,
    pub(crate) probes: OnceLock<Vec<Probe>>,
}

impl Shared {
    /// Creates the state of a loader that begins at position `at`.
    pub(crate) fn new(
        (recipe, run, schedule): (Recipe, Run, Schedule),
        memory: MemoryPlan,
        (on_error, epochs): (OnError, u64),
        at: BatchIndex,
    ) -> Self {
        Shared {
            recipe: Arc::new(recipe),
            run: Arc::new(run),
            schedule,
            on_error,
            faults: Mutex::default(),
            memory,
            epochs,
            device: OnceLock::new(),
            at: Mutex::new(at),
            probes: OnceLock::new(),
        }
    }

    fn at(&self) -> MutexGuard<'_, BatchIndex> {
        self.at.lock().expect("nothing panics while holding it")
    }

    pub(crate) fn position(&self) -> BatchIndex {
        *self.at()
    }

    pub(crate) fn reach(&self, position: BatchIndex) {
        *self.at() = position;
    }

    /// Records the failed samples of the batch at `place`, just before the program receives the
    /// batch.
    ///
    /// # Errors
    /// If more samples have failed than the program allows, or if one failed because the machine
    /// ran out of file descriptors or memory.
    pub(crate) fn skip<'a>(
        &self,
        BatchIndex { epoch, batch }: BatchIndex,
        failed: impl Iterator<Item = (u64, &'a Error)>,
    ) -> Result<()> {
        let mut failed = failed.peekable();
        // A decoder reports failures in the batch itself.
        let OnError::Skip { max_skipped } = self.on_error else { return Ok(()) };
        if failed.peek().is_none() || self.recipe.blank {
            return Ok(());
        }
        let mut faults = self.faults.lock().expect("nothing panics while holding it");
        let (mut last, mut skipped) = (None, Vec::new());
        for (sample, error) in failed {
            if error.is_exhausted() {
                return Err(error.clone());
            }
            if faults.note(sample, SampleError { epoch, batch, error: error.clone() }, max_skipped) {
                skipped.push(error.clone());
            }
            last = Some(error);
        }
        let too_many = last.filter(|_| faults.are_more_than(max_skipped));
        // The user's logger may call `faults` or panic, so the lock is released first.
        drop(faults);
        for error in skipped {
            let _ = guarded(|| {
                tracing::warn!(epoch, batch, "skipped: {error}");
                Ok(())
            });
        }
        too_many.map_or(Ok(()), |last| {
            let cause = format!("more than {} failed; last error: {last}", counted(max_skipped, "sample", "samples"));
            Err(Error::new(ErrorKind::TooManySkipped, cause).with_source(last.clone()))
        })
    }
}

/// A handle to an open loader, for use inside a `for` loop and on another thread.
///
/// Returned by [`Batches::handle`](crate::Batches::handle). A handle can be cloned and sent to
/// another thread. It does not keep threads or batch memory alive. A handle that outlives the
/// loader reports the final state.
///
/// ```no_run
/// # fn main() -> warpfeed::Result<()> {
/// # let (train_step, save) = (|_| (), |_| ());
/// let mut batches = warpfeed::Loader::new("train").shuffle(42).host()?;
/// let monitor = batches.handle();
/// for epoch in batches.first_epoch()..90 {
///     for (number, batch) in batches.epoch(epoch).enumerate() {
///         train_step(batch?);
///         if number % 1000 == 999 {
///             save(monitor.checkpoint()); // together with the model
///             println!("{}", monitor.stats());
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LoaderHandle(pub(crate) Arc<Shared>);

impl LoaderHandle {
    /// Returns the checkpoint of the run; see [`Batches::checkpoint`](crate::Batches::checkpoint).
    pub fn checkpoint(&self) -> Checkpoint {
        let Shared { recipe, run, schedule, probes, .. } = &*self.0;
        // If the order depends on state, epochs are not prepared before the program requests them.
        let stateful = self.0.epochs == 0;
        let probes = probes.get_or_init(|| resume::probe(recipe, &run.counters, schedule, stateful)).clone();
        Checkpoint::new(recipe, schedule, self.0.position(), stateful, probes)
    }

    /// Returns the statistics of the loader so far; see [`Batches::stats`](crate::Batches::stats).
    pub fn stats(&self) -> Stats {
        let Shared { recipe, run, memory, .. } = &*self.0;
        let settings = &run.settings;
        let mut stats = run.counters.stats();
        stats.options.clone_from(&settings.options);
        stats.workers = settings.workers;
        stats.on_request = recipe.blank;
        stats.network = guarded(|| Ok(recipe.source.network())).unwrap_or_default();
        (stats.prefetch, stats.most_prefetch) = (settings.prefetch(), settings.prefetch.most);
        (stats.seconds, stats.cores) = (settings.seconds(), settings.cores);
        stats.worker_seconds = stats.seconds * stats.workers as f64;
        stats.delayed_seconds = settings.delayed();
        stats.slots = Settings::slots_for(stats.prefetch);
        stats.allocated_slots = memory.slots;
        (stats.host_bytes, stats.pinned_bytes, stats.device_bytes) =
            (memory.host_bytes, memory.pinned_bytes, memory.device_bytes);
        stats
    }

    /// Returns the bottleneck of the loader and how to remove it: [`Stats::verdict`] for the whole
    /// run.
    pub fn verdict(&self) -> Verdict {
        self.stats().verdict()
    }

    /// Returns the samples skipped so far; see
    /// [`Batches::sample_errors`](crate::Batches::sample_errors).
    pub fn sample_errors(&self) -> Vec<SampleError> {
        self.0.faults.lock().expect("nothing panics while holding it").listed().to_vec()
    }

    /// Reads sample `id` as the source stores it, calls `take` with the sample and the loader's
    /// codecs, and returns the result. [`Codecs::image`] finds the encoded image of the sample, and
    /// [`Codecs::open`] opens it.
    ///
    /// The read runs on the calling thread, even while batches are delivered. Transient errors are
    /// retried, as in workers. `id` is a number as returned by
    /// [`BatchInfo::ids`](crate::BatchInfo::ids).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the source has no sample `id`. Errors of the source and of `take`
    /// name the sample.
    pub fn sample<T>(&self, id: u64, mut take: impl FnMut(&Sample<'_>, &Codecs) -> Result<T>) -> Result<T> {
        let recipe = &self.0.recipe;
        let samples = recipe.source.len();
        let index = usize::try_from(id)
            .ok()
            .filter(|&index| index < samples)
            .ok_or_else(|| source::no_sample(id, samples as u64))?;
        let mut key = String::new();
        let read = retried(
            recipe.retries,
            id,
            || !source::is_stopped(),
            || {
                let mut scratch = Vec::new();
                let sample = recipe.source.read(index, &mut scratch)?;
                sample.key().clone_into(&mut key);
                take(&sample, &recipe.codecs)
            },
        );
        read.map_err(|e| recipe.at_sample(id, &key, e))
    }

    /// Returns the labels of the samples `ids`, in their order; see [`source::labels`].
    ///
    /// # Errors
    /// See [`source::labels`].
    pub fn labels(&self, ids: &[u64]) -> Result<Vec<i64>> {
        let recipe = &self.0.recipe;
        source::labels_retried(&*recipe.source, ids, recipe.retries)
    }
}

impl fmt::Debug for LoaderHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchIndex { epoch, batch } = self.0.position();
        f.debug_struct("LoaderHandle").field("epoch", &epoch).field("batch", &batch).finish_non_exhaustive()
    }
}
