//! Tests changes of weights and proportions during training. A change must take effect at the
//! stated batch on all ranks, even if later batches have been prepared. A resumed run must apply
//! the same changes. Also tests mixtures with batches of a single dataset, and with datasets that
//! are drawn once.

use std::sync::{Arc, Mutex};

use crate::support::{NumberCodec, NumberSource, exit_on_hang, loader, refused};
use warpfeed::sampler::{At, MixtureOptions};
use warpfeed::source::{BatchIndex, Lookahead, Memory, OwnedSample, Prefetcher, Sample, Source};
use warpfeed::transform::{Augment, Mosaic};
use warpfeed::{Batches, Checkpoint, ErrorKind, HostBatch, LastBatch, Loader, Result};

type Step = (u64, u64, Vec<u64>);

fn step(batch: &HostBatch) -> Step {
    let valid = batch.ids().zip(batch.valid()).filter(|(_, valid)| *valid);
    (batch.epoch(), batch.batch_index(), valid.map(|(id, _)| id).collect())
}

fn run(loader: Loader, epochs: u64, mut change: impl FnMut(&Batches<HostBatch>, &Step)) -> Vec<Step> {
    let mut batches = loader.host().unwrap();
    let mut steps = Vec::new();
    for number in batches.first_epoch()..epochs {
        let mut epoch = batches.epoch(number);
        while let Some(batch) = epoch.next() {
            steps.push(step(&batch.unwrap()));
            change(&epoch, steps.last().unwrap());
        }
    }
    steps
}

fn joined(ranks: Vec<Vec<Step>>) -> Vec<Step> {
    let mut steps = ranks[0].clone();
    for rank in &ranks[1..] {
        assert_eq!(rank.len(), steps.len());
        steps.iter_mut().zip(rank).for_each(|(step, part)| step.2.extend(&part.2));
    }
    steps
}

fn set(name: &str, len: u64) -> Arc<dyn Source> {
    let sample = |i: u64| OwnedSample::new(format!("{name}/{i}")).field("img", i.to_le_bytes()).label(i as i64);
    Arc::new(Memory::new((0..len).map(sample).collect()))
}

fn mixture(options: MixtureOptions) -> Loader {
    let parts = [(set("a", 30), 0.5), (set("b", 50), 0.5)];
    let loader = Loader::mixture(parts).codec(NumberCodec).augment(Augment::train(16)).global_batch_size(10).seed(6);
    loader.mixture_options(options.draws_per_round(20)).keep_labels()
}

fn weighted(weights: &[f64; 60]) -> Loader {
    loader(NumberSource::new(60)).weights(*weights).seed(4).global_batch_size(9)
}

const OLD: [f64; 60] = [1.0; 60];

fn new() -> [f64; 60] {
    std::array::from_fn(|sample| if sample < 6 { 1.0 } else { 0.0 })
}

/// Each draw depends only on the weights at its position, so the references are orders with
/// constant weights.
#[test]
fn new_weights_begin_at_the_stated_batch_on_all_ranks() {
    exit_on_hang(|| {
        let (old, new_) = (run(weighted(&OLD), 3, |_, _| ()), run(weighted(&new()), 3, |_, _| ()));
        for (prefetch, workers, world) in [(1, 1, 1), (9, 3, 1), (4, 2, 2)] {
            for (start, after) in [((0, 0), 0), ((0, 2), 3), ((0, 6), 0), ((1, 1), 1), ((0, 3), 9)] {
                let effective = 7 * start.0 + start.1 + 1 + after;
                let rank = |rank| {
                    let loader = weighted(&OLD).prefetch(prefetch).workers(workers).rank(rank, world);
                    run(loader, 3, |batches, step| {
                        if (step.0, step.1) == start {
                            // The workers prepare later batches during this time.
                            std::thread::sleep(std::time::Duration::from_millis(10));
                            let BatchIndex { epoch, batch } = batches.set_weights(&new(), after).unwrap();
                            assert_eq!(7 * epoch + batch, effective);
                        }
                    })
                };
                let actual = joined((0..world).map(rank).collect());
                let expected = [&old[..effective as usize], &new_[effective as usize..]].concat();
                assert_eq!(actual, expected, "after {start:?} and {after} batches, prefetch {prefetch}, {world} ranks");
            }
        }
    });
}

/// The first batches of the repeated epoch are prepared before the change is requested.
#[test]
fn a_change_in_a_repeated_epoch_drops_prepared_batches() {
    exit_on_hang(|| {
        let (old, new_) = (run(weighted(&OLD), 1, |_, _| ()), run(weighted(&new()), 1, |_, _| ()));
        for (change_after, after) in [(4, 0), (4, 1), (5, 0)] {
            let mut batches = weighted(&OLD).prefetch(5).workers(2).host().unwrap();
            for _ in 0..2 {
                assert!(batches.epoch(0).map(|batch| step(&batch.unwrap())).eq(old.clone()));
            }
            let (mut epoch, mut steps) = (batches.epoch(0), Vec::new());
            while let Some(batch) = epoch.next() {
                steps.push(step(&batch.unwrap()));
                if steps.len() == change_after {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    assert_eq!(epoch.set_weights(&new(), after).unwrap().batch, change_after as u64 + after);
                }
            }
            let border = change_after + after as usize;
            assert_eq!(steps, [&old[..border], &new_[border..]].concat());
        }
    });
}

/// A batch may fail on one rank only. For all ranks to apply a change at the same batch, a failed
/// batch must count as received.
#[test]
fn a_failed_batch_counts_as_received() {
    let sample = |i: u64| {
        let image = if i % 8 == 7 { vec![0] } else { i.to_le_bytes().to_vec() };
        OwnedSample::new(i.to_string()).field("img", image).label(0)
    };
    let source = Memory::new((0..60).map(sample).collect());
    let loader =
        Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).weights(OLD).seed(4).batch_size(9);
    let new_ = run(weighted(&new()), 1, |_, _| ());
    let mut batches = loader.host().unwrap();
    let (mut epoch, mut received, mut failed) = (batches.epoch(0), 0, None);
    while let Some(batch) = epoch.next() {
        received += 1;
        match (batch, failed) {
            (Err(_), None) => {
                failed = Some(received);
                assert_eq!(epoch.set_weights(&new(), 0).unwrap(), BatchIndex { epoch: 0, batch: received });
            }
            (batch, Some(_)) => assert_eq!(step(&batch.unwrap()), new_[received as usize - 1]),
            (batch, None) => drop(batch.unwrap()),
        }
    }
    assert!(failed.is_some_and(|failed| failed < 7) && received == 7, "batch {failed:?} of {received} failed");
}

/// Sets new proportions after batches 1, 4 and 7 of each epoch. The simulated losses depend only on
/// `samples`.
fn follow_losses(batches: &Batches<HostBatch>, step: &Step, samples: &[u64]) {
    if step.1 % 3 == 1 {
        let seen = samples.iter().fold(7u64, |hash, id| hash.wrapping_mul(31).wrapping_add(*id));
        let losses = [(seen % 5) as f64, (seen / 5 % 5 + 1) as f64];
        batches.set_mixture(&losses, seen % 3).unwrap();
    }
}

fn options() -> MixtureOptions {
    MixtureOptions::new().linear(At::Step(4), At::Epoch(2), [0.1, 0.9])
}

fn train(make: impl Fn(usize) -> Loader, world: usize, stop: usize) -> (Vec<Step>, Vec<Checkpoint>) {
    let mut ranks: Vec<_> = (0..world).map(|rank| make(rank).host().unwrap()).collect();
    let mut steps = Vec::new();
    for number in ranks[0].first_epoch()..3 {
        let mut epochs: Vec<_> = ranks.iter_mut().map(|rank| rank.epoch(number)).collect();
        while steps.len() < stop {
            let batches: Vec<_> =
                epochs.iter_mut().map(|epoch| epoch.next().map(|batch| step(&batch.unwrap()))).collect();
            let Some(batches) = batches.into_iter().collect::<Option<Vec<_>>>() else { break };
            let ids: Vec<u64> = batches.iter().flat_map(|batch| batch.2.clone()).collect();
            epochs.iter().for_each(|epoch| follow_losses(epoch, &batches[0], &ids));
            steps.push((batches[0].0, batches[0].1, ids));
        }
        if steps.len() == stop {
            return (steps, epochs.iter().map(|epoch| epoch.checkpoint()).collect());
        }
    }
    (steps, ranks.iter().map(Batches::checkpoint).collect())
}

#[test]
fn proportions_that_follow_losses_are_equal_on_any_ranks() {
    exit_on_hang(|| {
        let unbroken = train(|_| mixture(options()).workers(1).prefetch(1), 1, usize::MAX).0;
        assert_eq!(unbroken.len(), 24);
        for (world, workers, prefetch) in [(1, 3, 12), (2, 2, 6), (3, 1, 2)] {
            let make = |rank| mixture(options()).workers(workers).prefetch(prefetch).rank(rank, world);
            assert_eq!(train(make, world, usize::MAX).0, unbroken, "{world} ranks");
        }
        let plain = run(mixture(options()), 3, |_, _| ());
        assert!(
            plain[..3] == unbroken[..3] && plain[8..] != unbroken[8..],
            "the calls change no batch, or batches before them"
        );
    });
}

#[test]
fn a_run_that_follows_losses_resumes_on_other_ranks() {
    exit_on_hang(|| {
        let unbroken = train(|_| mixture(options()), 1, usize::MAX).0;
        for stop in [0, 1, 2, 3, 8, 9, 13, 23] {
            let (seen, saved) = train(|rank| mixture(options()).rank(rank, 2), 2, stop);
            assert_eq!(seen, unbroken[..stop]);
            assert!(saved.iter().all(|state| *state == saved[0]), "ranks have different checkpoints");
            let state: Checkpoint = serde_json::from_str(&serde_json::to_string(&saved[0]).unwrap()).unwrap();
            assert_eq!(state, saved[0]);
            let (rest, _) = train(|_| mixture(options()).resume(state.clone()), 1, usize::MAX);
            assert_eq!(rest, unbroken[stop..], "from batch {stop}");
            // An open loader must accept the state even after its own proportions have changed.
            let mut batches = mixture(options()).host().unwrap();
            batches.set_mixture(&[1.0, 0.0], 0).unwrap();
            let before = batches.checkpoint();
            batches.check_checkpoint(&state).unwrap();
            assert_eq!(batches.checkpoint(), before, "checking a state changes nothing");
            batches.resume(&state).unwrap();
            assert_eq!(batches.checkpoint(), state);
        }
    });
}

/// An epoch of 80 samples has six batches of 12, and drops eight samples. The round from sample 75
/// starts among the dropped samples.
#[test]
fn a_change_among_dropped_samples_names_the_next_epoch() {
    let loader = mixture(MixtureOptions::new()).mixture_options(MixtureOptions::new().draws_per_round(25));
    let mut first = None;
    let steps = run(loader.global_batch_size(12).last_batch(LastBatch::Drop), 2, |batches, step| {
        if (step.0, step.1) == (0, 4) {
            first = Some(batches.set_mixture(&[1.0, 0.0], 0).unwrap());
        }
    });
    assert_eq!(first, Some(BatchIndex { epoch: 1, batch: 0 }));
    let second = |step: &Step| step.2.iter().any(|&id| id >= 30);
    assert!(steps[..6].iter().all(second) && !steps[6..].iter().any(second), "{steps:?}");
}

/// The run ends after 80 of 160 draws, so the round from sample 100 is never drawn.
#[test]
fn a_change_after_the_end_of_a_run_affects_no_batch() {
    let make = |last| {
        let options = MixtureOptions::new().single_pass([0, 1]).draws_per_round(100);
        let loader = mixture(MixtureOptions::new()).mixture_options(options);
        loader.repeat(2).global_batch_size(12).last_batch(last)
    };
    for (last, batches) in [(LastBatch::Keep, 7), (LastBatch::Drop, 6)] {
        let plain = run(make(last), 2, |_, _| ());
        assert_eq!(plain.len(), batches);
        let changed = run(make(last).prefetch(8), 2, |batches, step| {
            let first = batches.set_mixture(&[0.9, 0.1], step.1).unwrap();
            let end = BatchIndex { epoch: 0, batch: plain.len() as u64 };
            assert!(first >= end, "{first:?}");
        });
        assert_eq!(changed, plain, "{last:?}");
    }
}

#[test]
fn weights_resume_with_the_history_of_their_epoch() {
    let change = |batches: &Batches<HostBatch>, step: &Step| {
        if step.1.is_multiple_of(2) {
            let weights: Vec<f64> = (0..60).map(|sample| ((sample + step.0 + step.1) % 7) as f64).collect();
            batches.set_weights(&weights, step.1 % 3).unwrap();
        }
    };
    exit_on_hang(|| {
        let unbroken = run(weighted(&OLD), 4, change);
        for stop in [1, 5, 6, 7, 8, 15, 27] {
            let (mut saved, mut remaining) = (None, stop);
            run(weighted(&OLD).rank(1, 2), 4, |batches, step| {
                change(batches, step);
                remaining -= 1;
                if remaining == 0 {
                    saved = Some(batches.checkpoint());
                }
            });
            let state: Checkpoint = serde_json::from_str(&serde_json::to_string(&saved.unwrap()).unwrap()).unwrap();
            let rest = run(weighted(&OLD).resume(state), 4, change);
            assert_eq!(rest, unbroken[stop as usize..], "from batch {stop}");
        }
        let mut batches = weighted(&OLD).host().unwrap();
        for epoch in [1, 2] {
            assert_eq!(batches.epoch_from(epoch, 3).take(1).count(), 1);
            batches.set_weights(&new(), 0).unwrap();
        }
        assert!(batches.epoch(2).all(|batch| batch.is_ok()), "the epoch in progress cannot be repeated");
        let e = batches.epoch(1).next().unwrap().unwrap_err().to_string();
        assert!(e.contains("the weights of epoch 1 are no longer known"), "{e}");
    });
}

#[test]
fn a_checkpoint_without_its_history_is_refused() {
    let mut batches = mixture(options()).host().unwrap();
    batches.epoch(0).take(2).for_each(drop);
    let plain = serde_json::to_value(batches.checkpoint()).unwrap();
    assert_eq!(plain["version"], 1, "earlier builds read checkpoints without changes");
    // The change is too late to affect the saved epoch.
    batches.set_mixture(&[1.0, 0.0], 100).unwrap();
    let saved = serde_json::to_value(batches.checkpoint()).unwrap();
    assert_eq!(saved["version"], 2, "earlier builds would ignore the history");
    let refused = |state: &serde_json::Value, loader: Loader, words: &str| {
        let state: Checkpoint = serde_json::from_value(state.clone()).unwrap();
        let e = loader.resume(state).host().unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.to_string().contains(words), "{e}");
    };
    let mut without = saved.clone();
    without["history"] = serde_json::json!([]);
    refused(&without, mixture(options()), "version 2 and 0 changes in its history");
    without.as_object_mut().unwrap().remove("history");
    refused(&without, mixture(options()), "version 2 and 0 changes in its history");
    let mut old = saved.clone();
    old["version"] = 1.into();
    refused(&old, mixture(options()), "version 1 and 1 change in its history");
    refused(&saved, loader(NumberSource::new(80)).seed(6).global_batch_size(10), "has neither a mixture nor weights");
    let mut other = saved;
    other["history"][0]["values"] = serde_json::json!([1.0]);
    refused(&other, mixture(options()), "the history does not fit this loader: mixture: 1 proportion, but 2 sources");
}

#[test]
fn changes_that_cannot_work_are_refused() {
    let refused = |changed: Result<BatchIndex>, words: &str| {
        let e = changed.unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.to_string().contains(words), "{e}");
    };
    let plain = loader(NumberSource::new(60)).host().unwrap();
    refused(plain.set_mixture(&[1.0], 0), "set_mixture: this loader was opened without a mixture");
    refused(plain.set_weights(&OLD, 0), "set_weights: this loader was opened without weights");
    let batches = mixture(MixtureOptions::new()).host().unwrap();
    let before = batches.checkpoint();
    refused(batches.set_weights(&[1.0; 80], 0), "set_weights: this loader was opened without weights");
    refused(batches.set_mixture(&[1.0], 0), "1 proportion, but 2 sources");
    refused(batches.set_mixture(&[1.0, f64::NAN], 0), "proportion 1 is NaN");
    refused(batches.set_mixture(&[0.0, 0.0], 0), "all 2 proportions are 0");
    refused(batches.set_mixture(&[1.0, 0.01], 0), "proportion 1 is 0.01, which is less than one draw in 20");
    refused(batches.set_mixture(&[1.0, 1.0], u64::MAX), "the maximum is 16777216");
    assert_eq!(batches.checkpoint(), before);
    let batches = weighted(&OLD).subset(0..30).host().unwrap();
    refused(batches.set_weights(&[1.0; 30], 0), "30 weights, but the source has 60 samples; pass one for every");
    refused(batches.set_weights(&[0.0; 60], 0), "all 30 weights are 0");
    let tiled = weighted(&OLD).augment(Augment::train(16).mosaic(Mosaic::new())).drop_field("label").host().unwrap();
    refused(tiled.set_weights(&OLD, 0), "remove mosaic and copy_paste");
    let single_pass = mixture(MixtureOptions::new().single_pass([0])).host().unwrap();
    refused(single_pass.set_mixture(&[1.0, 0.0], 0), "the run would end after 30 samples instead of never");
    let parts = [(set("a", 30), 1.0), (set("b", 50), 0.0)];
    let unread =
        Loader::mixture(parts).codec(NumberCodec).augment(Augment::train(16)).keep_labels().balanced().host().unwrap();
    refused(unread.set_mixture(&[1.0, 1.0], 0), "its weights or labels were not read");
}

#[test]
fn each_batch_has_samples_of_one_dataset() {
    let options = || MixtureOptions::new().single_dataset_batches(true).proportions(At::Epoch(1), [0.2, 0.8]);
    let unbroken = run(mixture(options()), 5, |_, _| ());
    assert_eq!(unbroken.len(), 5 * 8);
    let is_first = |step: &Step| step.2[0] < 30;
    assert!(unbroken.iter().all(|step| step.2.iter().all(|id| (*id < 30) == is_first(step)) && step.2.len() == 10));
    // Each epoch has 8 batches, so the first round of 20 ends in epoch 2.
    let counts = [&unbroken[..20], &unbroken[20..]].map(|round| round.iter().filter(|step| is_first(step)).count());
    assert_eq!(counts, [10, 4]);
    let ranks = (0..3).map(|rank| run(mixture(options()).rank(rank, 3), 5, |_, _| ())).collect();
    assert_eq!(joined(ranks), unbroken);
}

fn sized(options: MixtureOptions) -> Loader {
    let parts = [(set("a", 30), 0.5), (set("b", 50), 0.5)];
    let loader = Loader::mixture(parts).codec(NumberCodec).augment(Augment::train(16)).seed(6).keep_labels();
    loader.mixture_options(options.draws_per_round(20).single_dataset_batches(true).global_batch_sizes([4, 9]))
}

#[test]
fn each_dataset_has_its_own_batch_size() {
    let options = || MixtureOptions::new().proportions(At::Step(30), [0.2, 0.8]);
    let unbroken = run(sized(options()), 5, |_, _| ());
    // The mean size is 6.5 samples, and 80 / 6.5 = 12.3.
    assert_eq!(unbroken.len(), 5 * 12);
    let is_first = |step: &Step| step.2[0] < 30;
    for step in &unbroken {
        let size = if is_first(step) { 4 } else { 9 };
        assert!(step.2.len() == size && step.2.iter().all(|id| (*id < 30) == is_first(step)), "{step:?}");
    }
    let counts = [0, 20, 40].map(|first| unbroken[first..first + 20].iter().filter(|step| is_first(step)).count());
    assert_eq!(counts, [10, 10, 4], "the change at step 30 takes effect in the round that begins at step 40");
    for (world, last) in [(1, LastBatch::Drop), (2, LastBatch::Keep), (3, LastBatch::Pad), (4, LastBatch::Drop)] {
        for workers in [1, 3, 8] {
            let rank = |rank| run(sized(options()).workers(workers).last_batch(last).rank(rank, world), 5, |_, _| ());
            assert_eq!(joined((0..world).map(rank).collect()), unbroken, "{world} ranks, {workers} workers, {last:?}");
        }
    }
}

#[test]
fn own_batch_sizes_pad_each_batch_for_all_ranks() {
    let rank = |rank| sized(MixtureOptions::new()).last_batch(LastBatch::Pad).rank(rank, 3).host().unwrap();
    let mut ranks = [0, 1, 2].map(rank);
    let mut first = None;
    for number in 0..ranks[0].num_batches(0) {
        let batches = ranks.each_mut().map(|rank| rank.epoch_from(0, number).next().unwrap().unwrap());
        let lens = batches.each_ref().map(|batch| batch.len());
        let valid = batches.each_ref().map(|batch| batch.valid().filter(|valid| *valid).count());
        let first = first.get_or_insert_with(|| batches[0].ids().next().unwrap());
        match lens[0] {
            2 => assert_eq!((lens, valid), ([2; 3], [2, 1, 1])),
            _ => assert_eq!((lens, valid), ([3; 3], [3; 3])),
        }
        if valid[1] < lens[1] {
            assert_eq!(batches[1].ids().last(), Some(*first), "padding is from the start of the epoch");
        }
    }
}

#[test]
fn a_run_with_own_batch_sizes_resumes_on_other_ranks() {
    exit_on_hang(|| {
        let options = || MixtureOptions::new().linear(At::Sample(100), At::Sample(400), [0.9, 0.1]);
        let change = |batches: &Batches<HostBatch>, step: &Step| match (step.0, step.1) {
            (0, 9) => assert_eq!(batches.set_mixture(&[1.0, 0.0], 3).unwrap(), BatchIndex { epoch: 1, batch: 8 }),
            (3, 2) => assert_eq!(batches.set_mixture(&[0.0, 1.0], 0).unwrap(), BatchIndex { epoch: 3, batch: 4 }),
            _ => {}
        };
        let unbroken = run(sized(options()), 5, change);
        assert_eq!(unbroken.iter().map(|step| step.2.len()).collect::<Vec<_>>()[40..], [9; 20]);
        for (step_count, world, next) in [(5, 1, 3), (22, 3, 2), (41, 2, 1)] {
            let mut saved = None;
            let before = |rank| {
                let mut steps = Vec::new();
                let mut batches = sized(options()).rank(rank, world).host().unwrap();
                for number in 0..5 {
                    let mut epoch = batches.epoch(number);
                    while steps.len() < step_count
                        && let Some(batch) = epoch.next()
                    {
                        steps.push(step(&batch.unwrap()));
                        change(&epoch, steps.last().unwrap());
                    }
                    if steps.len() == step_count {
                        saved.get_or_insert(epoch.checkpoint());
                        break;
                    }
                }
                steps
            };
            let mut steps = joined((0..world).map(before).collect());
            let saved: Checkpoint = saved.unwrap();
            let after = |rank| run(sized(options()).rank(rank, next).resume(saved.clone()), 5, change);
            steps.extend(joined((0..next).map(after).collect()));
            assert_eq!(steps, unbroken, "after {step_count} batches, from {world} to {next} ranks");
        }
    });
}

#[test]
fn a_dataset_that_is_drawn_once_ends_in_batches_of_its_own_size() {
    let steps = run(sized(MixtureOptions::new().single_pass([0, 1])), 3, |_, _| ());
    let batch_sizes = |first: bool| steps.iter().filter(move |step| (step.2[0] < 30) == first).map(|step| step.2.len());
    assert_eq!(
        (batch_sizes(true).collect::<Vec<_>>(), batch_sizes(false).collect::<Vec<_>>()),
        (vec![4; 7], vec![9; 5])
    );
    let mut batches = sized(MixtureOptions::new().single_pass([0, 1])).host().unwrap();
    assert_eq!((batches.num_batches(0), batches.num_batches(1)), (12, 0));
    assert_eq!(batches.epoch_len(0), 7 * 4 + 5 * 9);
    assert_eq!(batches.epoch(0).len(), 12);
}

#[test]
fn batch_sizes_that_cannot_work_are_refused() {
    let sizes = |sizes: &[usize]| {
        let options = MixtureOptions::new().single_dataset_batches(true);
        sized(MixtureOptions::new()).mixture_options(options.global_batch_sizes(sizes.to_vec()))
    };
    refused(sizes(&[4]), "global_batch_sizes: 1 size, but 2 sources");
    refused(sizes(&[4, 0]), "source 1 has batches of 0 samples on 1 rank: expected at least one sample per rank");
    refused(sizes(&[4, 2]).rank(1, 3), "source 1 has batches of 2 samples on 3 ranks");
    refused(sizes(&[4, 1 << 40]), "source 1 has batches of 1099511627776 samples: expected 1 to 4294967295");
    refused(sizes(&[90, 100]), "an epoch of 80 samples is smaller than one global batch of 95");
    refused(sizes(&[4, 9]).batch_size(4), "global_batch_sizes replaces batch_size and global_batch_size");
    refused(
        sized(MixtureOptions::new()).mixture_options(MixtureOptions::new().global_batch_sizes([4, 9])),
        "global_batch_sizes requires batches of one source: set single_dataset_batches as well",
    );
    let single_pass = sized(MixtureOptions::new().single_pass([0]));
    let single_pass = single_pass.mixture_options(
        MixtureOptions::new().single_pass([0]).single_dataset_batches(true).global_batch_sizes([31, 2]),
    );
    refused(single_pass, "source 0 is drawn once but has fewer samples than a batch");
    let saved = sizes(&[4, 9]).host().unwrap().checkpoint();
    refused(
        sizes(&[3, 9]).resume(saved.clone()),
        "the batch size of each dataset differs: the checkpoint has [4, 9], this loader has [3, 9]",
    );
    let equal = sized(MixtureOptions::new()).mixture_options(MixtureOptions::new().single_dataset_batches(true));
    refused(
        equal.batch_size(9).resume(saved),
        "the batch size of each dataset differs: the checkpoint has [4, 9], this loader has one for all",
    );
}

#[test]
fn a_dataset_that_is_drawn_once_ends_and_the_others_continue() {
    let ids = |steps: &[Step]| {
        let mut ids: Vec<u64> = steps.iter().flat_map(|step| step.2.clone()).collect();
        ids.sort_unstable();
        ids
    };
    let both = run(mixture(MixtureOptions::new().single_pass([0, 1])), 3, |_, _| ());
    assert_eq!((ids(&both), both.len()), ((0..80).collect(), 8), "later epochs are empty");
    let steps = run(mixture(MixtureOptions::new().single_pass([0])), 3, |_, _| ());
    let firsts: Vec<u64> = ids(&steps).into_iter().filter(|id| *id < 30).collect();
    assert_eq!((firsts, steps.len()), ((0..30).collect(), 24));
    // Only one dataset has a nonzero proportion. It ends inside an epoch, which ends the run.
    let parts = [(set("a", 30), 1.0), (set("b", 50), 0.0)];
    let make = || {
        let loader = Loader::mixture(parts.clone()).codec(NumberCodec).augment(Augment::train(16)).batch_size(20);
        loader.mixture_options(MixtureOptions::new().single_pass([0])).keep_labels()
    };
    assert_eq!(run(make(), 3, |_, _| ()).iter().map(|step| step.2.len()).collect::<Vec<_>>(), [20, 10]);
    assert_eq!(run(make().last_batch(LastBatch::Drop), 3, |_, _| ()).len(), 1);
}

#[test]
fn invalid_options_of_a_mixture_are_refused() {
    let new = MixtureOptions::new;
    refused(mixture(new().single_pass([2])), "single_pass: there is no source 2: the mixture has 2 sources");
    refused(mixture(new().proportions(At::Epoch(1), [1.0])), "1 proportion, but 2 sources");
    refused(mixture(new().linear(At::Epoch(0), At::Epoch(9), [1.0])), "1 proportion, but 2 sources");
    refused(mixture(new().proportions(At::Epoch(1), [1.0, -1.0])), "proportion 1 is -1");
    refused(
        mixture(new().linear(At::Epoch(2), At::Step(3), [0.5, 0.5])),
        "ends at sample 30, which is not after its beginning at sample 160",
    );
    let twice = new().proportions(At::Epoch(2), [0.5, 0.5]).proportions(At::Step(3), [0.5, 0.5]);
    refused(mixture(twice), "change 1 of the schedule begins at sample 30, but the change before it is at sample 160");
    refused(mixture(new()).mixture_options(new().draws_per_round(0)), "draws_per_round(0): expected 1 to");
    refused(
        loader(NumberSource::new(60)).mixture_options(new()),
        "mixture_options: expected a mixture, but this loader has one dataset",
    );
    refused(
        mixture(new().single_dataset_batches(true)).global_batch_size(100),
        "an epoch of 80 samples is smaller than one global batch",
    );
}

/// For each call to [`Prefetcher::start`], the batch, and the samples of that batch and of the next
/// one.
type Starts = Arc<Mutex<Vec<(BatchIndex, Vec<Vec<u64>>)>>>;

struct Ahead(NumberSource, Starts);

struct Follows(Lookahead, Starts);

impl Prefetcher for Follows {
    fn start(&self, place: BatchIndex) {
        let next = self.0.batches_from(place).take(2).map(|(_, samples)| samples).collect();
        self.1.lock().unwrap().push((place, next));
    }
}

impl Source for Ahead {
    fn len(&self) -> usize {
        self.0.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.0.read(index, scratch)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        Some(Box::new(Follows(order, self.1.clone())))
    }
}

#[test]
fn a_source_that_prefetches_begins_again_with_the_changed_order() {
    let starts = Starts::default();
    let make = |starts: &Starts| {
        let loader =
            Loader::source(Ahead(NumberSource::new(60), starts.clone())).codec(NumberCodec).augment(Augment::train(16));
        loader.weights(OLD).seed(4).batch_size(9).prefetch(1).workers(1)
    };
    let steps = run(make(&starts), 1, |batches, step| {
        if step.1 == 2 {
            // The loader has not prepared batch 5, but the source may have prefetched its samples.
            batches.set_weights(&new(), 2).unwrap();
        }
    });
    let starts = starts.lock().unwrap();
    assert_eq!(starts.iter().map(|starts| starts.0.batch).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(starts[1].1, [steps[3].2.clone(), steps[4].2.clone()]);
    let (old, new_) = (run(weighted(&OLD), 1, |_, _| ()), run(weighted(&new()), 1, |_, _| ()));
    assert_eq!(steps, [&old[..5], &new_[5..]].concat());
}
