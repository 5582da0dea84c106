//! Tests that buckets group samples of similar lengths into batches, for several numbers of ranks
//! and workers, and after resuming.

use crate::support::refused;
use warpfeed::field::Ragged;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{ErrorKind, HostBatch, LastBatch, Loader};

const BOUNDS: [u32; 3] = [10, 20, 60];

fn lengths(count: u64) -> Vec<u32> {
    let mut rng = Rng::new(3, 4, 5);
    (0..count).map(|_| rng.below(100) as u32).collect()
}

fn loader(lengths: &[u32]) -> Loader {
    let sample =
        |(n, length): (usize, &u32)| OwnedSample::new(n.to_string()).field("text", vec![n as u8; *length as usize]);
    Loader::source(Memory::new(lengths.iter().enumerate().map(sample).collect()))
        .drop_field("image")
        .drop_field("label")
        .field("text", Ragged::bytes(99))
        .buckets(lengths.iter().copied(), BOUNDS)
}

fn samples(batch: &HostBatch, lengths: &[u32]) -> Vec<u64> {
    let counts = batch.counts("text").unwrap();
    let rows = batch.field("text").unwrap();
    let ids: Vec<u64> = batch.ids().collect();
    for ((count, row), id) in counts.iter().zip(rows.bytes().chunks(99)).zip(&ids) {
        let length = lengths[*id as usize] as usize;
        assert_eq!(*count, length as i64);
        assert!(row[..length].iter().all(|byte| *byte == *id as u8) && row[length..].iter().all(|byte| *byte == 0));
    }
    ids
}

fn bucket(length: u32) -> usize {
    BOUNDS.iter().filter(|bound| length > **bound).count()
}

#[test]
fn batches_mix_buckets_only_at_boundaries() {
    let lengths = lengths(501);
    for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
        let with = |loader: Loader| loader.global_batch_size(12).shuffle(9).last_batch(last);
        let mut batches = with(loader(&lengths)).host().unwrap();
        for epoch in 0..2 {
            let unbroken: Vec<Vec<u64>> =
                batches.epoch(epoch).map(|batch| samples(&batch.unwrap(), &lengths)).collect();
            let mixed = unbroken.iter().filter(|batch| {
                let buckets = || batch.iter().take(9).map(|id| bucket(lengths[*id as usize]));
                buckets().min() != buckets().max()
            });
            assert!(mixed.count() <= BOUNDS.len(), "more batches have two buckets than there are boundaries");
            let mut seen: Vec<u64> = unbroken.concat();
            seen.truncate(501);
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), if last == LastBatch::Drop { 492 } else { 501 });

            for world in [2, 5] {
                let mut shares: Vec<_> = (0..world)
                    .map(|rank| with(loader(&lengths)).rank(rank, world).workers(1 + rank % 3).host().unwrap())
                    .collect();
                let mut each: Vec<_> = shares.iter_mut().map(|share| share.epoch(epoch)).collect();
                for batch in &unbroken {
                    let mut delivered = Vec::new();
                    for rank in &mut each {
                        let part = rank.next().unwrap().unwrap();
                        let ids = samples(&part, &lengths);
                        delivered
                            .extend(ids.into_iter().zip(part.valid()).filter(|(_, valid)| *valid).map(|(id, _)| id));
                    }
                    assert_eq!(delivered, batch[..delivered.len()]);
                    assert!(delivered.len() == 12 || batch == unbroken.last().unwrap());
                }
            }

            let mut first = with(loader(&lengths)).host().unwrap();
            for batch in first.epoch(epoch).take(7) {
                batch.unwrap();
            }
            let mut rest = with(loader(&lengths)).resume(first.checkpoint()).host().unwrap();
            assert_eq!(rest.first_epoch(), epoch);
            let rest: Vec<_> = rest.epoch(epoch).map(|batch| samples(&batch.unwrap(), &lengths)).collect();
            assert_eq!(rest, unbroken[7..]);
            let other = with(loader(&lengths)).buckets(lengths.iter().copied(), [50]).resume(first.checkpoint());
            let e = other.host().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config, "{e}");
        }
    }
}

#[test]
fn buckets_follow_a_subset_and_the_order_of_the_source() {
    let lengths = lengths(200);
    let subset: Vec<u64> = (0..200).filter(|n| n % 3 == 1).collect();
    let mut batches = loader(&lengths).batch_size(200).subset(subset.clone()).host().unwrap();
    let ids = samples(&batches.epoch(0).next().unwrap().unwrap(), &lengths);
    let mut expected = subset;
    expected.sort_by_key(|id| bucket(lengths[*id as usize]));
    assert_eq!(ids, expected);
}

#[test]
fn options_incompatible_with_buckets_are_refused() {
    let lengths = lengths(20);
    let plain = || loader(&lengths);
    for (loader, text) in [
        (plain().repeat(2), "buckets and repeat"),
        (plain().shuffle_window(4), "shuffle_window and buckets"),
        (plain().weights([1.0; 20]), "weights and buckets"),
        (plain().buckets([1; 19], [4]), "19 lengths, but the source has 20 samples"),
        (plain().buckets([1; 20], [4, 3]), "bound 3 follows bound 4"),
    ] {
        refused(loader, text);
    }
}
