use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, guarded};
use crate::recipe::Recipe;
use crate::sampler::{Sampler, Schedule};
use crate::source::{BatchIndex, Hash, retried};
use crate::trace::Counters;
use crate::transform::{Augment, Step};

/// The version of [`Checkpoint`] that this build writes and reads.
const VERSION: u32 = 1;
/// Number of samples whose keys are compared to tell datasets apart.
const PROBES: u64 = 8;
/// Number of positions of the saved epoch that are compared to tell orders apart.
const POSITIONS: u64 = 256;

/// Position of a run. Another process can continue from it, with any number of workers or ranks. It
/// takes a few hundred bytes in any `serde` format.
///
/// [`Batches::checkpoint`](crate::Batches::checkpoint) and
/// [`LoaderHandle::checkpoint`](crate::LoaderHandle::checkpoint) return it.
/// [`Loader::resume`](crate::Loader::resume) takes it. It is the same on every rank that has seen
/// as many batches, so it is enough to save it on one of them.
///
/// It holds the seed, the global batch size, the number of samples in the source and in the epoch,
/// the index and key of the samples at eight places of epoch 0, and a hash of the samples at 256
/// places of its own epoch. A loader that differs in any of these is refused. This detects another
/// seed, batch size, order, subset or set of weights, and added or removed samples. Renamed samples
/// are detected if one of the eight is among them.
///
/// If the order may depend on state ([`Loader::epochs`](crate::Loader::epochs) of 0), it is
/// compared only inside an epoch, and the eight samples are samples of the source. Restore the
/// state before the loader, so that the order returns what it returned when the epoch began.
///
/// It also holds the steps of the augmentation of each image. A loader whose augmentation does
/// something else is refused, unless [`any_augment`](Checkpoint::any_augment) allows it.
///
/// Three changes are not detected: new bytes under the same key, weights that differ very little,
/// and other options for steps after reading, such as a [`transform`](crate::Loader::transform) of
/// your own, which is code, or [`normalize`](crate::Loader::normalize).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Checkpoint::unknown")]
pub struct Checkpoint {
    version: u32,
    epoch: u64,
    batch: u64,
    seed: u64,
    global_batch: u64,
    samples: u64,
    /// 0 if the order was not asked for the epoch.
    epoch_samples: u64,
    /// Hash of the epoch's order; `None` if it was not asked.
    order: Option<u64>,
    /// Whether the order may depend on state. The probes are then those of the source.
    stateful: bool,
    probes: Vec<Probe>,
    /// The augmentations of all images, as JSON. `None` if they are not compared.
    augment: Option<String>,
}

/// Sample at one position of epoch 0, or of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    position: u64,
    /// `None` if the order panicked.
    sample: Option<u64>,
    /// `None` if the sample could not be read. It is then not compared.
    key: Option<String>,
}

impl Probe {
    /// Refuses another sample `now` at this position `of` the source or the epoch, and another key.
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
    /// Fills in the missing fields of a checkpoint of another version, so that its version can be
    /// read.
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

    /// The epoch in which the run continues.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of the first batch of that epoch that was not delivered.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// The checkpoint of a loader whose next batch is `next`. `stateful` says whether the order may
    /// depend on state. Such an order is asked for an epoch only when that has begun.
    pub(crate) fn new(
        recipe: &Recipe,
        schedule: &Schedule,
        next: BatchIndex,
        stateful: bool,
        probes: Vec<Probe>,
    ) -> Self {
        let BatchIndex { epoch, batch } = next;
        // An epoch at which the order panics cannot be resumed: `check` asks for its length.
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
            // Numbers and names always become JSON.
            augment: serde_json::to_string(&recipe.augments().collect::<Vec<_>>()).ok(),
        }
    }

    /// Lets a loader with another augmentation continue.
    /// [`Augment::from_epoch`](crate::Augment::from_epoch) plans a change from the beginning.
    #[must_use]
    pub fn any_augment(mut self) -> Self {
        self.augment = None;
        self
    }

    /// Position at which a loader of `recipe` and `schedule` continues, if the checkpoint fits it.
    pub(crate) fn check(&self, recipe: &Recipe, counters: &Counters, schedule: &Schedule) -> Result<BatchIndex> {
        let Checkpoint { version, epoch, batch, stateful, .. } = *self;
        if version != VERSION {
            return Err(Error::config(format!(
                "resume: the checkpoint has version {version}; this build reads version {VERSION}"
            )));
        }
        let next = BatchIndex { epoch, batch };
        // The order may be the user's, and may panic for an epoch that was never requested.
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
                "; the order depends on state, which must be what it was when the epoch began: restore it before the loader"
            } else {
                ""
            };
            return Err(Error::config(format!("resume: the order of epoch {epoch} differs from the saved one{hint}")));
        }
        self.check_augments(&recipe.augments().collect::<Vec<_>>())?;
        Ok(next)
    }

    /// Refuses other augmentations than the saved ones, and names the first step that differs.
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

/// Hash of the order of `epoch`; `None` if the order panics.
fn hash(order: &dyn Sampler, epoch: u64) -> Option<u64> {
    let hashed = guarded(|| {
        let Some(last) = order.len(epoch).checked_sub(1) else { return Ok(Hash::default()) };
        let places = spread(last, POSITIONS.min(last + 1));
        Ok(places.fold(Hash::default(), |hash, position| hash.number(order.index(epoch, position))))
    });
    hashed.ok().map(Hash::end)
}

/// `count` numbers from 0 to `last`, evenly spaced.
fn spread(last: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| (u128::from(last) * u128::from(i) / u128::from((count - 1).max(1))) as u64)
}

/// Reads the samples at a few positions of epoch 0, from the first to the last. If the order is
/// `stateful`, they are positions of the source.
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
    // Each read may take a round trip to a store, so they wait together.
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
