//! Mixtures of several sources in exact proportions.
//!
//! Draws are grouped into rounds, of 10,000 draws by default. In a round, each source has a quota
//! of draws, and owns that many consecutive tickets. A keyed permutation gives each draw of the
//! round a different ticket, so each round has the exact proportions, in random order.
//!
//! The draws from one source are numbered from the start of the run. This number, called the
//! *turn*, is the offset of the ticket in the source's range, plus the source's quotas in all
//! earlier rounds. The turn determines the pass over the source and the position in that pass. The
//! time of the computation does not depend on the position or the number of samples, and the
//! computation needs no memory per sample.
//!
//! The inverse searches for a sample's next position. Turns increase from round to round but are
//! shuffled within a round, so the search compares all turns in the first round that contains the
//! sample.
//!
//! With `single_dataset_batches`, a draw is a whole batch. If the sources have batches of different
//! sizes, every draw has as many positions as the largest batch. A smaller batch uses only the
//! first of its positions. The remaining positions repeat its samples.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::batched::BatchedOrder;
use super::live_order::{History, UpdatableOrder, Update};
use super::mixture_options::{Clock, MixtureOptions};
use super::permutation::{Permutation, Shuffled, epoch_key};
use super::quotas::{Quotas, Section, apportion};
use super::rng::mix;
use super::{LastBatch, Occurrence, Position, Sampler};
use crate::error::{Error, Result, counted};

/// A sampler that draws samples from several concatenated datasets in given proportions.
///
/// Draws are made in rounds, of 10,000 draws by default. Each round has the given proportions,
/// rounded to whole draws, and the sources alternate at random. Within a round, the proportions
/// vary randomly. For example, 600 draws contain 200 ± 11 samples from a source with a proportion
/// of one third (one standard deviation, `sqrt(n p (1 - p) (1 - n / 10,000))` for `n` draws). Each
/// source is traversed repeatedly, with a new shuffle for each pass. Passes continue across epochs,
/// so one epoch may contain several passes over a small source, and a pass over a large source may
/// take several epochs.
///
/// Within a round, samples from consecutive passes may interleave. At the end of each round, the
/// draw counts of any two samples of a source differ by at most 1. If a source has fewer samples
/// than its draws per round, some samples are repeated before others have appeared. For example,
/// with two sources of 500 samples and equal proportions, the first 500 draws from one source give
/// about 325 different samples.
///
/// Augmentation is a function of (seed, pass, sample). A mixture needs no memory per sample, and
/// the time to find the sample at a position does not depend on the position or the number of
/// samples.
///
/// Each source may have its own sampler, for example a subset, windows or weights; see
/// [`of`](Mixture::of). The paragraphs above describe sources that are shuffled in each pass, as by
/// [`new`](Mixture::new). [`MixtureOptions`] schedules changes to the proportions, and sets the
/// length of the rounds, which sources are repeated, and whether a batch may contain samples of
/// several sources.
#[derive(Clone)]
pub struct Mixture {
    components: Arc<[Component]>,
    quotas: Arc<Quotas>,
    positions_per_epoch: u64,
    /// Number of samples per draw from each source.
    samples_per_draw: Arc<[u64]>,
    positions_per_draw: u64,
    has_batch_sizes: bool,
    seed: u64,
    updates: Arc<[Update]>,
}

/// A source of the mixture. The indices of its samples start at `first`.
#[derive(Clone)]
struct Component {
    first_sample: u64,
    samples: u64,
    order: Arc<dyn Sampler>,
    pass_len: u64,
    /// Whether `order` may be drawn from.
    is_ready: bool,
}

impl Mixture {
    /// Creates a mixture of sources, each given as (number of samples, proportion). The proportions
    /// need not sum to 1. The number of draws per epoch is the total number of samples in all
    /// sources.
    ///
    /// ```
    /// use warpfeed::sampler::{Mixture, Sampler};
    ///
    /// let order = Mixture::new(&[(1000, 0.7), (500, 0.3)], 42)?;
    /// assert_eq!(order.len(0), 1500);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if all proportions are 0, if a proportion is
    /// negative, not finite or so small that it rounds to no draw in 10,000, if a source with a
    /// nonzero proportion is empty, or if the total number of samples exceeds 64 bits.
    pub fn new(sources: &[(u64, f64)], seed: u64) -> Result<Self> {
        Self::of(
            sources.iter().enumerate().map(|(source, &(len, proportion))| {
                let order: Arc<dyn Sampler> = Arc::new(Shuffled::new(len, Self::source_seed(seed, source)));
                (len, proportion, order)
            }),
            seed,
        )
    }

    /// Creates a mixture of sources, each of which is given by its number of samples, its
    /// proportion and its sampler. An epoch of the sampler is one pass over the source, and all
    /// epochs must have the same length. The sampler returns indices in its source.
    ///
    /// In each round of 10,000 draws, the draws from a source are a contiguous section of its
    /// sampler's sequence, shuffled. A window ([`Windowed`](super::Windowed)) that is shorter than
    /// this section has no effect, because samples are shuffled within the whole section.
    ///
    /// # Panics
    /// [`index`](Sampler::index) panics if a sampler returns an index outside its source. A loader
    /// turns that panic into an error.
    ///
    /// # Errors
    /// The same errors as for [`new`](Mixture::new). Also fails if the sampler of a source with a
    /// nonzero proportion has length 0.
    pub fn of(sources: impl IntoIterator<Item = (u64, f64, Arc<dyn Sampler>)>, seed: u64) -> Result<Self> {
        Self::with_options(sources, &MixtureOptions::new(), 1, seed)
    }

    /// Creates a mixture like [`of`](Mixture::of), with `options`. `batch` is the global batch
    /// size, which defines the steps of a schedule and the batches of
    /// [`single_dataset_batches`](MixtureOptions::single_dataset_batches).
    ///
    /// # Errors
    /// The same errors as for [`of`](Mixture::of). Also fails if an option is invalid, if the
    /// options contradict each other or the number of sources, or if they set
    /// [`global_batch_sizes`](MixtureOptions::global_batch_sizes). With
    /// [`single_dataset_batches`](MixtureOptions::single_dataset_batches), also fails if an epoch,
    /// or a source that is drawn in a [`single_pass`](MixtureOptions::single_pass), has fewer
    /// samples than a batch.
    pub fn with_options(
        sources: impl IntoIterator<Item = (u64, f64, Arc<dyn Sampler>)>,
        options: &MixtureOptions,
        batch: u64,
        seed: u64,
    ) -> Result<Self> {
        if !options.batch_sizes().is_empty() {
            return config_error(
                "global_batch_sizes: a sampler cannot set the size of a batch; set the sizes in the options of a \
                 loader's mixture",
            );
        }
        let clock = Clock { batch_size: batch.max(1), last_batch: LastBatch::Keep, passes: 1 };
        let ready = |(samples, proportion, order)| (samples, proportion, order, true);
        Self::with_clock(sources.into_iter().map(ready), options, clock, seed)
    }

    /// Creates a mixture for a loader. Each source is given as (number of samples, proportion,
    /// order, whether the order may be drawn from). An epoch consists of `clock.passes` passes.
    pub(crate) fn with_clock(
        sources: impl IntoIterator<Item = (u64, f64, Arc<dyn Sampler>, bool)>,
        options: &MixtureOptions,
        clock: Clock,
        seed: u64,
    ) -> Result<Self> {
        let (mut components, mut first, mut total_len) = (Vec::new(), 0u64, 0u64);
        let mut proportions = Vec::new();
        for (samples, proportion, order, is_ready) in sources {
            let pass_len = order.len(0);
            proportions.push(proportion);
            components.push(Component { first_sample: first, samples, order, pass_len, is_ready });
            (first, total_len) = match (first.checked_add(samples), total_len.checked_add(pass_len)) {
                (Some(first), Some(total_len)) => (first, total_len),
                _ => return config_error("the total number of samples overflows"),
            };
        }
        let samples_per_draw: Arc<[u64]> = options.samples_per_draw(clock.batch_size, components.len())?.into();
        let draws_per_pass =
            components.iter().zip(&*samples_per_draw).map(|(component, samples)| component.pass_len / samples);
        let max_draws = options.max_draws(draws_per_pass)?;
        let draws_per_round = options.round_len()?;
        check_proportions(&components, &max_draws, &proportions, draws_per_round)?;
        let positions_per_draw = samples_per_draw.iter().copied().max().unwrap_or(1);
        let draws_per_pass = count_draws(total_len, &apportion(&proportions, draws_per_round), &samples_per_draw)?;
        let Some(positions_per_pass) = draws_per_pass.checked_mul(positions_per_draw) else {
            return config_error("the total number of samples overflows");
        };
        let Some(positions_per_epoch) = positions_per_pass.checked_mul(clock.passes) else {
            return config_error(format!("{} passes of {positions_per_pass} samples overflow", clock.passes));
        };
        let mut quotas = Quotas::new(draws_per_round, max_draws.clone().into(), &proportions);
        let check = |proportions: &[f64]| check_proportions(&components, &max_draws, proportions, draws_per_round);
        options.apply_schedule(&mut quotas, &proportions, (&samples_per_draw, positions_per_pass, clock), check)?;
        Ok(Mixture {
            components: components.into(),
            quotas: Arc::new(quotas),
            positions_per_epoch,
            samples_per_draw,
            positions_per_draw,
            has_batch_sizes: !options.batch_sizes().is_empty(),
            seed,
            updates: [].into(),
        })
    }

    /// Returns a different seed for each source, so that sources of the same length are shuffled
    /// differently.
    pub(crate) fn source_seed(seed: u64, source: usize) -> u64 {
        mix(seed ^ mix(source as u64))
    }

    /// Sets the number of samples per epoch. Epochs are consecutive sections of one sequence, so
    /// `draws` only changes where each epoch begins. Scheduled changes keep the positions that
    /// [`with_options`](Mixture::with_options) computed from the previous length of an epoch.
    #[must_use]
    pub fn draws(mut self, draws: u64) -> Self {
        self.positions_per_epoch = draws;
        self
    }

    fn positions_per_round(&self) -> u64 {
        self.quotas.draws_per_round * self.positions_per_draw
    }

    fn round_key(&self, round: u64) -> u64 {
        epoch_key(!self.seed, round)
    }

    /// The result wraps after 2^64 positions, but no run is that long.
    fn run_position(&self, epoch: u64, position: u64) -> u64 {
        epoch.wrapping_mul(self.positions_per_epoch).wrapping_add(position)
    }

    /// Returns the source of a draw, and the number of earlier draws from this
    /// source.
    fn source_and_prior_draws(&self, draw: u64) -> (usize, u64) {
        let (round, draw_in_round) = (draw / self.quotas.draws_per_round, draw % self.quotas.draws_per_round);
        let section = &self.quotas.sections[self.quotas.section_index(round)];
        let ticket = Permutation::new(section.draws).apply(self.round_key(round), draw_in_round);
        let source = section.quotas.partition_point(|quota| quota.ticket_end <= ticket);
        let quota = section.quotas[source];
        (
            source,
            quota.draws_before + (round - section.first_round) * quota.draws + ticket
                - (quota.ticket_end - quota.draws),
        )
    }

    /// Returns the source at a position, the pass over that source, and the position in that pass.
    fn locate(&self, epoch: u64, position: u64) -> (&Component, u64, u64) {
        let run_position = self.run_position(epoch, position);
        let (source, prior_draws) = self.source_and_prior_draws(run_position / self.positions_per_draw);
        let (component, samples_per_draw) = (&self.components[source], self.samples_per_draw[source]);
        let sample = prior_draws * samples_per_draw + run_position % self.positions_per_draw % samples_per_draw;
        (component, sample / component.pass_len, sample % component.pass_len)
    }

    fn samples_in(&self, draw: u64) -> u64 {
        self.samples_per_draw[self.source_and_prior_draws(draw).0]
    }

    /// Takes time proportional to the number of draws in a round, plus the number of sections.
    fn count_samples(&self, draws: Range<u64>) -> u64 {
        let (draws_per_round, mut draw, mut samples) = (self.quotas.draws_per_round, draws.start, 0);
        while draw < draws.end {
            let round = draw / draws_per_round;
            let index = self.quotas.section_index(round);
            let section_end = self.quotas.sections.get(index + 1).map_or(u64::MAX, |next| next.first_round);
            let rounds = section_end.min(draws.end / draws_per_round).saturating_sub(round);
            if draw % draws_per_round == 0 && rounds > 0 {
                samples += rounds * self.quotas.sections[index].sample_count(&self.samples_per_draw);
                draw += rounds * draws_per_round;
            } else {
                let round_end = draws.end.min((round + 1) * draws_per_round);
                samples += (draw..round_end).map(|draw| self.samples_in(draw)).sum::<u64>();
                draw = round_end;
            }
        }
        samples
    }

    /// Returns the first position in `range` at which sample `index` of source `source` is drawn.
    /// `range` contains positions of the run, and lies within `section`.
    fn find_in_section(&self, section: &Section, source: usize, index: u64, range: (u64, u64)) -> Position {
        let (component, quota, (first, end)) = (&self.components[source], section.quotas[source], range);
        let samples_per_draw = self.samples_per_draw[source];
        if quota.draws == 0 {
            return Position::Absent;
        }
        // A source's samples are numbered by their order over all passes. The numbers are shuffled
        // within each round, so the search covers complete rounds.
        let (samples_before, samples_per_round) =
            (quota.draws_before * samples_per_draw, quota.draws * samples_per_draw);
        let round_of = |sample: u64| section.first_round + (sample - samples_before) / samples_per_round;
        let last_round = (end - 1) / self.positions_per_round();
        let mut sample =
            samples_before + (first / self.positions_per_round() - section.first_round) * samples_per_round;
        let mut nearest: Option<u64> = None;
        loop {
            let pass = sample / component.pass_len;
            match component.order.position(pass, index, sample % component.pass_len) {
                Position::Unknown => return Position::Unknown,
                Position::At(position) if position < component.pass_len => {
                    sample = pass * component.pass_len + position
                }
                Position::At(_) | Position::Absent => {
                    sample = (pass + 1) * component.pass_len;
                    if nearest.is_none() && round_of(sample) <= last_round {
                        continue;
                    }
                    if nearest.is_none_or(|nearest| round_of(sample) > nearest / self.positions_per_round()) {
                        break;
                    }
                    continue;
                }
            }
            let round = round_of(sample);
            if round > nearest.map_or(last_round, |nearest| nearest / self.positions_per_round()) {
                break;
            }
            let offset = (sample - samples_before) % samples_per_round;
            let ticket = quota.ticket_end - quota.draws + offset / samples_per_draw;
            let draw_in_round = Permutation::new(section.draws).invert(self.round_key(round), ticket);
            let draw = round * self.quotas.draws_per_round + draw_in_round;
            let position = draw * self.positions_per_draw + offset % samples_per_draw;
            if position >= first {
                nearest = Some(nearest.map_or(position, |nearest| nearest.min(position)));
            }
            sample += 1;
        }
        nearest.filter(|&nearest| nearest < end).map_or(Position::Absent, Position::At)
    }
}

fn config_error<T>(cause: impl fmt::Display) -> Result<T> {
    Err(Error::config(format!("mixture: {cause}")))
}

/// Returns the number of draws per pass, if a pass has at most `samples` samples. `quotas` are the
/// draws per round, and `samples_per_draw` the samples per draw, from each source.
fn count_draws(samples: u64, quotas: &[u64], samples_per_draw: &[u64]) -> Result<u64> {
    let samples_per_round: u128 =
        quotas.iter().zip(samples_per_draw).map(|(quota, samples)| u128::from(*quota) * u128::from(*samples)).sum();
    let draws_per_round = quotas.iter().map(|quota| u128::from(*quota)).sum::<u128>();
    let draws_per_pass = u128::from(samples) * draws_per_round / samples_per_round;
    if draws_per_pass == 0 {
        return config_error(format!(
            "single_dataset_batches: an epoch of {samples} samples is smaller than one global batch of {}",
            samples_per_round.div_ceil(draws_per_round)
        ));
    }
    Ok(draws_per_pass as u64)
}

fn check_proportions(
    components: &[Component],
    max_draws: &[u64],
    proportions: &[f64],
    draws_per_round: u64,
) -> Result<()> {
    if proportions.len() != components.len() {
        let given = counted(proportions.len() as u64, "proportion", "proportions");
        return config_error(format!("{given}, but {}", counted(components.len() as u64, "source", "sources")));
    }
    if let Some(component) = proportions.iter().position(|p| !p.is_finite() || *p < 0.0) {
        return config_error(format!(
            "proportion {component} is {}: expected a finite number of at least 0",
            proportions[component]
        ));
    }
    if proportions.iter().all(|p| *p == 0.0) {
        return config_error(format!("all {} proportions are 0", proportions.len()));
    }
    let quotas = apportion(proportions, draws_per_round);
    for (source, (&proportion, component)) in proportions.iter().zip(components).enumerate() {
        if proportion > 0.0 && quotas[source] == 0 {
            return config_error(format!(
                "proportion {source} is {proportion}, which is less than one draw in {draws_per_round}"
            ));
        }
        if quotas[source] > 0 && component.pass_len == 0 {
            return config_error(format!("source {source} has no samples to draw, but its proportion is {proportion}"));
        }
        if quotas[source] > 0 && !component.is_ready {
            return config_error(format!(
                "source {source} cannot get the proportion {proportion}: its weights or labels were not read, because \
                 its proportion was 0 when the loader was opened; give it a small proportion from the start"
            ));
        }
        if quotas[source] > 0 && max_draws[source] == 0 {
            return config_error(format!("source {source} is drawn once but has fewer samples than a batch"));
        }
    }
    Ok(())
}

impl Sampler for Mixture {
    fn len(&self, epoch: u64) -> u64 {
        match self.quotas.total_draws() {
            Some(end) => (end * self.positions_per_draw)
                .saturating_sub(epoch.saturating_mul(self.positions_per_epoch))
                .min(self.positions_per_epoch),
            None => self.positions_per_epoch,
        }
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.occurrence(epoch, position).index
    }

    fn occurrence(&self, epoch: u64, position: u64) -> Occurrence {
        let (component, pass, place) = self.locate(epoch, position);
        let Occurrence { index, variant } = component.order.occurrence(pass, place);
        assert!(
            index < component.samples,
            "mixture: a sampler returned sample {index}, but its source has {} samples",
            component.samples
        );
        Occurrence { index: component.first_sample + index, variant }
    }

    fn position(&self, epoch: u64, index: u64, from: u64) -> Position {
        let source = self.components.partition_point(|component| component.first_sample + component.samples <= index);
        let Some(component) = self.components.get(source) else { return Position::Absent };
        let Some(epoch_end) =
            epoch.checked_add(1).and_then(|next_epoch| next_epoch.checked_mul(self.positions_per_epoch))
        else {
            return Position::Unknown;
        };
        let epoch_start = epoch_end - self.positions_per_epoch;
        let (mut first, end) = (epoch_start.saturating_add(from), epoch_start + self.len(epoch));
        while first < end {
            let section = self.quotas.section_index(first / self.positions_per_round());
            let next = self.quotas.sections.get(section + 1);
            let section_end = next.map_or(end, |next| end.min(next.first_round * self.positions_per_round()));
            match self.find_in_section(
                &self.quotas.sections[section],
                source,
                index - component.first_sample,
                (first, section_end),
            ) {
                Position::Absent => first = section_end,
                Position::At(sample) => return Position::At(sample - epoch_start),
                Position::Unknown => return Position::Unknown,
            }
        }
        Position::Absent
    }
}

impl UpdatableOrder for Mixture {
    fn with_update(&self, update: Update, _first_needed_position: u64) -> Result<(Arc<dyn UpdatableOrder>, u64)> {
        check_proportions(&self.components, &self.quotas.max_draws, &update.values, self.quotas.draws_per_round)?;
        let (round, mut quotas) = (update.from.div_ceil(self.positions_per_round()), Quotas::clone(&self.quotas));
        let values = update.values.clone();
        quotas.set_proportions(round, &values);
        let mut updates = self.updates.to_vec();
        updates.retain(|earlier| earlier.from < update.from);
        updates.push(update);
        let (quotas, updates) = (Arc::new(quotas), updates.into());
        let changed = Mixture { quotas, updates, ..self.clone() };
        let [new_end, old_end] = [&changed, self].map(|mixture| mixture.quotas.total_draws());
        if new_end != old_end {
            let describe_end = |mixture: &Mixture, end: Option<u64>| match end {
                Some(end) => format!("after {} samples", mixture.count_samples(0..end)),
                None => "never".to_owned(),
            };
            return config_error(format!(
                "with the proportions {values:?}, the run would end {} instead of {}; raise the proportion of a repeated source above 0",
                describe_end(&changed, new_end),
                describe_end(self, old_end)
            ));
        }
        Ok((Arc::new(changed), round * self.positions_per_round()))
    }

    fn history(&self) -> History {
        History { updates: self.updates.to_vec(), recomputable_from: 0 }
    }

    fn positions_per_epoch(&self) -> u64 {
        self.positions_per_epoch
    }

    fn batched_order(self: Arc<Self>) -> Option<Arc<dyn BatchedOrder>> {
        if self.has_batch_sizes { Some(self) } else { None }
    }
}

impl BatchedOrder for Mixture {
    fn num_batches(&self, epoch: u64) -> u64 {
        self.len(epoch) / self.positions_per_draw
    }

    fn sample_count(&self, epoch: u64) -> u64 {
        let first = self.run_position(epoch, 0) / self.positions_per_draw;
        self.count_samples(first..first + self.num_batches(epoch))
    }

    fn max_batch_size(&self) -> u64 {
        self.positions_per_draw
    }

    fn positions(&self, epoch: u64, batch: u64) -> Range<u64> {
        let start = batch * self.positions_per_draw;
        start..start + self.samples_in(self.run_position(epoch, start) / self.positions_per_draw)
    }

    fn batch_of(&self, epoch: u64, position: u64) -> Option<u64> {
        let batch = position / self.positions_per_draw;
        self.positions(epoch, batch).contains(&position).then_some(batch)
    }

    fn min_position(&self, batch: u64) -> u64 {
        batch * self.positions_per_draw
    }

    fn dataset_batch_sizes(&self) -> Vec<u64> {
        self.samples_per_draw.to_vec()
    }
}

impl fmt::Debug for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixture")
            .field("quotas", &self.quotas)
            .field("draws", &self.positions_per_epoch)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Subset, Weighted, Windowed};

    fn mixture() -> Mixture {
        Mixture::new(&[(1000, 0.5), (70, 0.2), (0, 0.0), (50_000, 0.3)], 3).unwrap()
    }

    #[test]
    #[should_panic(expected = "mixture: a sampler returned sample 300, but its source has 300 samples")]
    fn an_index_outside_the_source_panics() {
        let sequence = |len| -> Arc<dyn Sampler> { Arc::new(crate::sampler::Sequential::new(len)) };
        let order = Mixture::of([(300, 1.0, sequence(301)), (40, 1.0, sequence(40))], 1).unwrap();
        (0..order.len(0)).map(|position| order.index(0, position)).for_each(drop);
        (0..order.len(0)).map(|position| order.index(1, position)).for_each(drop);
    }

    #[test]
    fn changes_at_a_step_of_an_empty_batch_begin_like_those_of_single_samples() {
        use crate::sampler::{At, Sequential};
        let options = MixtureOptions::new().proportions(At::Step(500), [0.0, 1.0]);
        let sources =
            || [1.0, 0.0].map(|proportion| (100, proportion, Arc::new(Sequential::new(100)) as Arc<dyn Sampler>));
        let orders = [0, 1].map(|batch| Mixture::with_options(sources(), &options, batch, 1).unwrap());
        let samples = |order: &Mixture| (0..1000).map(|position| order.index(0, position)).collect::<Vec<_>>();
        assert_eq!(samples(&orders[0]), samples(&orders[1]));
    }

    #[test]
    fn proportions_are_exact_per_round_and_close_per_batch() {
        let order = mixture().draws(60_000);
        let mut counts = [0u64; 4];
        let component = |sample: u64| match sample {
            0..1000 => 0,
            1000..1070 => 1,
            _ => 3,
        };
        let mut min_count = u64::MAX;
        for batch in 0..600 {
            let before = counts[0];
            (0..100).for_each(|i| counts[component(order.index(1, batch * 100 + i))] += 1);
            min_count = min_count.min(counts[0] - before);
            if batch % 100 == 99 {
                assert_eq!(counts, [5000, 2000, 0, 3000].map(|n| n * (batch / 100 + 1)));
            }
        }
        assert!(
            (30..50).contains(&min_count),
            "a batch of 100 contains {min_count} samples from a source with a proportion of one half"
        );
    }

    /// The variants are the numbers of the passes.
    #[test]
    fn a_pass_contains_each_sample_once_across_epochs() {
        let order = mixture().draws(7_777);
        let mut seen = std::collections::HashSet::new();
        let mut passes = [0; 4];
        for draw in 0..140_000 {
            let (epoch, position) = (draw / 7_777, draw % 7_777);
            let Occurrence { index: sample, variant: pass } = order.occurrence(epoch, position);
            assert!(seen.insert((sample, pass)), "sample {sample} occurs twice in pass {pass}");
            let component = [0, 1000, 1070].iter().filter(|first| sample >= **first).count() - 1;
            passes[component] = passes[component].max(pass);
        }
        assert_eq!(passes, [70_000 / 1000 - 1, 28_000 / 70 - 1, 0, 0]);
        assert_eq!(seen.iter().filter(|(sample, _)| *sample < 1000).count(), 70_000);
        let other = mixture().draws(1000);
        assert!((0..5000).all(|draw| other.index(draw / 1000, draw % 1000) == order.index(0, draw)));
    }

    /// The documentation of [`Mixture`] states these numbers.
    #[test]
    fn passes_of_small_sources_are_even_after_each_round() {
        let order = Mixture::new(&[(500, 1.0), (500, 1.0)], 7).unwrap();
        let draw = |draw: u64| order.index(draw / 1000, draw % 1000);
        let first: Vec<u64> = (0..10_000).map(draw).filter(|sample| *sample < 500).take(500).collect();
        let different = first.iter().collect::<std::collections::HashSet<_>>().len();
        assert!(
            (290..350).contains(&different),
            "{different} of 500 samples are different; about 316 are expected by chance"
        );
        let mut turns = [0u64; 1000];
        for period in 1..=3 {
            ((period - 1) * 10_000..period * 10_000).for_each(|position| turns[draw(position) as usize] += 1);
            assert!(turns.iter().all(|&n| n == period * 10), "all samples are drawn equally often");
        }
        let uneven = Mixture::new(&[(700, 1.0), (300, 1.0)], 7).unwrap();
        let mut turns = [0u64; 1000];
        (0..10_000).for_each(|position| turns[uneven.index(position / 1000, position % 1000) as usize] += 1);
        assert!(turns[..700].iter().all(|&n| n == 7 || n == 8) && turns[700..].iter().all(|&n| n == 16 || n == 17));
    }

    /// Compares a mixture with a loop that takes the next quota from each source in every round.
    #[test]
    fn each_round_draws_the_next_samples_of_every_order() {
        let list: Arc<[u64]> = [5, 3, 3, 9].into();
        let weights: Vec<f64> = (0..300).map(|i| f64::from(i % 3)).collect();
        let orders: [(u64, f64, Arc<dyn Sampler>); 3] = [
            (1000, 0.5, Arc::new(Windowed::new(1000, 3, 100))),
            (10, 0.1, Arc::new(Subset::new(list, Shuffled::new(4, 1)).unwrap())),
            (300, 0.4, Arc::new(Weighted::new(&weights, 8).unwrap())),
        ];
        let mixture = Mixture::of(orders.clone(), 3).unwrap();
        assert_eq!(mixture.len(0), 1000 + 4 + 300);
        let (mixture, mut turns) = (mixture.draws(10_000), [0u64; 3]);
        for period in 0..4 {
            let mut actual: Vec<_> =
                (0..10_000).map(|p| mixture.occurrence(period, p)).map(|o| (o.index, o.variant)).collect();
            let mut expected = Vec::new();
            for ((first, quota), ((_, _, order), prior_draws)) in
                [(0, 5000), (1000, 1000), (1010, 4000)].into_iter().zip(orders.iter().zip(&mut turns))
            {
                for _ in 0..quota {
                    let (pass, place) = (*prior_draws / order.len(0), *prior_draws % order.len(0));
                    let Occurrence { index, variant } = order.occurrence(pass, place);
                    expected.push((first + index, variant));
                    *prior_draws += 1;
                }
            }
            actual.sort_unstable();
            expected.sort_unstable();
            assert!(actual == expected, "period {period}");
        }
    }

    #[test]
    fn invalid_proportions_are_refused() {
        let check_refused = |sources: &[(u64, f64)], words: &str| {
            let e = Mixture::new(sources, 0).unwrap_err().to_string();
            assert!(e.contains(words), "{e}");
        };
        check_refused(&[(1, 1.0), (2, f64::NAN)], "proportion 1 is NaN");
        check_refused(&[(1, 1.0), (2, -1.0)], "proportion 1 is -1");
        check_refused(&[(1, 0.0), (2, 0.0)], "all 2 proportions are 0");
        check_refused(&[], "all 0 proportions are 0");
        check_refused(&[(1, 1.0), (0, 1.0)], "source 1 has no samples");
        check_refused(&[(1, 1.0), (2, 1e-6)], "less than one draw in 10000");
        check_refused(&[(u64::MAX, 1.0), (2, 1.0)], "the total number of samples overflows");
    }
}
