//! Checkpoints.
//!
//! A checkpoint is a position plus enough evidence to detect that a loader would deliver different
//! batches: the seed, sizes, the keys of a few samples, and a hash of a few hundred positions of
//! the order. Checking a checkpoint reads eight samples and does not require a pass over the data.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, guarded};
use crate::recipe::Recipe;
use crate::sampler::{Sampler, Schedule};
use crate::source::{BatchIndex, Hash, retried};
use crate::trace::Counters;
use crate::transform::{Augment, Step};

/// The [`Checkpoint`] version that this build writes and reads.
const VERSION: u32 = 1;
/// Number of samples whose keys are compared in order to distinguish datasets.
const PROBES: u64 = 8;
/// Number of positions of the saved epoch that are compared in order to distinguish orders.
const POSITIONS: u64 = 256;

/// Position of a run, from which another process can continue, with any number of workers or ranks.
/// A checkpoint takes a few hundred bytes in any `serde` format.
///
/// [`Batches::checkpoint`](crate::Batches::checkpoint) and
/// [`LoaderHandle::checkpoint`](crate::LoaderHandle::checkpoint) return a checkpoint, and
/// [`Loader::resume`](crate::Loader::resume) accepts one. Ranks that have received the same number
/// of batches have the same checkpoint, so one rank can save it for all ranks.
///
/// A checkpoint contains the seed, the global batch size, the number of samples in the source and
/// in the epoch, the index and key of the samples at eight positions of epoch 0, and a hash of the
/// samples at 256 positions of its own epoch. A loader that differs in any of these is rejected.
/// This detects a different seed, batch size, order, subset or set of weights, and added or removed
/// samples. Renamed samples are detected only if one of the eight is renamed.
///
/// If the order may depend on state ([`Loader::epochs`](crate::Loader::epochs) of 0), the order is
/// compared only if the checkpoint is inside an epoch, and the eight samples are taken from
/// positions of the source. Restore that state before you resume the loader, so that the order
/// returns the same values as when the epoch began.
///
/// A checkpoint also contains the augmentation steps of each image. A loader with different steps
/// is rejected, unless [`any_augment`](Checkpoint::any_augment) allows them.
///
/// Three kinds of changes are not detected: different bytes under the same key, very small changes
/// of weights, and different options for the steps after reading, such as
/// [`normalize`](crate::Loader::normalize) or a custom [`transform`](crate::Loader::transform).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Checkpoint::unknown")]
pub struct Checkpoint {
    version: u32,
    epoch: u64,
    batch: u64,
    seed: u64,
    global_batch: u64,
    samples: u64,
    /// Number of samples in the epoch, or 0 if the order was not evaluated.
    epoch_samples: u64,
    /// Hash of the epoch's order; `None` if the order was not evaluated.
    order: Option<u64>,
    /// Whether the order may depend on state. The probes are then positions of the source.
    stateful: bool,
    probes: Vec<Probe>,
    /// Augmentations of all images, as JSON. `None` if they must not be compared.
    augment: Option<String>,
}

/// The sample at one position of epoch 0 or of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    position: u64,
    /// Number of the sample; `None` if the order panicked.
    sample: Option<u64>,
    /// Key of the sample. `None` if the sample could not be read; the key is then not compared.
    key: Option<String>,
}

impl Probe {
    /// Fails if the sample or its key differs from `now`. `of` names what the position refers to:
    /// the source or the epoch.
    fn check(&self, now: &Probe, of: &str) -> Result<()> {
        let shown = |sample: Option<u64>| sample.map_or_else(|| "none".to_owned(), |sample| sample.to_string());
        let sample = shown(self.sample);
        if (self.position, self.sample) != (now.position, now.sample) {
            let what = format!("the order (sample at position {} of {of})", self.position);
            return Err(differs(&what, &sample, &shown(now.sample)));
        }
        let (Some(saved), Some(now)) = (&self.key, &now.key) else { return Ok(()) };
        same(&format!("the dataset (key of sample {sample})"), saved, now)
    }
}

fn differs(what: &str, saved: &dyn Display, now: &dyn Display) -> Error {
    Error::config(format!("resume: {what} differs: the checkpoint has {saved}, this loader has {now}"))
}

fn same<T: PartialEq + Display>(what: &str, saved: T, now: T) -> Result<()> {
    if saved == now { Ok(()) } else { Err(differs(what, &saved, &now)) }
}

impl Checkpoint {
    /// Returns defaults for the missing fields of a checkpoint from a different version, so that at
    /// least its version number can be read.
    fn unknown() -> Self {
        Checkpoint {
            version: 0,
            epoch: 0,
            batch: 0,
            seed: 0,
            global_batch: 0,
            samples: 0,
            epoch_samples: 0,
            order: None,
            stateful: false,
            probes: Vec::new(),
            augment: None,
        }
    }

    /// Returns the epoch in which the run continues.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of the first batch of that epoch that was not delivered.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Creates the checkpoint of a loader whose next batch is `next`. `stateful` says whether the
    /// order may depend on state; such an order is evaluated only for epochs that have begun.
    pub(crate) fn new(
        recipe: &Recipe,
        schedule: &Schedule,
        next: BatchIndex,
        stateful: bool,
        probes: Vec<Probe>,
    ) -> Self {
        let BatchIndex { epoch, batch } = next;
        // If the order panics for this epoch, the checkpoint cannot be resumed, because `check`
        // needs the length of the epoch.
        let asked = !(stateful && batch == 0);
        let order = schedule.order();
        let (epoch_samples, order) =
            if asked { (guarded(|| Ok(order.len(epoch))).unwrap_or(0), hash(order, epoch)) } else { (0, None) };
        Checkpoint {
            version: VERSION,
            epoch,
            batch,
            seed: recipe.seed,
            global_batch: schedule.global_batch(),
            samples: recipe.source.len() as u64,
            epoch_samples,
            order,
            stateful,
            probes,
            // Augmentations contain only numbers and names, so serialization cannot fail.
            augment: serde_json::to_string(&recipe.augments().collect::<Vec<_>>()).ok(),
        }
    }

    /// Allows a loader with a different augmentation to continue from this checkpoint. To plan a
    /// change in advance, use [`Augment::from_epoch`](crate::Augment::from_epoch) instead.
    #[must_use]
    pub fn any_augment(mut self) -> Self {
        self.augment = None;
        self
    }

    /// Returns the position at which a loader with `recipe` and `schedule` continues. Fails if the
    /// checkpoint does not match that loader.
    pub(crate) fn check(&self, recipe: &Recipe, counters: &Counters, schedule: &Schedule) -> Result<BatchIndex> {
        let Checkpoint { version, epoch, batch, stateful, .. } = *self;
        if version != VERSION {
            return Err(Error::config(format!(
                "resume: the checkpoint has version {version}; this build reads version {VERSION}"
            )));
        }
        let next = BatchIndex { epoch, batch };
        // The order may be user code, and may panic for an epoch that was never requested.
        let asked = guarded(|| {
            let probes = probe(recipe, counters, schedule, stateful);
            let now = Checkpoint::new(recipe, schedule, next, stateful, probes);
            Ok((now, if stateful && batch == 0 { 0 } else { schedule.num_batches(epoch) }))
        });
        let (now, batches) =
            asked.map_err(|e| Error::config(format!("resume: the order panicked for epoch {epoch}: {}", e.cause())))?;
        same("the seed", self.seed, now.seed)?;
        same("the global batch size", self.global_batch, now.global_batch)?;
        same("the number of source samples", self.samples, now.samples)?;
        same(&format!("the number of samples in epoch {epoch}"), self.epoch_samples, now.epoch_samples)?;
        same("the number of probes", self.probes.len(), now.probes.len())?;
        if batch > batches {
            return Err(Error::config(format!(
                "resume: the checkpoint is at batch {batch} of epoch {epoch}, which has {batches} batches"
            )));
        }
        let of = if stateful { "the source" } else { "epoch 0" };
        self.probes.iter().zip(&now.probes).try_for_each(|(saved, now)| saved.check(now, of))?;
        if self.order.is_some() && self.order != now.order {
            let hint = if stateful {
                "; the order depends on state: before the loader, restore the state from the start of the epoch"
            } else {
                ""
            };
            return Err(Error::config(format!("resume: the order of epoch {epoch} differs from the saved one{hint}")));
        }
        self.check_augments(&recipe.augments().collect::<Vec<_>>())?;
        Ok(next)
    }

    /// Fails if the augmentations `now` differ from the saved ones. The error names the first step
    /// that differs.
    fn check_augments(&self, now: &[&Augment]) -> Result<()> {
        const HINT: &str = "Augment::from_epoch plans a change; to make one now, call Checkpoint::any_augment";
        let refuse = |cause: String| Err(Error::config(format!("resume: the augmentation {cause}; {HINT}")));
        let Some(saved) = &self.augment else { return Ok(()) };
        let saved: Vec<Augment> = match serde_json::from_str(saved) {
            Ok(saved) => saved,
            Err(e) => return refuse(format!("of the checkpoint cannot be read: {e}")),
        };
        if saved.len() != now.len() {
            return refuse(format!(
                "differs: the checkpoint has {} images, this loader has {}",
                saved.len(),
                now.len()
            ));
        }
        let Some((saved, now)) = saved.iter().zip(now).find(|(saved, now)| saved != *now) else { return Ok(()) };
        let (saved, now) = (saved.steps(), now.steps());
        let same = saved.iter().zip(now).take_while(|(saved, now)| saved == now).count();
        let shown = |steps: &[Step]| steps.get(same).map_or_else(|| "no more steps".to_owned(), Step::to_string);
        let step = same + 1;
        refuse(format!("differs in step {step}: the checkpoint has {}, this loader has {}", shown(saved), shown(now)))
    }
}

/// Returns a hash of the order of `epoch`, or `None` if the order panics.
fn hash(order: &dyn Sampler, epoch: u64) -> Option<u64> {
    let hashed = guarded(|| {
        let Some(last) = order.len(epoch).checked_sub(1) else { return Ok(Hash::default()) };
        let places = spread(last, POSITIONS.min(last + 1));
        Ok(places.fold(Hash::default(), |hash, position| hash.number(order.index(epoch, position))))
    });
    hashed.ok().map(Hash::end)
}

/// Returns `count` evenly spaced numbers from 0 to `last`.
fn spread(last: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| (u128::from(last) * u128::from(i) / u128::from((count - 1).max(1))) as u64)
}

/// Reads the samples at a few evenly spaced positions of epoch 0, or of the source if the order is
/// `stateful`.
pub(crate) fn probe(recipe: &Recipe, counters: &Counters, schedule: &Schedule, stateful: bool) -> Vec<Probe> {
    let (order, samples) = (schedule.order(), recipe.source.len() as u64);
    let all = if stateful { samples } else { order.len(0) };
    let Some(last) = all.checked_sub(1) else { return Vec::new() };
    let at = &|position| {
        let sample = if stateful { Some(position) } else { guarded(|| Ok(order.index(0, position))).ok() };
        let key = sample.filter(|&sample| sample < samples).and_then(|sample| {
            let again = || {
                counters.retries.add(1);
                true
            };
            let mut scratch = Vec::new();
            let key = || Ok(recipe.source.read(sample as usize, &mut scratch)?.key().to_owned());
            retried(recipe.retries, sample, again, key).ok()
        });
        Probe { position, sample, key }
    };
    // Each read may take a round trip to a store, so the reads run concurrently.
    std::thread::scope(|scope| {
        let start =
            |position| std::thread::Builder::new().spawn_scoped(scope, move || at(position)).map_err(|_| position);
        let probes: Vec<_> = spread(last, PROBES).map(start).collect();
        let probe = |started: std::result::Result<std::thread::ScopedJoinHandle<'_, Probe>, u64>| match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(position) => at(position),
        };
        probes.into_iter().map(probe).collect()
    })
}
