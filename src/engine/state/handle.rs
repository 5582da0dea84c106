//! A handle to an open loader, and the state that it shares with the loader.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::resume::{self, Checkpoint, Probe};
use super::runtime::Runtime;
use super::sample_errors::{OnError, SampleError, SampleErrors};
use crate::decode::{Codecs, DecodedCache};
use crate::device::DeviceCounters;
use crate::engine::settings::MemoryPlan;
use crate::error::{Error, ErrorKind, Result, counted, guarded};
use crate::recipe::Recipe;
use crate::sampler::Schedule;
use crate::source::{self, BatchIndex, Sample, retried};
use crate::trace::{Stats, Verdict};

/// State that an open loader shares with its handles and its threads.
pub(crate) struct Shared {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) schedule: Schedule,
    pub(crate) on_error: OnError,
    pub(crate) sample_errors: Mutex<SampleErrors>,
    pub(crate) memory: MemoryPlan,
    /// Batches of epochs before this one may be prepared in advance.
    pub(crate) epoch_limit: u64,
    #[cfg_attr(not(feature = "_device"), allow(dead_code))]
    pub(crate) device_counters: OnceLock<DeviceCounters>,
    /// Position of the first batch that has not been delivered yet.
    pub(crate) position: Mutex<BatchIndex>,
    /// Samples that identify the dataset, read when the first checkpoint is created.
    pub(crate) probes: OnceLock<Vec<Probe>>,
    /// True if the sample order has changed and prepared batches may be outdated.
    is_outdated: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        (recipe, runtime, schedule): (Recipe, Runtime, Schedule),
        memory: MemoryPlan,
        (on_error, epoch_limit): (OnError, u64),
        position: BatchIndex,
    ) -> Self {
        Shared {
            recipe: Arc::new(recipe),
            runtime: Arc::new(runtime),
            schedule,
            on_error,
            sample_errors: Mutex::default(),
            memory,
            epoch_limit,
            device_counters: OnceLock::new(),
            position: Mutex::new(position),
            probes: OnceLock::new(),
            is_outdated: AtomicBool::new(false),
        }
    }

    pub(crate) fn mark_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    /// Returns whether prepared batches may be outdated, and resets the flag. If the result is
    /// true, the caller must drop these batches.
    pub(crate) fn take_outdated(&self) -> bool {
        self.is_outdated.swap(false, Ordering::Relaxed)
    }

    fn lock_position(&self) -> MutexGuard<'_, BatchIndex> {
        self.position.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn position(&self) -> BatchIndex {
        *self.lock_position()
    }

    pub(crate) fn set_position(&self, position: BatchIndex) {
        *self.lock_position() = position;
    }

    /// Records the failed samples of a batch, just before the program receives the batch. Does
    /// nothing unless the policy is [`OnError::Skip`].
    ///
    /// # Errors
    /// If more samples have failed than [`OnError::Skip`] allows, or if a sample failed because the
    /// process or the machine ran out of file descriptors or memory.
    pub(crate) fn record_failures<'a>(
        &self,
        BatchIndex { epoch, batch }: BatchIndex,
        failures: impl Iterator<Item = (u64, &'a Error)>,
    ) -> Result<()> {
        let OnError::Skip { max_skipped } = self.on_error else { return Ok(()) };
        let failures: Vec<_> = failures.collect();
        // A decoder reports failures in the batch itself.
        if failures.is_empty() || self.recipe.blanks_failed {
            return Ok(());
        }
        // If the machine ran out of a resource, the whole batch fails, so no sample was skipped.
        if let Some((_, error)) = failures.iter().find(|(_, error)| error.is_exhausted()) {
            return Err((*error).clone());
        }
        let mut sample_errors = self.sample_errors.lock().expect("no code panics while holding this lock");
        let (mut last_error, mut skipped) = (None, Vec::new());
        for (sample, error) in failures {
            if sample_errors.record(sample, SampleError { epoch, batch, error: error.clone() }, max_skipped) {
                skipped.push(error.clone());
            }
            last_error = Some(error);
        }
        let exceeding_error = last_error.filter(|_| sample_errors.is_over_limit(max_skipped));
        // Release the lock first, because the user's logger may panic or request the list.
        drop(sample_errors);
        for error in skipped {
            let _ = guarded(|| {
                tracing::warn!(epoch, batch, "skipped: {error}");
                Ok(())
            });
        }
        exceeding_error.map_or(Ok(()), |last_error| {
            let cause =
                format!("more than {} failed; last error: {last_error}", counted(max_skipped, "sample", "samples"));
            Err(Error::new(ErrorKind::TooManySkipped, cause).with_source(last_error.clone()))
        })
    }
}

/// A handle to an open loader, for use inside the loop over an epoch and on other threads.
///
/// [`Batches::handle`](crate::Batches::handle) returns a handle, which can be cloned and sent to
/// other threads. It keeps neither threads nor the memory of batches alive. After the loader is
/// dropped, the handle reports the loader's final state.
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
    /// Returns a checkpoint of the run; see [`Batches::checkpoint`](crate::Batches::checkpoint).
    pub fn checkpoint(&self) -> Checkpoint {
        let Shared { recipe, runtime, schedule, probes, .. } = &*self.0;
        // An order that depends on state requires `Loader::epochs(0)`, so a limit of 0 means that
        // the order may be stateful.
        let stateful = self.0.epoch_limit == 0;
        let probes = probes
            .get_or_init(|| resume::read_probes(recipe, &runtime.counters, &schedule.without_changes(), stateful));
        let probes = probes.clone();
        Checkpoint::new(recipe, schedule, self.0.position(), stateful, probes)
    }

    /// Returns the statistics of each stage so far; see [`Batches::stats`](crate::Batches::stats).
    pub fn stats(&self) -> Stats {
        let Shared { recipe, runtime, memory, .. } = &*self.0;
        let settings = &runtime.settings;
        let mut stats = runtime.counters.stats();
        stats.options.clone_from(&settings.options);
        stats.workers = settings.workers;
        stats.on_request = recipe.blanks_failed;
        stats.network = guarded(|| Ok(recipe.source.network_stats())).unwrap_or_default();
        stats.decoded_cache = recipe.cache.as_ref().map(DecodedCache::stats);
        (stats.prefetch, stats.max_prefetch) = (settings.prefetch(), settings.prefetch.max);
        (stats.seconds, stats.cores) = (settings.seconds(), settings.cores);
        stats.worker_seconds = stats.seconds * stats.workers as f64;
        stats.delayed_seconds = settings.delayed_seconds();
        stats.slots = settings.slots_in_use();
        stats.allocated_slots = memory.slots;
        (stats.host_bytes, stats.pinned_bytes, stats.device_bytes) =
            (memory.host_bytes, memory.pinned_bytes, memory.device_bytes);
        stats
    }

    /// Returns the bottleneck of the run so far, and how to remove it; see [`Stats::verdict`].
    pub fn verdict(&self) -> Verdict {
        self.stats().verdict()
    }

    /// Returns the samples that were skipped so far; see
    /// [`Batches::sample_errors`](crate::Batches::sample_errors).
    pub fn sample_errors(&self) -> Vec<SampleError> {
        self.0.sample_errors.lock().expect("no code panics while holding this lock").errors().to_vec()
    }

    /// Reads sample `id` as the source stores it, and calls `take` with the sample and the loader's
    /// codecs. [`Codecs::image`] finds the encoded image of the sample, and [`Codecs::open`] opens
    /// the image.
    ///
    /// `id` is a source index, as in [`BatchInfo::ids`](crate::BatchInfo::ids). The calling thread
    /// reads the sample, possibly while batches are delivered. Transient errors are retried, as in
    /// workers, so `take` may be called more than once.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the source has no sample `id`. If the source or `take` fails, the
    /// error names the sample.
    pub fn sample<T>(&self, id: u64, mut take: impl FnMut(&Sample<'_>, &Codecs) -> Result<T>) -> Result<T> {
        let recipe = &self.0.recipe;
        let samples = recipe.source.len();
        let index = usize::try_from(id)
            .ok()
            .filter(|&index| index < samples)
            .ok_or_else(|| source::out_of_range_error(id, samples as u64))?;
        let mut key = String::new();
        let result = retried(
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
        result.map_err(|e| recipe.sample_error(id, &key, e))
    }

    /// Returns the label of each sample in `ids`; see [`source::labels`].
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
