//! Tests that batches are a function of the data, the seed and the epoch. The number of workers and
//! the prefetch depth may affect only the speed, and the batch size must not change the samples.

use crate::support::{BatchContent, NumberCodec, NumberSource, exit_on_hang, loader, reference_epoch};
use warpfeed::sampler::{Sampler, Shuffled};
use warpfeed::transform::Interpolation;
use warpfeed::{Augment, LastBatch, Loader};

fn all_contents(loader: Loader, epoch: u64) -> Vec<BatchContent> {
    let mut batches = loader.host().unwrap();
    batches.epoch(epoch).map(|b| BatchContent::from(&b.unwrap())).collect()
}

#[test]
fn batches_equal_the_sequential_reference() {
    exit_on_hang(|| {
        let source = NumberSource::new(101);
        let augment = Augment::train(16);
        for batch in [1, 7, 64, 101, 500] {
            let expected = reference_epoch(&source, NumberCodec, &augment, Some(5), 3, batch);
            for workers in [1, 2, 3, 8] {
                for prefetch in [1, 4] {
                    let loader =
                        loader(source.clone()).batch_size(batch).shuffle(5).workers(workers).prefetch(prefetch);
                    assert!(
                        all_contents(loader, 3) == expected,
                        "batch {batch}, workers {workers}, prefetch {prefetch}"
                    );
                }
            }
        }
    });
}

#[test]
fn policies_are_a_function_of_seed_epoch_and_sample() {
    exit_on_hang(|| {
        let source = NumberSource::new(60);
        for augment in [
            Augment::train(16).rand_augment(2, 9),
            Augment::train(16).trivial_augment_wide(),
            Augment::train(16).timm("rand-m9-mstd0.5-inc1"),
            Augment::train(16).aug_mix(),
            Augment::train(16).three_augment().rotate(30.0),
        ] {
            let make = |workers| loader(source.clone()).augment(augment.clone()).shuffle(5).workers(workers);
            let expected = reference_epoch(&source, NumberCodec, &augment, Some(5), 3, 7);
            assert!(all_contents(make(1), 3) == expected && all_contents(make(8), 3) == expected);
            let mut batches = make(2).host().unwrap();
            let rest: Vec<_> = batches.epoch_from(3, 4).map(|batch| BatchContent::from(&batch.unwrap())).collect();
            assert!(rest == expected[4..]);
            // If the policies had no effect, the comparison would prove nothing.
            assert!(all_contents(loader(source.clone()).augment(Augment::train(16)).shuffle(5), 3) != expected);
        }
    });
}

/// Some runs cross the boundaries of epochs, where batches are prepared ahead. Others begin in the
/// epoch of a change.
#[test]
fn a_later_augmentation_begins_with_its_epoch() {
    exit_on_hang(|| {
        let source = NumberSource::new(60);
        let first = Augment::train(16).rand_augment(2, 9);
        let (second, third) = (Augment::resize(16, 16), Augment::train(16).interpolation(Interpolation::Bicubic));
        let augment = first.clone().from_epoch(2, second.clone()).from_epoch(3, third.clone());
        let expected: Vec<_> = [&first, &first, &second, &third, &third]
            .into_iter()
            .zip(0..)
            .map(|(augment, epoch)| reference_epoch(&source, NumberCodec, augment, Some(5), epoch, 7))
            .collect();
        assert!(expected[1] != expected[0] && expected[2] != expected[1]);
        for (workers, prefetch) in [(1, 1), (3, 12), (8, 30)] {
            let make =
                || loader(source.clone()).augment(augment.clone()).shuffle(5).workers(workers).prefetch(prefetch);
            let mut batches = make().host().unwrap();
            for (epoch, expected) in (0..).zip(&expected) {
                let actual: Vec<_> = batches.epoch(epoch).map(|batch| BatchContent::from(&batch.unwrap())).collect();
                assert!(actual == *expected, "epoch {epoch}, {workers} workers");
            }
            let mut batches = make().host().unwrap();
            let actual: Vec<_> = batches.epoch_from(2, 4).map(|batch| BatchContent::from(&batch.unwrap())).collect();
            assert!(actual == expected[2][4..], "{workers} workers");
        }
    });
}

#[test]
fn epochs_and_seeds_differ_and_repeat() {
    let source = NumberSource::new(50);
    let make = |seed| loader(source.clone()).shuffle(seed).workers(2);
    let mut batches = make(1).host().unwrap();
    let mut epoch = |n| batches.epoch(n).map(|b| BatchContent::from(&b.unwrap())).collect::<Vec<_>>();
    let (first, second, again) = (epoch(0), epoch(1), epoch(0));
    assert!(first == again, "a repeated epoch differs");
    assert!(first != second);
    assert!(first != all_contents(make(2), 0));
}

#[test]
fn an_epoch_can_start_at_any_batch() {
    let source = NumberSource::new(60);
    let unbroken = all_contents(loader(source.clone()).shuffle(9), 4);
    let mut batches = loader(source).shuffle(9).host().unwrap();
    for first in [0, 3, 8, 9, 20] {
        let rest: Vec<_> = batches.epoch_from(4, first).map(|b| BatchContent::from(&b.unwrap())).collect();
        assert!(rest == unbroken[unbroken.len().min(first as usize)..], "from batch {first}");
    }
}

#[test]
fn a_configured_loader_works_in_a_for_loop() {
    let source = NumberSource::new(20);
    let mut seen = Vec::new();
    for batch in loader(source.clone()).workers(2).pinned(false).prefetch(4) {
        seen.push(BatchContent::from(&batch.unwrap()));
    }
    assert_eq!(seen, reference_epoch(&source, NumberCodec, &Augment::train(16), None, 0, 7));
}

#[test]
fn the_last_batch_is_kept_dropped_or_padded() {
    let lens = |last| {
        let mut batches = loader(NumberSource::new(17)).last_batch(last).host().unwrap();
        batches.epoch(0).map(|b| b.unwrap().valid().map(u8::from).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(lens(LastBatch::Keep), [vec![1; 7], vec![1; 7], vec![1; 3]]);
    assert_eq!(lens(LastBatch::Drop), [vec![1; 7], vec![1; 7]]);
    assert_eq!(lens(LastBatch::Pad), [vec![1; 7], vec![1; 7], vec![1, 1, 1, 0, 0, 0, 0]]);
}

/// The epoch has 2^40 samples, so a startup with a cost per batch would never end.
#[test]
fn a_batch_far_into_an_epoch_does_not_need_those_before_it() {
    exit_on_hang(|| {
        let (source, first) = (NumberSource::new(1 << 40), 100_000_000_000);
        let mut batches = loader(source.clone()).shuffle(9).workers(2).prefetch(2).host().unwrap();
        let batch = batches.epoch_from(4, first).next().unwrap().unwrap();
        let order = Shuffled::new(1 << 40, 9);
        let expected: Vec<u64> = (0..7).map(|i| order.index(4, first * 7 + i)).collect();
        assert_eq!(batch.ids().collect::<Vec<_>>(), expected);
        drop((batch, batches));
        assert!(source.reads() <= 7 * 8, "{} samples were read for one batch of 7", source.reads());
    });
}
