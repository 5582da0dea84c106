//! Checkpoints.
//!
//! A checkpoint is a position in a run, and data to detect most loaders that would continue with
//! different batches: the seed, some sizes, the augmentations, the keys of a few samples, and a
//! hash of a few hundred entries of the sample order. So checking a checkpoint reads only the keys
//! of eight samples. If the program has changed the order, the checkpoint also contains the history
//! of changes.

use std::fmt::Display;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, counted, guarded};
use crate::recipe::Recipe;
use crate::sampler::{History, Sampler, Schedule, UpdatableOrder, Update};
use crate::source::{BatchIndex, Hash, retried};
use crate::trace::Counters;
use crate::transform::{Augment, Step};

/// Version of a [`Checkpoint`] without a history.
const VERSION: u32 = 1;
/// Version of a [`Checkpoint`] with a history. Earlier builds would ignore the history, so they
/// must reject the checkpoint.
const VERSION_WITH_HISTORY: u32 = 2;
/// Value of the epoch or batch if a saved checkpoint lacks it.
const MISSING: u64 = u64::MAX;
/// Number of sample keys that are compared to detect a different dataset.
const PROBES: u64 = 8;
/// Number of positions of the saved epoch that are compared to detect a different order.
const POSITIONS: u64 = 256;

/// The position of a run. A different process can continue the run from this position, with any
/// number of workers and ranks. As JSON, a checkpoint without a history of changes usually takes
/// about 1 KB.
///
/// [`Batches::checkpoint`](crate::Batches::checkpoint) and
/// [`LoaderHandle::checkpoint`](crate::LoaderHandle::checkpoint) return a checkpoint, and
/// [`Loader::resume`](crate::Loader::resume) accepts one. Ranks that have received the same number
/// of batches have equal checkpoints, so one rank can save the checkpoint for all.
///
/// A loader is rejected if one of these values in the checkpoint differs:
///
/// - the seed, the global batch sizes, and the [budget](crate::Loader::budget) of a batch;
/// - the number of samples in the source and in the epoch;
/// - the indices and keys of the samples at eight positions of epoch 0;
/// - a hash of the samples at up to 256 positions of the checkpoint's epoch;
/// - the augmentation steps of an image field or dataset, unless
///   [`any_augment`](Checkpoint::any_augment) was called.
///
/// So the check detects a different seed, batch size or number of samples. It almost always detects
/// a different order, subset or set of weights. Renamed samples are detected only if one of the
/// eight samples is renamed. A key that cannot be read is not compared.
///
/// If the sample order may depend on state of your program (`epochs(0)`; see
/// [`Loader::epochs`](crate::Loader::epochs)), the order is compared only if the checkpoint lies
/// inside an epoch, and the eight samples are at fixed indices of the source. Before you resume
/// such a loader, restore the state from the start of that epoch, so that the order is the same
/// again.
///
/// After [`set_mixture`](crate::Batches::set_mixture) or
/// [`set_weights`](crate::Batches::set_weights), a checkpoint also contains the history of these
/// calls, and resuming restores it. Each call of `set_mixture` adds one number per dataset. Each
/// call of `set_weights` adds one number per sample, and removes earlier calls that no longer
/// affect the epoch in progress. A checkpoint from which the history was removed is rejected.
///
/// Some changes are not detected, such as different bytes under the same key, very small changes to
/// weights, and different options that apply after the augmentation, such as
/// [`normalize`](crate::Loader::normalize) or a custom [`transform`](crate::Loader::transform).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Checkpoint::unknown")]
pub struct Checkpoint {
    version: u32,
    epoch: u64,
    batch: u64,
    seed: u64,
    global_batch: u64,
    /// 0 without a budget.
    #[serde(skip_serializing_if = "is_zero")]
    budget: u64,
    /// Global batch size of each dataset of a mixture, if the sizes differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    batch_sizes: Vec<u64>,
    samples: u64,
    /// Number of samples in the epoch, or 0 if the order was not evaluated.
    epoch_samples: u64,
    /// Hash of the samples at some positions of the epoch, or `None` if not evaluated.
    order: Option<u64>,
    /// True if the sample order may depend on state of the program. In this case, the positions of
    /// the probes are source indices instead of positions in epoch 0.
    stateful: bool,
    probes: Vec<Probe>,
    /// Augmentations of all images, as JSON, or `None` to accept any augmentation.
    augment: Option<String>,
    history: Vec<Update>,
    /// Position from which `history` is complete. Earlier changes may be missing.
    history_from: u64,
}

/// The sample at one position in epoch 0 or in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    position: u64,
    /// `None` if the sampler panicked.
    sample: Option<u64>,
    /// `None` if the sample could not be read. A missing key is not compared.
    key: Option<String>,
}

impl Probe {
    /// Returns an error if the sample or its key differs from `current`. `sequence` is the text in
    /// the error for what the position refers to: the source or epoch 0.
    fn check(&self, current: &Probe, sequence: &str) -> Result<()> {
        let format_sample = |sample: Option<u64>| sample.map_or_else(|| "none".to_owned(), |sample| sample.to_string());
        let sample = format_sample(self.sample);
        if (self.position, self.sample) != (current.position, current.sample) {
            let what = format!("the order (sample at position {} of {sequence})", self.position);
            return Err(difference_error(&what, &sample, &format_sample(current.sample)));
        }
        let (Some(saved), Some(current)) = (&self.key, &current.key) else { return Ok(()) };
        check_equal(&format!("the dataset (key of sample {sample})"), saved, current)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde requires
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn difference_error(what: &str, saved: &dyn Display, now: &dyn Display) -> Error {
    Error::config(format!("resume: {what} differs: the checkpoint has {saved}, this loader has {now}"))
}

fn check_equal<T: PartialEq + Display>(what: &str, saved: T, now: T) -> Result<()> {
    if saved == now { Ok(()) } else { Err(difference_error(what, &saved, &now)) }
}

impl Checkpoint {
    /// Returns default values for missing fields, so that the version of an incompatible checkpoint
    /// can be read and reported. If the version, epoch or batch is missing, `restored_order` fails.
    fn unknown() -> Self {
        Checkpoint {
            version: 0,
            epoch: MISSING,
            batch: MISSING,
            seed: 0,
            global_batch: 0,
            budget: 0,
            batch_sizes: Vec::new(),
            samples: 0,
            epoch_samples: 0,
            order: None,
            stateful: false,
            probes: Vec::new(),
            augment: None,
            history: Vec::new(),
            history_from: 0,
        }
    }

    /// Returns the epoch in which the run continues.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the index, in that epoch, of the batch at which the run continues.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Creates the checkpoint of `position`. If the order is `stateful`, it is evaluated only for
    /// an epoch in progress.
    pub(crate) fn new(
        recipe: &Recipe,
        schedule: &Schedule,
        position: BatchIndex,
        stateful: bool,
        probes: Vec<Probe>,
    ) -> Self {
        let BatchIndex { epoch, batch } = position;
        // If the order panics here, the checkpoint lacks its hash, and possibly the number of
        // samples. `check` then rejects the checkpoint, or does not compare the order.
        let can_evaluate = !(stateful && batch == 0);
        let live_order = schedule.live_order().map(|changes| changes.current());
        let order: &dyn Sampler = match &live_order {
            Some(live_order) => live_order,
            None => schedule.order(),
        };
        let (epoch_samples, order) = if can_evaluate {
            (guarded(|| Ok(order.len(epoch))).unwrap_or(0), hash_order(order, epoch))
        } else {
            (0, None)
        };
        let History { updates: history, recomputable_from: history_from } =
            live_order.map(|c| c.history()).unwrap_or_default();
        Checkpoint {
            version: if history.is_empty() { VERSION } else { VERSION_WITH_HISTORY },
            epoch,
            batch,
            seed: recipe.seed,
            global_batch: schedule.global_batch(),
            budget: schedule.budget().unwrap_or(0),
            batch_sizes: schedule.dataset_batch_sizes(),
            samples: recipe.source.len() as u64,
            epoch_samples,
            order,
            stateful,
            probes,
            // Serialization cannot fail, because augmentations contain only numbers and names.
            augment: serde_json::to_string(&recipe.all_augments().collect::<Vec<_>>()).ok(),
            history,
            history_from,
        }
    }

    /// Allows a loader with a different augmentation to continue from this checkpoint. If the
    /// change is known in advance, use [`Augment::from_epoch`](crate::Augment::from_epoch) instead.
    #[must_use]
    pub fn any_augment(mut self) -> Self {
        self.augment = None;
        self
    }

    /// Returns the loader's order with the history of the checkpoint applied, or `None` if the
    /// program cannot change the order.
    fn restored_order(&self, schedule: &Schedule) -> Result<Option<Arc<dyn UpdatableOrder>>> {
        let Checkpoint { version, epoch, batch, history, history_from, .. } = self;
        if ![0, VERSION, VERSION_WITH_HISTORY].contains(version) {
            return Err(Error::config(format!(
                "resume: the checkpoint has version {version}; this build reads versions {VERSION} and {VERSION_WITH_HISTORY}"
            )));
        }
        if *version == 0 || [*epoch, *batch].contains(&MISSING) {
            return Err(Error::config(
                "resume: the version, epoch or batch is missing, so this is not a checkpoint of a loader; pass the \
                 whole checkpoint as it was saved",
            ));
        }
        if history.is_empty() != (*version == VERSION) || history.is_empty() && *history_from != 0 {
            return Err(Error::config(format!(
                "resume: the checkpoint has version {version} and {} in its history, which \
                 contradict each other; pass the whole checkpoint as it was saved",
                counted(history.len() as u64, "change", "changes")
            )));
        }
        let Some(live_order) = schedule.live_order() else {
            return if history.is_empty() {
                Ok(None)
            } else {
                Err(Error::config(
                    "resume: the saved run called set_mixture or set_weights, but this loader has neither a mixture nor weights",
                ))
            };
        };
        let history = History { updates: history.clone(), recomputable_from: *history_from };
        let order = live_order.replay(&history);
        order
            .map(Some)
            .map_err(|e| Error::config(format!("resume: the history does not fit this loader: {}", e.cause())))
    }

    /// Returns the position at which the loader continues, and the order with the history of the
    /// checkpoint if the program can change the order.
    pub(crate) fn check(
        &self,
        recipe: &Recipe,
        counters: &Counters,
        schedule: &Schedule,
    ) -> Result<(BatchIndex, Option<Arc<dyn UpdatableOrder>>)> {
        let Checkpoint { epoch, batch, stateful, .. } = *self;
        let restored_order = self.restored_order(schedule)?;
        let probe_schedule = schedule.without_changes();
        let schedule =
            &restored_order.as_ref().map_or_else(|| schedule.clone(), |order| schedule.with_order(order.clone()));
        let position = BatchIndex { epoch, batch };
        // The order may be user code that panics for an unexpected epoch.
        let result = guarded(|| {
            let probes = read_probes(recipe, counters, &probe_schedule, stateful);
            let current = Checkpoint::new(recipe, schedule, position, stateful, probes);
            Ok((current, if stateful && batch == 0 { 0 } else { schedule.num_batches(epoch) }))
        });
        let (current, batches) = result
            .map_err(|e| Error::config(format!("resume: the sampler panicked for epoch {epoch}: {}", e.cause())))?;
        check_equal("the seed", self.seed, current.seed)?;
        check_equal("the global batch size", self.global_batch, current.global_batch)?;
        check_equal("the budget", self.budget, current.budget)?;
        if self.batch_sizes != current.batch_sizes {
            let format_sizes =
                |sizes: &[u64]| if sizes.is_empty() { "one for all".to_owned() } else { format!("{sizes:?}") };
            return Err(difference_error(
                "the batch size of each dataset",
                &format_sizes(&self.batch_sizes),
                &format_sizes(&current.batch_sizes),
            ));
        }
        check_equal("the number of source samples", self.samples, current.samples)?;
        check_equal(&format!("the number of samples in epoch {epoch}"), self.epoch_samples, current.epoch_samples)?;
        check_equal("the number of compared samples", self.probes.len(), current.probes.len())?;
        if batch > batches {
            return Err(Error::config(format!(
                "resume: the checkpoint is at batch {batch} of epoch {epoch}, which has {batches} batches"
            )));
        }
        let sequence = if stateful { "the source" } else { "epoch 0" };
        self.probes.iter().zip(&current.probes).try_for_each(|(saved, current)| saved.check(current, sequence))?;
        if self.order.is_some() && self.order != current.order {
            let hint = if stateful {
                "; the order depends on state: before you resume, restore the state from the start of the epoch"
            } else {
                ""
            };
            return Err(Error::config(format!("resume: the order of epoch {epoch} differs from the saved one{hint}")));
        }
        self.check_augments(recipe)?;
        Ok((position, restored_order))
    }

    fn check_augments(&self, recipe: &Recipe) -> Result<()> {
        const HINT: &str = "to change it at a known epoch, use Augment::from_epoch; to accept the change, call \
             Checkpoint::any_augment";
        let refuse = |cause: String| Err(Error::config(format!("resume: the augmentation{cause}; {HINT}")));
        let Some(saved) = &self.augment else { return Ok(()) };
        let current: Vec<&Augment> = recipe.all_augments().collect();
        let saved: Vec<Augment> = match serde_json::from_str(saved) {
            Ok(saved) => saved,
            Err(e) => return refuse(format!(" of the checkpoint cannot be read: {e}")),
        };
        if saved.len() != current.len() {
            return refuse(format!(
                " differs: the checkpoint has {} augmentations, this loader has {}",
                saved.len(),
                current.len()
            ));
        }
        let differing = |index: &usize| saved[*index] != *current[*index];
        // The augmentations of the image fields come first, and the augmentations of the datasets
        // last. Compare the datasets first, because the error can then name the dataset.
        let image_count =
            if recipe.augments.depend_on_dataset() { recipe.any_fields().images.len() } else { current.len() };
        let Some(index) = (image_count..current.len()).chain(0..image_count).find(differing) else { return Ok(()) };
        let dataset_text =
            index.checked_sub(image_count).map_or(String::new(), |dataset| format!(" of dataset {dataset}"));
        let (saved, current) = (saved[index].steps(), current[index].steps());
        let equal_count = saved.iter().zip(current).take_while(|(saved, current)| saved == current).count();
        let format_step =
            |steps: &[Step]| steps.get(equal_count).map_or_else(|| "no more steps".to_owned(), Step::to_string);
        let step = equal_count + 1;
        refuse(format!(
            "{dataset_text} differs in step {step}: the checkpoint has {}, this loader has {}",
            format_step(saved),
            format_step(current)
        ))
    }
}

/// Hashes up to [`POSITIONS`] entries of the order, or returns `None` if the order panics.
fn hash_order(order: &dyn Sampler, epoch: u64) -> Option<u64> {
    let result = guarded(|| {
        let Some(last) = order.len(epoch).checked_sub(1) else { return Ok(Hash::default()) };
        let positions = spaced_numbers(last, POSITIONS.min(last + 1));
        Ok(positions.fold(Hash::default(), |hash, position| hash.number(order.index(epoch, position))))
    });
    result.ok().map(Hash::finish)
}

/// Returns `count` evenly spaced numbers from 0 to `last`.
fn spaced_numbers(last: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| (u128::from(last) * u128::from(i) / u128::from((count - 1).max(1))) as u64)
}

/// Reads the keys of the samples at [`PROBES`] evenly spaced positions in epoch 0, or in the source
/// if the order is `stateful`.
pub(crate) fn read_probes(recipe: &Recipe, counters: &Counters, schedule: &Schedule, stateful: bool) -> Vec<Probe> {
    let (order, samples) = (schedule.order(), recipe.source.len() as u64);
    let position_count = if stateful { samples } else { order.len(0) };
    let Some(last) = position_count.checked_sub(1) else { return Vec::new() };
    let read = &|position| {
        let sample = if stateful { Some(position) } else { guarded(|| Ok(order.index(0, position))).ok() };
        let key = sample.filter(|&sample| sample < samples).and_then(|sample| {
            let count_retry = || {
                counters.read_retries.add(1);
                true
            };
            let mut scratch = Vec::new();
            let key = || recipe.source.key(sample as usize, &mut scratch);
            retried(recipe.retries, sample, count_retry, key).ok()
        });
        Probe { position, sample, key }
    };
    // Read concurrently, because each read may take a round trip to an object store.
    std::thread::scope(|scope| {
        let start_thread =
            |position| std::thread::Builder::new().spawn_scoped(scope, move || read(position)).map_err(|_| position);
        let probes: Vec<_> = spaced_numbers(last, PROBES).map(start_thread).collect();
        let join = |thread: std::result::Result<std::thread::ScopedJoinHandle<'_, Probe>, u64>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(position) => read(position),
        };
        probes.into_iter().map(join).collect()
    })
}
