use serde::Deserialize;

use super::LastBatch;
use super::quotas::Quotas;
use crate::error::{Error, Result, counted};

const DEFAULT_DRAWS_PER_ROUND: u64 = 10_000;
/// Default number of batches per round, if each batch has samples of one source only.
const DEFAULT_BATCHES_PER_ROUND: u64 = 100;
/// Maximum draws per round, so that the positions of a round fit in 64 bits. Up to this limit,
/// `f64` represents whole numbers of draws exactly.
const MAX_DRAWS_PER_ROUND: u64 = 1 << 32;
/// Maximum global batch size, so that the positions of a round fit in 64 bits.
const MAX_BATCH_SIZE: usize = u32::MAX as usize;
const RAMP_STEPS: u64 = 100;

/// A point in a run, counted from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// The start of this epoch.
    Epoch(u64),
    /// The start of this global batch, counted from 0 across epochs.
    Step(u64),
    /// The point after this number of samples, summed over all ranks.
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
    schedule: Vec<MixtureChange>,
    draws_per_round: Option<u64>,
    single_pass: Vec<usize>,
    single_dataset_batches: bool,
    global_batch_sizes: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MixtureChange {
    from: At,
    /// End of the ramp, or `None` if the change is not a ramp.
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
    /// Returns the completed fraction of the change at the fraction `x` of the ramp.
    pub(super) fn apply(self, x: f64) -> f64 {
        match self {
            Curve::Linear => x,
            // (1 - cos(pi x)) / 2 = sin(pi x / 2)^2, with a Taylor series for the sine, because
            // library functions differ between platforms, but all ranks must have the same quotas.
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

/// Converts points of a run to positions, based on the batch size and the rules for epochs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// The global batch size, or the largest one if datasets have their own batch sizes.
    pub(crate) batch_size: u64,
    pub(crate) last_batch: LastBatch,
    /// Number of passes per epoch; see `Repeat`.
    pub(crate) passes: u64,
}

impl Clock {
    /// Converts `start` to a position of the run, or to `u64::MAX` if it is too far away.
    fn position(self, start: At, positions_per_pass: u64) -> u64 {
        let positions_per_epoch = positions_per_pass.saturating_mul(self.passes);
        match start {
            At::Sample(samples) => samples,
            At::Epoch(epoch) => epoch.saturating_mul(positions_per_epoch),
            At::Step(step) => {
                let steps_per_epoch = match self.last_batch {
                    LastBatch::Drop => positions_per_epoch / self.batch_size,
                    LastBatch::Keep | LastBatch::Pad => positions_per_epoch.div_ceil(self.batch_size),
                };
                // Do not fail here if an epoch has no batch: opening the loader fails later.
                let (epoch, step) = (step / steps_per_epoch.max(1), step % steps_per_epoch.max(1));
                epoch.saturating_mul(positions_per_epoch).saturating_add(step.saturating_mul(self.batch_size))
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
    /// A change takes effect at the start of the first [round](MixtureOptions::draws_per_round)
    /// that begins at `start` or later. The changes must be listed in the order in which they
    /// occur, and must not overlap.
    #[must_use]
    pub fn proportions(self, start: At, proportions: impl IntoIterator<Item = f64>) -> Self {
        self.schedule_change(start, None, Curve::Linear, proportions)
    }

    /// Changes the proportions linearly from one point of the run to another.
    ///
    /// A ramp has one step per [round](MixtureOptions::draws_per_round), but at most 100 steps. The
    /// steps have the same length, apart from rounding to whole rounds. Each step uses the
    /// proportions at its middle. A ramp that is shorter than a round has no steps, so the
    /// proportions change at its end. Proportions are normalized at both ends of the ramp. If a
    /// source's proportion rounds to no draw in a round, the source is not drawn.
    #[must_use]
    pub fn linear(self, from: At, until: At, proportions: impl IntoIterator<Item = f64>) -> Self {
        self.schedule_change(from, Some(until), Curve::Linear, proportions)
    }

    /// Changes the proportions from one point of the run to another, along half a period of a
    /// cosine, which is slow at first, fastest in the middle, and slow at the end. The ramp has the
    /// same steps as for [`linear`](MixtureOptions::linear).
    #[must_use]
    pub fn cosine(self, from: At, until: At, proportions: impl IntoIterator<Item = f64>) -> Self {
        self.schedule_change(from, Some(until), Curve::Cosine, proportions)
    }

    fn schedule_change(
        mut self,
        from: At,
        until: Option<At>,
        curve: Curve,
        proportions: impl IntoIterator<Item = f64>,
    ) -> Self {
        let proportions = proportions.into_iter().collect();
        self.schedule.push(MixtureChange { from, until, curve, proportions });
        self
    }

    /// Sets the number of draws per round. The default is 10,000, or 100 with
    /// [`single_dataset_batches`](MixtureOptions::single_dataset_batches).
    ///
    /// Each round has the proportions of the mixture, rounded to whole draws. Changes take effect
    /// between rounds. With shorter rounds, changes take effect sooner and the proportions of a
    /// batch vary less, but the rounding is coarser.
    #[must_use]
    pub fn draws_per_round(mut self, draws: u64) -> Self {
        self.draws_per_round = Some(draws);
        self
    }

    /// Makes one pass over each of these sources in the run, instead of repeating the sources.
    /// `sources` contains their indices in the mixture.
    ///
    /// When one of these sources ends, the other sources are drawn in its place, in their
    /// proportions. After all sources with a proportion above 0 have ended, the epoch in progress
    /// ends, and later epochs are empty. With
    /// [`single_dataset_batches`](MixtureOptions::single_dataset_batches), samples that do not fill
    /// a batch of their source are not drawn.
    #[must_use]
    pub fn single_pass(mut self, sources: impl IntoIterator<Item = usize>) -> Self {
        self.single_pass = sources.into_iter().collect();
        self
    }

    /// Sets whether each global batch contains samples of only one source. The default is false. If
    /// true, the proportions apply to batches, and an epoch has only whole batches.
    #[must_use]
    pub fn single_dataset_batches(mut self, is_set: bool) -> Self {
        self.single_dataset_batches = is_set;
        self
    }

    /// Sets the number of samples in the global batches of each source, in the order of the
    /// sources. The sizes replace [`batch_size`](crate::Loader::batch_size) and
    /// [`global_batch_size`](crate::Loader::global_batch_size), and require
    /// [`single_dataset_batches`](MixtureOptions::single_dataset_batches).
    ///
    /// ```
    /// use warpfeed::Loader;
    /// use warpfeed::sampler::MixtureOptions;
    ///
    /// let options = MixtureOptions::new().single_dataset_batches(true).global_batch_sizes([64, 16]);
    /// let loader = Loader::mixture([("small", 0.8), ("large", 0.2)]).mixture_options(options).seed(42);
    /// ```
    ///
    /// The number of batches per epoch is the total number of samples divided by the mean batch
    /// size at the first proportions, rounded down. In the example, the mean size is 0.8 · 64 + 0.2
    /// · 16 = 54.4. Changes to the proportions change the number of samples, but not the number of
    /// batches. Only the end of a [`single_pass`](MixtureOptions::single_pass) can make an epoch
    /// shorter. A schedule in samples ([`At::Sample`]) is converted to batches with the proportions
    /// that apply before the change.
    #[must_use]
    pub fn global_batch_sizes(mut self, sizes: impl IntoIterator<Item = usize>) -> Self {
        self.global_batch_sizes = sizes.into_iter().collect();
        self
    }

    /// Empty unless [`global_batch_sizes`](Self::global_batch_sizes) has been called.
    pub(crate) fn batch_sizes(&self) -> &[usize] {
        &self.global_batch_sizes
    }

    pub(crate) fn is_scheduled(&self, source: usize) -> bool {
        self.schedule.iter().any(|change| change.proportions.get(source).is_some_and(|proportion| *proportion > 0.0))
    }

    /// Returns the number of samples per draw from each source. `batch` is the global batch size.
    pub(super) fn samples_per_draw(&self, batch: u64, sources: usize) -> Result<Vec<u64>> {
        let sizes = self.batch_sizes();
        if sizes.is_empty() {
            return Ok(vec![if self.single_dataset_batches { batch.max(1) } else { 1 }; sources]);
        }
        if !self.single_dataset_batches {
            return config_error(
                "global_batch_sizes requires batches of one source: set single_dataset_batches as well".to_owned(),
            );
        }
        if sizes.len() != sources {
            let given = counted(sizes.len() as u64, "size", "sizes");
            let expected = counted(sources as u64, "source", "sources");
            return config_error(format!("global_batch_sizes: {given}, but {expected}"));
        }
        if let Some(source) = sizes.iter().position(|size| !(1..=MAX_BATCH_SIZE).contains(size)) {
            return config_error(format!(
                "global_batch_sizes: source {source} has batches of {} samples: expected 1 to {MAX_BATCH_SIZE}",
                sizes[source]
            ));
        }
        Ok(sizes.iter().map(|size| *size as u64).collect())
    }

    /// Returns the number of draws after which each source ends, or `u64::MAX` for sources that are
    /// repeated. `draws` contains the draws in one pass over each source.
    pub(super) fn max_draws(&self, draws: impl ExactSizeIterator<Item = u64>) -> Result<Vec<u64>> {
        let sources = draws.len();
        if let Some(source) = self.single_pass.iter().find(|source| **source >= sources) {
            return config_error(format!(
                "single_pass: there is no source {source}: the mixture has {}, numbered from 0",
                counted(sources as u64, "source", "sources")
            ));
        }
        Ok(draws.enumerate().map(|(n, draws)| if self.single_pass.contains(&n) { draws } else { u64::MAX }).collect())
    }

    pub(super) fn round_len(&self) -> Result<u64> {
        match self.draws_per_round {
            None if self.single_dataset_batches => Ok(DEFAULT_BATCHES_PER_ROUND),
            None => Ok(DEFAULT_DRAWS_PER_ROUND),
            Some(draws) if (1..=MAX_DRAWS_PER_ROUND).contains(&draws) => Ok(draws),
            Some(draws) => config_error(format!("draws_per_round({draws}): expected 1 to {MAX_DRAWS_PER_ROUND} draws")),
        }
    }

    /// Adds the scheduled changes to `quotas`. `samples_per_draw` has one element per source.
    /// `check` checks the proportions of a change.
    pub(super) fn apply_schedule(
        &self,
        quotas: &mut Quotas,
        initial_proportions: &[f64],
        (samples_per_draw, positions_per_pass, clock): (&[u64], u64, Clock),
        check: impl Fn(&[f64]) -> Result<()>,
    ) -> Result<()> {
        let positions_per_draw = samples_per_draw.iter().copied().max().unwrap_or(1);
        let (positions_per_round, has_batch_sizes) =
            (quotas.draws_per_round * positions_per_draw, !self.batch_sizes().is_empty());
        let describe = |position: u64| {
            if has_batch_sizes {
                format!("batch {}", position / positions_per_draw)
            } else {
                format!("sample {position}")
            }
        };
        let (mut previous_proportions, mut previous_end) = (normalize(initial_proportions), 0);
        for (number, MixtureChange { from, until, curve, proportions }) in self.schedule.iter().enumerate() {
            let position = |point: At| match point {
                At::Sample(samples) if has_batch_sizes => {
                    quotas.round_after(samples, samples_per_draw).saturating_mul(positions_per_round)
                }
                point => clock.position(point, positions_per_pass),
            };
            let start = position(*from);
            let end = until.map_or(start, position);
            if start < previous_end {
                return config_error(format!(
                    "change {number} of the schedule begins at {}, but the change before it is at {}; list changes in \
                     order",
                    describe(start),
                    describe(previous_end)
                ));
            }
            if until.is_some() && end <= start {
                return config_error(format!(
                    "change {number} of the schedule ends at {}, which is not after its beginning at {}",
                    describe(end),
                    describe(start)
                ));
            }
            check(proportions)?;
            let new_proportions = normalize(proportions);
            let steps = ((end - start) / positions_per_round).min(RAMP_STEPS);
            for step in 0..steps {
                let fraction = curve.apply((step as f64 + 0.5) / steps as f64);
                let step_proportions: Vec<f64> = previous_proportions
                    .iter()
                    .zip(&new_proportions)
                    .map(|(previous, new)| previous + (new - previous) * fraction)
                    .collect();
                let step_start = start + (u128::from(end - start) * u128::from(step) / u128::from(steps)) as u64;
                quotas.set_proportions(step_start.div_ceil(positions_per_round), &step_proportions);
            }
            quotas.set_proportions(end.div_ceil(positions_per_round), proportions);
            (previous_proportions, previous_end) = (new_proportions, end);
        }
        Ok(())
    }
}

fn config_error<T>(cause: String) -> Result<T> {
    Err(Error::config(format!("mixture: {cause}")))
}

fn normalize(proportions: &[f64]) -> Vec<f64> {
    let largest = proportions.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let sum: f64 = proportions.iter().map(|p| p / largest).sum();
    proportions.iter().map(|p| p / largest / sum).collect()
}
