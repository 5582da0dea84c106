//! Tests budgets. Every batch, except the last of a bucket, must contain as many samples of one
//! bucket as fit into the budget and the batch size, on one to three ranks and after resuming.

use crate::support::refused;
use warpfeed::field::Ragged;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{LastBatch, Loader};

struct Case {
    lengths: Vec<u32>,
    bounds: Vec<u32>,
    budget: u64,
    batch: usize,
    last: LastBatch,
    shuffled: bool,
    subset: Option<Vec<u64>>,
}

impl Case {
    fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 1, 2);
        let lengths: Vec<u32> = (0..1 + rng.below(120)).map(|_| 1 + rng.below(60) as u32).collect();
        let mut bounds: Vec<u32> = (0..rng.below(5)).map(|_| 1 + rng.below(70) as u32).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let subset = rng.chance(0.3).then(|| (0..lengths.len() as u64).filter(|n| n % 3 != 1).collect::<Vec<_>>());
        Case {
            bounds,
            budget: 70 + rng.below(400),
            batch: 3 + rng.below(30) as usize,
            last: if rng.chance(0.3) { LastBatch::Drop } else { LastBatch::Keep },
            shuffled: rng.chance(0.7),
            subset: subset.filter(|subset| !subset.is_empty()),
            lengths,
        }
    }

    fn loader(&self) -> Loader {
        let sample =
            |(n, length): (usize, &u32)| OwnedSample::new(n.to_string()).field("text", vec![n as u8; *length as usize]);
        let loader = Loader::source(Memory::new(self.lengths.iter().enumerate().map(sample).collect()))
            .drop_field("image")
            .drop_field("label")
            .field("text", Ragged::bytes(60))
            .buckets(self.lengths.iter().copied(), self.bounds.iter().copied())
            .budget(self.budget)
            .global_batch_size(self.batch)
            .last_batch(self.last)
            .epochs(0)
            .workers(1);
        let loader = if self.shuffled { loader.shuffle(7) } else { loader };
        match &self.subset {
            Some(subset) => loader.subset(subset.clone()),
            None => loader,
        }
    }

    fn buckets(&self) -> Vec<(Vec<u64>, usize)> {
        let samples: Vec<u64> = self.subset.clone().unwrap_or_else(|| (0..self.lengths.len() as u64).collect());
        let length = |id: &u64| self.lengths[*id as usize];
        let longest = samples.iter().map(length).max().unwrap();
        let mut list = Vec::new();
        for number in 0..=self.bounds.len() {
            let within = |id: &u64| self.bounds.iter().filter(|bound| length(id) > **bound).count() == number;
            let samples: Vec<u64> = samples.iter().copied().filter(within).collect();
            if !samples.is_empty() {
                let width = *self.bounds.get(number).unwrap_or(&longest);
                let mut count = 1;
                while count < self.batch && (count as u64 + 1) * u64::from(width) <= self.budget {
                    count += 1;
                }
                list.push((samples, count));
            }
        }
        list
    }

    fn in_order(&self) -> Vec<Vec<u64>> {
        let batches = self.buckets().into_iter().flat_map(|(samples, count)| {
            samples.chunks(count).map(|batch| (batch.to_vec(), count)).collect::<Vec<_>>()
        });
        let full = batches.filter(|(batch, count)| self.last == LastBatch::Keep || batch.len() == *count);
        full.map(|(batch, _)| batch).collect()
    }
}

fn read(loader: Loader, epoch: u64, first: u64) -> Vec<Vec<u64>> {
    let mut batches = loader.host().unwrap();
    let plan = batches.memory_plan();
    assert!(plan.slots > 0);
    let batches = batches.epoch_from(epoch, first).map(|batch| {
        let batch = batch.unwrap();
        let row = batch.field("text").unwrap();
        let counts = batch.counts("text").unwrap();
        for ((id, row), count) in batch.ids().zip(row.bytes().chunks(60)).zip(counts) {
            assert!(row[..*count as usize].iter().all(|byte| *byte == id as u8), "the row of sample {id}");
        }
        batch.ids().zip(batch.valid()).filter(|(_, valid)| *valid).map(|(id, _)| id).collect()
    });
    batches.collect()
}

fn sorted(mut batches: Vec<Vec<u64>>) -> Vec<Vec<u64>> {
    batches.iter_mut().for_each(|batch| batch.sort_unstable());
    batches.sort();
    batches
}

#[test]
fn batches_of_random_budgets_equal_naive_ones() {
    let mut checked = 0;
    for seed in 0..400 {
        let case = Case::random(seed);
        let expected = case.in_order();
        if expected.is_empty() {
            assert!(case.loader().host().unwrap_err().to_string().contains("no batch"), "seed {seed}");
            continue;
        }
        checked += 1;
        let unbroken = read(case.loader(), 1, 0);
        if case.shuffled {
            let sizes = |batches: &[Vec<u64>]| {
                let bucket = |batch: &Vec<u64>| {
                    let bucket_of =
                        |id: &u64| case.buckets().iter().position(|(samples, _)| samples.contains(id)).unwrap();
                    let buckets: Vec<usize> = batch.iter().map(bucket_of).collect();
                    assert!(
                        buckets.iter().all(|bucket| *bucket == buckets[0]),
                        "seed {seed}: a batch has samples of two buckets"
                    );
                    (buckets[0], batch.len())
                };
                let mut sizes: Vec<_> = batches.iter().map(bucket).collect();
                sizes.sort_unstable();
                sizes
            };
            assert_eq!(sizes(&unbroken), sizes(&expected), "seed {seed}");
            let mut ids = unbroken.concat();
            ids.sort_unstable();
            let count = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), count, "seed {seed}: a sample occurs twice");
        } else {
            assert_eq!(unbroken, expected, "seed {seed}");
        }
        assert_eq!(case.loader().host().unwrap().epoch_len(1), unbroken.concat().len() as u64);
        for world in [2, 3] {
            let shares: Vec<_> = (0..world).map(|rank| read(case.loader().rank(rank, world), 1, 0)).collect();
            assert!(
                shares.iter().all(|share| share.len() == unbroken.len()),
                "seed {seed}: all ranks have the same number of batches"
            );
            for (number, batch) in unbroken.iter().enumerate() {
                let joined: Vec<u64> = shares.iter().flat_map(|share| share[number].clone()).collect();
                assert_eq!(joined, *batch, "seed {seed}, {world} ranks, batch {number}");
                let largest = shares.iter().map(|share| share[number].len()).max().unwrap();
                assert_eq!(largest, batch.len().div_ceil(world), "seed {seed}: the batch is divided evenly");
            }
        }
        let stop = seed % (unbroken.len() as u64 + 1);
        let mut first = case.loader().rank(0, 2).host().unwrap();
        first.epoch_from(1, 0).take(stop as usize).for_each(drop);
        let state = first.checkpoint();
        if stop > 0 && stop < unbroken.len() as u64 {
            let rest = read(case.loader().resume(state.clone()), 1, stop);
            assert_eq!(rest, unbroken[stop as usize..], "seed {seed}: resumed at {stop}");
            let e = case.loader().budget(case.budget + 1).resume(state).host().unwrap_err();
            assert!(e.to_string().contains("the budget differs"), "{e}");
        }
    }
    assert!(checked > 300, "{checked}");
}

#[test]
fn epochs_with_a_budget_differ_and_repeat() {
    let case = Case { shuffled: true, subset: None, last: LastBatch::Keep, ..Case::random(3) };
    let (one, two) = (read(case.loader(), 0, 0), read(case.loader(), 1, 0));
    assert_eq!(one, read(case.loader(), 0, 0));
    assert!(one.len() > 3 && one != two && sorted(one) != sorted(two));
}

#[test]
fn the_memory_plan_of_a_budget_covers_the_largest_batch() {
    let case = Case { bounds: vec![10, 60], budget: 120, batch: 100, subset: None, ..Case::random(3) };
    let slot = |loader: Loader| {
        let plan = loader.prefetch(2).host().unwrap().memory_plan();
        plan.slot_bytes
    };
    let plain = |samples: usize| {
        let lengths = case.lengths.iter().copied();
        let loader = Case { shuffled: false, ..Case::random(3) }.loader().buckets(lengths, [10, 60]);
        slot(loader.budget(1 << 20).global_batch_size(samples))
    };
    assert_eq!(slot(case.loader()), plain(12), "12 samples with lengths of up to 10");
}

#[test]
fn options_incompatible_with_a_budget_are_refused() {
    let case = Case { bounds: vec![10, 60], budget: 60, subset: None, last: LastBatch::Keep, ..Case::random(3) };
    for (loader, text) in [
        (
            case.loader().budget(59),
            "budget(59) is too small, because one sample of the longest bucket costs 60: expected at least 60",
        ),
        (case.loader().last_batch(LastBatch::Pad), "budget(60) and last_batch(Pad)"),
        (
            Loader::source(Memory::new(vec![OwnedSample::new("a").field("text", vec![1; 3])])).budget(8),
            "budget(8): the number of samples in a batch depends",
        ),
    ] {
        refused(loader, text);
    }
}
