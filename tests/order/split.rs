//! Tests that a dataset can be split into disjoint parts with given fractions of its samples. The
//! same seed must give the same split. A split can be stratified by class.

use std::collections::HashSet;

use crate::support::{self, NumberSource, loader};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{ErrorKind, Loader};

fn ids(loader: Loader) -> Vec<u64> {
    loader.into_iter().flat_map(|batch| batch.unwrap().ids().collect::<Vec<_>>()).collect()
}

#[test]
fn each_sample_is_in_one_part_which_depends_on_the_seed() {
    let split = |seed| loader(NumberSource::new(500)).split([0.8, 0.2], seed).unwrap().map(ids);
    let [train, val] = split(42);
    assert_eq!((train.len(), val.len()), (400, 100));
    assert_eq!(train.iter().chain(&val).collect::<HashSet<_>>().len(), 500);
    assert_eq!(split(42), [train.clone(), val]);
    assert_ne!(split(43)[0], train);
}

#[test]
fn splitting_a_subset_keeps_the_options_of_the_loader() {
    let [a, b] =
        loader(NumberSource::new(500)).batch_size(7).subset((0..100).map(|i| 5 * i)).split([0.5, 0.5], 1).unwrap();
    let a = a.shuffle(9).host().unwrap();
    assert_eq!((a.source_len(), a.epoch_len(0), a.num_batches(0)), (500, 50, 8));
    assert!(ids(b).iter().all(|id| id.is_multiple_of(5)));
}

#[test]
fn each_class_is_split_separately() {
    let sample = |i: u64| {
        let sample = OwnedSample::new(format!("{i}")).field("img", i.to_le_bytes());
        if i == 999 { sample } else { sample.label(i64::from(i.is_multiple_of(10))) }
    };
    let open = |n| {
        Loader::source(Memory::new((0..n).map(sample).collect()))
            .codec(support::NumberCodec)
            .augment(warpfeed::Augment::train(16))
    };
    let [train, val] = open(200).split_stratified([0.75, 0.25], 3).unwrap().map(ids);
    let rare = |ids: &[u64]| ids.iter().filter(|id| id.is_multiple_of(10)).count();
    assert_eq!((train.len(), rare(&train), val.len(), rare(&val)), (150, 15, 50, 5));
    let e = open(1000).split_stratified([0.5, 0.5], 3).unwrap_err();
    assert!(e.sample() == Some(999) && e.cause() == "no label, but split_stratified() requires one", "{e}");
}

#[test]
fn invalid_fractions_and_unsplittable_mixtures_are_refused() {
    let e = loader(NumberSource::new(10)).split([0.8, 0.3], 0).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Config);
    let e = Loader::mixture([("a", 0.5), ("b", 0.5)]).split([0.5, 0.5], 0).unwrap_err();
    assert!(e.cause().contains("mixture"), "{e}");
}
