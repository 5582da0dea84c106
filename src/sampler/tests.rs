//! Compares orders that change during a run with lists built draw by draw.

use std::sync::Arc;

use super::live_order::{History, LiveOrder, UpdatableOrder, Update, UpdateKind};
use super::mixture_options::{At, Clock, Curve, MixtureOptions};
use super::permutation::{Permutation, epoch_key};
use super::quotas::apportion;
use super::schedule::{Entry, Schedule};
use super::{LastBatch, Mixture, Occurrence, Position, Rank, Repeat, Rng, Sampler, Shuffled, Subset, Weighted};

/// The range of a change in samples, whether it follows a cosine, and the new proportions.
type Ramp = (u64, u64, bool, Vec<f64>);

/// A mixture, drawn one round after the other.
#[derive(Debug, Clone)]
struct NaiveMixture {
    lens: Vec<u64>,
    single_pass: Vec<usize>,
    proportions: Vec<f64>,
    schedule: Vec<Ramp>,
    calls: Vec<(u64, Vec<f64>)>,
    round: u64,
    samples_per_draw: Vec<u64>,
    seed: u64,
}

impl NaiveMixture {
    fn positions_per_draw(&self) -> u64 {
        self.samples_per_draw.iter().copied().max().unwrap()
    }

    fn proportions_at(&self, round: u64) -> Vec<f64> {
        let (positions_per_round, now) =
            (self.round * self.positions_per_draw(), round * self.round * self.positions_per_draw());
        if let Some((_, proportions)) = self.calls.iter().rev().find(|(from, _)| *from <= now) {
            return proportions.clone();
        }
        let mut current = self.proportions.clone();
        // Normalize with the same operations as the mixture, because different rounding could
        // decide a tie between two remainders differently.
        let normal = |list: &[f64]| {
            let largest = list.iter().copied().fold(0.0, f64::max);
            list.iter().map(|p| p / largest / list.iter().map(|p| p / largest).sum::<f64>()).collect::<Vec<_>>()
        };
        let mut before = normal(&current);
        for (start, end, cosine, proportions) in &self.schedule {
            let (steps, after) = (((end - start) / positions_per_round).min(100), normal(proportions));
            for step in (0..steps).filter(|step| start + (end - start) * step / steps <= now) {
                let x = (step as f64 + 0.5) / steps as f64;
                let x = if *cosine { Curve::Cosine.apply(x) } else { x };
                current = before.iter().zip(&after).map(|(before, after)| before + (after - before) * x).collect();
            }
            if *end <= now {
                current.clone_from(proportions);
            }
            before = after;
        }
        current
    }

    /// `remaining` limits the draws from each source.
    fn quotas(&self, round: u64, remaining: &[u64]) -> Vec<u64> {
        let mut proportions = self.proportions_at(round);
        let mut ended = vec![0; remaining.len()];
        loop {
            proportions
                .iter_mut()
                .zip(remaining)
                .filter(|(_, draws_left)| **draws_left == 0)
                .for_each(|(p, _)| *p = 0.0);
            let quotas = apportion(&proportions, self.round - ended.iter().sum::<u64>());
            let exhausted: Vec<usize> = (0..remaining.len()).filter(|&k| quotas[k] > remaining[k]).collect();
            if exhausted.is_empty() {
                return quotas.iter().zip(&ended).map(|(quota, ended)| quota + ended).collect();
            }
            exhausted.into_iter().for_each(|k| (ended[k], proportions[k]) = (remaining[k], 0.0));
        }
    }

    fn list(&self, count: usize) -> Vec<Vec<(u64, u64)>> {
        let (mut draws, mut drawn, mut round) = (Vec::new(), vec![0; self.lens.len()], 0);
        while draws.len() < count {
            let remaining_of = |k: usize| {
                if self.single_pass.contains(&k) {
                    self.lens[k] / self.samples_per_draw[k] - drawn[k]
                } else {
                    u64::MAX
                }
            };
            let remaining: Vec<u64> = (0..self.lens.len()).map(remaining_of).collect();
            let quotas = self.quotas(round, &remaining);
            let mut tickets = Vec::new();
            for (source, quota) in quotas.into_iter().enumerate() {
                tickets.extend((0..quota).map(|turn| (source, drawn[source] + turn)));
                drawn[source] += quota;
            }
            let permutation = Permutation::new(tickets.len() as u64);
            for place in 0..tickets.len() as u64 {
                let (source, turn) = tickets[permutation.apply(epoch_key(!self.seed, round), place) as usize];
                let (len, first, unit) =
                    (self.lens[source], self.lens[..source].iter().sum::<u64>(), self.samples_per_draw[source]);
                let order = Shuffled::new(len, Mixture::source_seed(self.seed, source));
                let samples =
                    (turn * unit..(turn + 1) * unit).map(|sample| order.occurrence(sample / len, sample % len));
                draws.push(samples.map(|Occurrence { index, variant }| (first + index, variant)).collect());
            }
            round += 1;
            if (tickets.len() as u64) < self.round {
                break;
            }
        }
        draws.truncate(count);
        draws
    }

    fn call(&mut self, from: u64, proportions: Vec<f64>) {
        self.calls.retain(|call| call.0 < from);
        self.calls.push((from, proportions));
    }
}

struct Random(Rng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn proportions(&mut self, sources: usize) -> Vec<f64> {
        loop {
            let list: Vec<f64> = (0..sources).map(|_| self.below(4) as f64).collect();
            if list.iter().any(|p| *p > 0.0) {
                return list;
            }
        }
    }
}

/// The number of ranks differs from batch to batch.
fn delivered_batches(
    order: &Arc<dyn UpdatableOrder>,
    random: &mut Random,
    batch: u64,
    last: LastBatch,
    epoch: u64,
) -> Vec<Vec<(u64, u64)>> {
    let schedule = |rank, world| {
        let order: Arc<dyn Sampler> = Arc::new(order.clone());
        Schedule::new(order, batch, last, Rank::new(rank, world).unwrap())
    };
    let schedule = |rank, world| schedule(rank, world).with_batched_order(order.clone().batched_order());
    let batches = schedule(0, 1).num_batches(epoch);
    let samples_of_batch = |number| {
        let (mut samples_of_ranks, mut entries) = (Vec::new(), Vec::<Entry>::new());
        let world = 1 + random.below(4) as usize;
        for rank in 0..world {
            assert_eq!(schedule(rank, world).num_batches(epoch), batches);
            schedule(rank, world).fill(epoch, number, &mut entries);
            samples_of_ranks
                .extend(entries.iter().filter(|entry| entry.valid).map(|entry| (entry.sample, entry.variant)));
        }
        samples_of_ranks
    };
    let lists: Vec<Vec<_>> = (0..batches).map(samples_of_batch).collect();
    assert_eq!(schedule(0, 1).sample_count(epoch), lists.iter().flatten().count() as u64);
    lists
}

fn compare_next(order: &Arc<dyn UpdatableOrder>, batches: &[Vec<(u64, u64)>], (epoch, sample, from): (u64, u64, u64)) {
    let inner: Arc<dyn Sampler> = Arc::new(order.clone());
    let schedule =
        Schedule::new(inner, 1, LastBatch::Keep, Rank::SINGLE).with_batched_order(order.clone().batched_order());
    let scanned =
        (from..batches.len() as u64).find(|&batch| batches[batch as usize].iter().any(|drawn| drawn.0 == sample));
    assert_eq!(schedule.next_batch_of_sample(epoch, sample, from), scanned.map_or(Position::Absent, Position::At));
}

fn saved_history(order: &dyn UpdatableOrder) -> History {
    let History { updates, recomputable_from } = order.history();
    let text = serde_json::to_string(&updates).unwrap();
    History { updates: serde_json::from_str(&text).unwrap(), recomputable_from }
}

/// A random mixture: its naive list, its options, and how its epochs are divided into batches.
struct Configuration {
    naive: NaiveMixture,
    options: MixtureOptions,
    clock: Clock,
    epoch: u64,
}

fn random_configuration(random: &mut Random) -> Option<Configuration> {
    let sources = 1 + random.below(4) as usize;
    let lens: Vec<u64> = (0..sources).map(|_| 1 + random.below(60)).collect();
    let (mut batch, passes) = (1 + random.below(9), 1 + random.below(3));
    let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad][random.below(3) as usize];
    let single_pass: Vec<usize> = (0..sources).filter(|_| random.below(4) == 0).collect();
    let (mut samples_per_draw, has_batch_sizes) = (vec![1; sources], random.below(4) == 0);
    if has_batch_sizes {
        // Each of up to four ranks needs a sample in every batch.
        samples_per_draw = (0..sources).map(|_| 4 + random.below(6)).collect();
        batch = samples_per_draw.iter().copied().max().unwrap();
    } else if random.below(3) == 0 {
        samples_per_draw = vec![batch; sources];
    }
    let unit = samples_per_draw.iter().copied().max().unwrap();
    let (proportions, round, seed) = (random.proportions(sources), 12 + random.below(40), random.below(u64::MAX));
    let total = lens.iter().sum::<u64>();
    let per_round: u64 =
        apportion(&proportions, round).iter().zip(&samples_per_draw).map(|(quota, unit)| quota * unit).sum();
    let epoch = total * round / per_round * unit * passes;
    let steps = if last == LastBatch::Drop { epoch / batch } else { epoch.div_ceil(batch) };
    if steps == 0 {
        return None;
    }
    let mut options = MixtureOptions::new()
        .draws_per_round(round)
        .single_pass(single_pass.iter().copied())
        .single_dataset_batches(unit > 1);
    if has_batch_sizes {
        options = options.global_batch_sizes(samples_per_draw.iter().map(|unit| *unit as usize));
    }
    let (mut schedule, mut end) = (Vec::new(), 0);
    for _ in 0..random.below(3) {
        let (from, until) = (end + random.below(300), 1 + random.below(4000));
        let (point, start) = match random.below(3) {
            0 if !has_batch_sizes => (At::Sample(from), from),
            1 => (At::Epoch(from.div_ceil(epoch)), from.div_ceil(epoch) * epoch),
            _ => {
                let step = from.div_ceil(epoch) * steps + random.below(steps);
                (At::Step(step), step / steps * epoch + step % steps * batch)
            }
        };
        let (proportions, cosine) = (random.proportions(sources), random.below(2) == 0);
        end = if random.below(2) == 0 { start } else { start + until };
        let mut until = At::Sample(end);
        if has_batch_sizes && end > start {
            end = end.next_multiple_of(epoch);
            until = At::Epoch(end / epoch);
        }
        options = match (end > start, cosine) {
            (false, _) => options.proportions(point, proportions.clone()),
            (true, true) => options.cosine(point, until, proportions.clone()),
            (true, false) => options.linear(point, until, proportions.clone()),
        };
        schedule.push((start, end, cosine, proportions));
    }
    let naive =
        NaiveMixture { lens, single_pass, proportions, schedule, calls: Vec::new(), round, samples_per_draw, seed };
    Some(Configuration { naive, options, clock: Clock { batch_size: batch, last_batch: last, passes }, epoch })
}

fn is_too_short(e: &crate::Error, naive: &NaiveMixture) -> bool {
    naive.positions_per_draw() > 1 && e.to_string().contains("fewer samples than a batch")
}

fn compare_mixture(random: &mut Random) -> usize {
    let Some(Configuration { mut naive, options, clock, epoch }) = random_configuration(random) else { return 0 };
    let orders = naive.lens.iter().zip(&naive.proportions).enumerate().map(|(number, (&len, &proportion))| {
        let order: Arc<dyn Sampler> = Arc::new(Shuffled::new(len, Mixture::source_seed(naive.seed, number)));
        (len, proportion, order, true)
    });
    let mixture = match Mixture::with_clock(orders, &options, clock, naive.seed) {
        Ok(mixture) => mixture,
        Err(e) => {
            assert!(is_too_short(&e, &naive), "{e}");
            return 0;
        }
    };
    let total = naive.lens.iter().sum();
    let updates = LiveOrder::new(UpdateKind::Proportions, Arc::new(mixture), total, None);
    for _ in 0..random.below(4) {
        let (from, proportions) = (random.below(3 * epoch + 100), random.proportions(naive.lens.len()));
        match updates.update(from, &proportions, 0) {
            Ok(_) => naive.call(from, proportions),
            Err(e) if is_too_short(&e, &naive) => {}
            Err(e) => assert!(e.to_string().contains("the run would end") && !naive.single_pass.is_empty(), "{e}"),
        }
    }
    let unit = naive.positions_per_draw();
    let per_epoch = (epoch / unit) as usize;
    let list = naive.list(3 * per_epoch);
    let has_own_sizes = naive.samples_per_draw.iter().any(|other| *other != unit);
    let (resumed, changed) = (updates.replay(&saved_history(&*updates.current())).unwrap(), updates.current());
    for number in 0..3 {
        let (start, len) = (number as usize * per_epoch, list.len());
        let draws = &list[start.min(len)..(start + per_epoch).min(len)];
        let shown = || format!("epoch {number} of {naive:?} with {options:?}");
        assert_eq!(changed.len(number), draws.len() as u64 * unit, "{}", shown());
        let samples: Vec<_> = draws.iter().flatten().copied().collect();
        let (batch, drops) = (clock.batch_size as usize, clock.last_batch == LastBatch::Drop);
        let mut expected: Vec<Vec<_>> = samples.chunks(batch).map(<[_]>::to_vec).collect();
        expected.pop_if(|last| drops && last.len() < batch);
        if has_own_sizes {
            expected = draws.to_vec();
        }
        for order in [&changed, &resumed] {
            assert!(
                delivered_batches(order, random, clock.batch_size, clock.last_batch, number) == expected,
                "{}",
                shown()
            );
        }
        let positions = draws.iter().zip(0..).flat_map(|(draw, first)| (first * unit..).zip(draw));
        let positions: Vec<_> = positions.collect();
        for _ in 0..3 {
            let (sample, from) = (random.below(total), random.below(draws.len() as u64 * unit + 1));
            let scanned = positions.iter().find(|(position, drawn)| *position >= from && drawn.0 == sample);
            let scanned = scanned.map_or(Position::Absent, |(position, _)| Position::At(*position));
            assert_eq!(changed.position(number, sample, from), scanned, "{sample} from {from}, {}", shown());
            if has_own_sizes {
                compare_next(&changed, &expected, (number, sample, random.below(expected.len() as u64 + 1)));
            }
        }
    }
    list.iter().flatten().count()
}

/// Compares changes of weights with reference orders that have constant weights.
fn compare_weights(random: &mut Random) -> usize {
    let (samples, batch, passes) = (2 + random.below(40), 1 + random.below(9), 1 + random.below(2));
    let seed = random.below(u64::MAX);
    let subset: Option<Vec<u64>> =
        (random.below(2) == 0).then(|| (0..1 + random.below(samples)).map(|_| random.below(samples)).collect());
    let drawn_samples = subset.clone().unwrap_or_else(|| (0..samples).collect());
    let mut weights = || {
        let list: Vec<f64> = (0..samples).map(|_| random.below(4) as f64 + 0.5).collect();
        list
    };
    let of_subset = |weights: &[f64]| drawn_samples.iter().map(|&sample| weights[sample as usize]).collect::<Vec<_>>();
    let order = |weights: &[f64]| -> Arc<dyn UpdatableOrder> {
        let weighted = Weighted::new(&of_subset(weights), seed).unwrap();
        match &subset {
            Some(subset) => {
                let order = Subset::new(subset.clone(), weighted).unwrap();
                if passes > 1 { Arc::new(Repeat::new(passes, order)) } else { Arc::new(order) }
            }
            None if passes > 1 => Arc::new(Repeat::new(passes, weighted)),
            None => Arc::new(weighted),
        }
    };
    let first = weights();
    let mut tables = vec![(0, order(&first))];
    let (changed, new_weights) = (order(&first), [weights(), weights(), weights()]);
    let updates = LiveOrder::new(UpdateKind::Weights, changed, samples, subset.clone().map(Arc::from));
    let epoch = drawn_samples.len() as u64 * passes;
    let mut first_needed_position = 0;
    for new in &new_weights[..random.below(4) as usize] {
        let from = first_needed_position + random.below(2 * epoch);
        first_needed_position = from / epoch * epoch;
        updates.update(from, new, first_needed_position).unwrap();
        tables.retain(|table| table.0 < from);
        tables.push((from, order(new)));
    }
    let changed = updates.current();
    let history = saved_history(&*updates.current());
    let resumed = updates.replay(&history).unwrap();
    for number in first_needed_position / epoch..first_needed_position / epoch + 2 {
        let occurrence_at = |position: u64| {
            let sample = number * epoch + position;
            tables.iter().rev().find(|table| table.0 <= sample).unwrap().1.occurrence(number, position)
        };
        let expected: Vec<_> = (0..epoch).map(occurrence_at).map(|o| (o.index, o.variant)).collect();
        for order in [&changed, &resumed] {
            let actual = delivered_batches(order, random, batch, LastBatch::Keep, number).concat();
            assert_eq!(actual, expected, "epoch {number}");
        }
    }
    2 * epoch as usize
}

#[test]
fn a_cosine_ramp_follows_the_cosine() {
    for step in 0..=1000 {
        let x = f64::from(step) / 1000.0;
        let expected = (1.0 - (std::f64::consts::PI * x).cos()) / 2.0;
        assert!((Curve::Cosine.apply(x) - expected).abs() < 1e-14, "{x}");
    }
}

/// Tests random mixtures and random weights. `WARPFEED_ORDERS` sets the number of each.
#[test]
fn changing_orders_equal_lists_built_draw_by_draw() {
    let count =
        std::env::var("WARPFEED_ORDERS").map_or(400, |count| count.parse().expect("WARPFEED_ORDERS is a number"));
    let mut samples = 0;
    for number in 0..count {
        let random = &mut Random(Rng::new(51, number, 0));
        samples += compare_mixture(random);
        samples += compare_weights(random);
    }
    assert!(samples as u64 > 200 * count, "only {samples} samples in {count} configurations");
}

#[test]
fn weights_of_finished_epochs_are_forgotten_with_an_error() {
    let weighted: Arc<dyn UpdatableOrder> = Arc::new(Weighted::new(&[1.0; 10], 3).unwrap());
    let (changed, _) = weighted.with_update(Update { from: 25, values: vec![2.0; 10] }, 20).unwrap();
    assert!((20..30).all(|draw| changed.index(draw / 10, draw % 10) < 10), "the weights of epoch 2 are known");
    let (changed, _) = changed.with_update(Update { from: 31, values: vec![3.0; 10] }, 30).unwrap();
    assert_eq!(changed.history().updates.len(), 2);
    let (changed, _) = changed.with_update(Update { from: 55, values: vec![4.0; 10] }, 50).unwrap();
    let History { updates, recomputable_from } = changed.history();
    assert_eq!((updates.iter().map(|c| c.from).collect::<Vec<_>>(), recomputable_from), (vec![31, 55], 50));
    let e = crate::error::guarded(|| Ok(changed.index(4, 9))).unwrap_err();
    assert!(e.to_string().contains("the weights of epoch 4 are no longer known"), "{e}");
    assert!(changed.index(5, 0) < 10);
}
