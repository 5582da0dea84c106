use serde::Deserialize;

use super::LastBatch;
use crate::error::{Error, Result};

/// Number of draws per round.
const ROUND: u64 = 10_000;
/// Number of batches per round, if each batch has samples of one source only.
const ROUND_OF_BATCHES: u64 = 100;
/// Maximum number of draws per round, because quotas are computed in `f64`.
const MAX_PER_ROUND: u64 = 1 << 32;
/// Maximum number of steps of a ramp.
const RAMP_STEPS: u64 = 100;

/// A point in a run, counted from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// The start of this epoch.
    Epoch(u64),
    /// The start of this global batch, counted across epochs.
    Step(u64),
    /// The point after this number of samples, on all ranks.
    Sample(u64),
}

/// Options of a [`Mixture`](super::Mixture).
///
/// ```
/// use warpfeed::Loader;
/// use warpfeed::sampler::{At, MixtureOptions};
///
/// let options = MixtureOptions::new()
///     .linear(At::Epoch(5), At::Epoch(10), [0.3, 0.7])
///     .proportions(At::Epoch(80), [0.0, 1.0]);
/// let loader = Loader::mixture([("photos", 0.7), ("sketches", 0.3)]).mixture_options(options).seed(42);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixtureOptions {
    schedule: Vec<Planned>,
    round: Option<u64>,
    once: Vec<usize>,
    per_set_batches: bool,
}

/// A planned change to the proportions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Planned {
    from: At,
    /// End of a ramp, or `None` for a step.
    until: Option<At>,
    #[serde(default)]
    curve: Curve,
    proportions: Vec<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Curve {
    #[default]
    Linear,
    Cosine,
}

impl Curve {
    /// Returns the fraction of the change that is completed at the fraction `x` of the ramp.
    pub(super) fn at(self, x: f64) -> f64 {
        match self {
            Curve::Linear => x,
            // (1 - cos(pi x)) / 2, as a Taylor series of the sine of pi x / 2. The functions of the
            // standard library differ between platforms, but all ranks must have the same quotas.
            Curve::Cosine => {
                let angle = std::f64::consts::FRAC_PI_2 * x;
                let (mut term, mut sine) = (angle, angle);
                for n in 1..12 {
                    let n = f64::from(2 * n);
                    term *= -angle * angle / (n * (n + 1.0));
                    sine += term;
                }
                sine * sine
            }
        }
    }
}

/// Converts points in a run to samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// The global batch size.
    pub(crate) batch: u64,
    pub(crate) last: LastBatch,
    /// Number of passes per epoch; see `Repeat`.
    pub(crate) passes: u64,
}

impl Clock {
    /// Returns the number of samples of the run before `at`, or `u64::MAX` for a point that is too
    /// far away to be reached. `draws` is the number of samples per pass.
    fn samples(self, at: At, draws: u64) -> u64 {
        let epoch = draws.saturating_mul(self.passes);
        match at {
            At::Sample(samples) => samples,
            At::Epoch(number) => number.saturating_mul(epoch),
            At::Step(step) => {
                let steps = match self.last {
                    LastBatch::Drop => epoch / self.batch,
                    LastBatch::Keep | LastBatch::Pad => epoch.div_ceil(self.batch),
                };
                // If an epoch has no batch, opening the loader fails later.
                let (epochs, steps) = (step / steps.max(1), step % steps.max(1));
                epochs.saturating_mul(epoch).saturating_add(steps.saturating_mul(self.batch))
            }
        }
    }
}

impl MixtureOptions {
    /// Creates the options of a mixture with fixed proportions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes the proportions at a point of the run. There must be one proportion per source.
    ///
    /// Every change takes effect at the start of a [round](MixtureOptions::round): the first round
    /// that begins at `at` or later. The proportions of each round are exact. The changes must be
    /// listed in the order in which they occur.
    #[must_use]
    pub fn proportions(self, at: At, proportions: impl IntoIterator<Item = f64>) -> Self {
        self.plan(at, None, Curve::Linear, proportions)
    }

    /// Changes the proportions linearly from one point of the run to another.
    ///
    /// A ramp changes the proportions in equal steps, one per [round](MixtureOptions::round) and at
    /// most 100. Each step uses the proportions at the middle of the step. Proportions are
    /// normalized at both ends of the ramp. A source is not drawn in a round in which its
    /// proportion rounds to no draw.
    #[must_use]
    pub fn linear(self, from: At, until: At, proportions: impl IntoIterator<Item = f64>) -> Self {
        self.plan(from, Some(until), Curve::Linear, proportions)
    }

    /// Changes the proportions from one point of the run to another, along half a period of a
    /// cosine: slowly at first, fastest in the middle, and slowly at the end. The steps are the
    /// same as for [`linear`](MixtureOptions::linear).
    #[must_use]
    pub fn cosine(self, from: At, until: At, proportions: impl IntoIterator<Item = f64>) -> Self {
        self.plan(from, Some(until), Curve::Cosine, proportions)
    }

    fn plan(mut self, from: At, until: Option<At>, curve: Curve, proportions: impl IntoIterator<Item = f64>) -> Self {
        let proportions = proportions.into_iter().collect();
        self.schedule.push(Planned { from, until, curve, proportions });
        self
    }

    /// Sets the number of draws per round: 10,000 by default, or 100 with
    /// [`per_set_batches`](MixtureOptions::per_set_batches).
    ///
    /// Each round has the exact proportions, and changes take effect between rounds. The
    /// proportions are rounded to multiples of one draw per round. Shorter rounds react faster and
    /// keep the proportions of a batch closer to the exact ones, but are coarser.
    #[must_use]
    pub fn round(mut self, draws: u64) -> Self {
        self.round = Some(draws);
        self
    }

    /// Draws each sample of these sources once in the run, instead of repeating the sources.
    /// Sources are given by their positions in the mixture.
    ///
    /// When one of these sources ends, the other sources are drawn in its place, in their
    /// proportions. After all sources with a proportion above 0 have ended, the epoch in progress
    /// ends early, and later epochs are empty. With
    /// [`per_set_batches`](MixtureOptions::per_set_batches), samples that do not fill a batch of
    /// their source are not drawn.
    #[must_use]
    pub fn once(mut self, sources: impl IntoIterator<Item = usize>) -> Self {
        self.once = sources.into_iter().collect();
        self
    }

    /// Fills each global batch with samples of one source. The proportions then apply to batches.
    /// An epoch has only whole batches.
    #[must_use]
    pub fn per_set_batches(mut self, is_set: bool) -> Self {
        self.per_set_batches = is_set;
        self
    }

    /// Returns whether the proportion of source `number` is greater than 0 after some change.
    pub(crate) fn raises(&self, number: usize) -> bool {
        self.schedule.iter().any(|planned| planned.proportions.get(number).is_some_and(|share| *share > 0.0))
    }

    /// Returns the number of consecutive samples of one source. `batch` is the global batch size,
    /// and `draws` the number of samples per pass.
    pub(super) fn unit(&self, batch: u64, draws: u64) -> Result<u64> {
        if self.per_set_batches && draws < batch {
            return refused(format!(
                "per_set_batches: an epoch of {draws} samples is smaller than one global batch of {batch}"
            ));
        }
        Ok(if self.per_set_batches { batch.max(1) } else { 1 })
    }

    /// Returns the maximum number of draws from each source. `draws` is the number of draws in one
    /// pass over each source.
    pub(super) fn limits(&self, draws: impl ExactSizeIterator<Item = u64>) -> Result<Vec<u64>> {
        let sources = draws.len();
        if let Some(source) = self.once.iter().find(|source| **source >= sources) {
            return refused(format!(
                "once: there is no source {source}: the mixture has {sources} sources, numbered from 0"
            ));
        }
        Ok(draws.enumerate().map(|(n, draws)| if self.once.contains(&n) { draws } else { u64::MAX }).collect())
    }

    pub(super) fn draws_per_round(&self) -> Result<u64> {
        match self.round {
            None if self.per_set_batches => Ok(ROUND_OF_BATCHES),
            None => Ok(ROUND),
            Some(draws) if (1..=MAX_PER_ROUND).contains(&draws) => Ok(draws),
            Some(draws) => refused(format!("round({draws}): expected 1 to {MAX_PER_ROUND} draws")),
        }
    }

    /// Returns the planned changes: the position in samples, the proportions, and whether these
    /// were given by the user. `first` contains the initial proportions, and `round` is the number
    /// of samples per round.
    pub(super) fn changes(
        &self,
        first: &[f64],
        round: u64,
        draws: u64,
        clock: Clock,
    ) -> Result<Vec<(u64, Vec<f64>, bool)>> {
        let (mut changes, mut before, mut done) = (Vec::new(), normalized(first), 0);
        for (number, Planned { from, until, curve, proportions }) in self.schedule.iter().enumerate() {
            let start = clock.samples(*from, draws);
            let end = until.map_or(start, |until| clock.samples(until, draws));
            if start < done {
                return refused(format!(
                    "change {number} of the schedule begins at sample {start}, but the change before it is at sample {done}; \
                     list changes in order"
                ));
            }
            if until.is_some() && end <= start {
                return refused(format!(
                    "change {number} of the schedule ends at sample {end}, which is not after its beginning at sample {start}"
                ));
            }
            let after = normalized(proportions);
            let steps = ((end - start) / round).min(RAMP_STEPS);
            for step in 0..if before.len() == after.len() { steps } else { 0 } {
                let share = curve.at((step as f64 + 0.5) / steps as f64);
                let mixed = before.iter().zip(&after).map(|(before, after)| before + (after - before) * share);
                let at = start + (u128::from(end - start) * u128::from(step) / u128::from(steps)) as u64;
                changes.push((at, mixed.collect(), false));
            }
            changes.push((end, proportions.clone(), true));
            (before, done) = (after, end);
        }
        Ok(changes)
    }
}

fn refused<T>(cause: String) -> Result<T> {
    Err(Error::config(format!("mixture: {cause}")))
}

/// Returns proportions with the sum 1.
fn normalized(proportions: &[f64]) -> Vec<f64> {
    let largest = proportions.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let sum: f64 = proportions.iter().map(|p| p / largest).sum();
    proportions.iter().map(|p| p / largest / sum).collect()
}
