//! Tests that each dataset of a mixture gets its own augmentation. A sample must be the same as
//! from a loader that uses this augmentation for all datasets.

use std::sync::Arc;

use crate::reference_fields::{PlanRecord, npy};
use crate::support::{exit_on_hang, refused};
use warpfeed::field::{Boxes, Mask};
use warpfeed::sampler::{MixtureOptions, Rng};
use warpfeed::source::{Memory, OwnedSample, Source};
use warpfeed::transform::{CopyPaste, Mix, Mosaic, RandomErasing};
use warpfeed::{Augment, Dtype, ErrorKind, HostBatch, LastBatch, Loader};

const FIRST: u64 = 30;
const FIELDS: [&str; 4] = ["image", "plan", "boxes", "mask"];

type Row = (u64, Vec<Vec<u8>>);

fn set(first: u64, len: u64) -> Arc<dyn Source> {
    let sample = |number: u64| {
        let mut rng = Rng::new(number, 4, 4);
        let (width, height) = (40 + rng.below(30), 40 + rng.below(30));
        let noise: Vec<u8> = (0..width * height * 3).map(|_| rng.next_u64() as u8).collect();
        let mask: Vec<u8> = noise.chunks(3).map(|pixel| pixel[0] % 4).collect();
        OwnedSample::new(format!("key{number}"))
            .field("rgb.npy", npy("|u1", &format!("({height}, {width}, 3)"), &noise))
            .field("boxes.txt", format!("2 3 {} {}", width / 2, height / 2))
            .field("mask.npy", npy("|u1", &format!("({height}, {width})"), &mask))
    };
    Arc::new(Memory::new((first..first + len).map(sample).collect()))
}

fn mixture() -> Loader {
    let loader = Loader::mixture([(set(0, FIRST), 0.6), (set(FIRST, 50), 0.4)]).drop_field("label").seed(7);
    let loader = loader.field("plan", PlanRecord).field("boxes", Boxes::new(4));
    loader.field("mask", Mask::new(Dtype::U8).fill(255.into())).batch_size(6)
}

fn rows(batch: &HostBatch) -> Vec<Row> {
    let bytes = |row: usize| {
        let rows_of = |name: &str| {
            let bytes = batch.field(name).unwrap().bytes();
            let each = bytes.len() / batch.len();
            bytes[row * each..][..each].to_vec()
        };
        FIELDS.map(rows_of).to_vec()
    };
    let valid = batch.ids().zip(batch.valid()).enumerate().filter(|(_, (_, valid))| *valid);
    valid.map(|(row, (id, _))| (id, bytes(row))).collect()
}

fn run(loader: Loader, epochs: u64) -> Vec<Row> {
    let mut batches = loader.host().unwrap();
    let first = batches.first_epoch();
    let batches =
        (first..epochs).flat_map(|epoch| batches.epoch(epoch).map(|batch| rows(&batch.unwrap())).collect::<Vec<_>>());
    batches.flatten().collect()
}

fn pairs() -> Vec<(Augment, Augment)> {
    let train = || Augment::train(24);
    let later = train().from_epoch(1, Augment::eval(40, 32)).from_epoch(2, train());
    let grown = Augment::letterbox(24, 24).from_epoch(1, Augment::resize(32, 32)).from_epoch(2, train().flip(1.0));
    vec![
        (train(), Augment::letterbox(24, 24).fill([9, 8, 7])),
        (Augment::eval(30, 24), train().vertical_flip(0.5).solarize(100.0, 0.5)),
        (later, grown),
        (train(), train().from_epoch(2, train().flip(1.0).grayscale(0.5))),
        (Augment::iou_crop(24, 24), Augment::scale_jitter(24, 0.5, 1.5)),
        (train(), Augment::letterbox(24, 24).mosaic(Mosaic::new())),
        (Augment::letterbox(24, 24).mosaic(Mosaic::new()), Augment::letterbox(24, 24).from_epoch(1, train())),
    ]
}

fn merge_rows(of_first: &[Row], of_second: &[Row]) -> Vec<Row> {
    let chosen = |(first, second): (&Row, &Row)| if first.0 < FIRST { first.clone() } else { second.clone() };
    of_first.iter().zip(of_second).map(chosen).collect()
}

#[test]
fn each_sample_has_the_augmentation_of_its_dataset() {
    for (common, augment) in pairs() {
        let [first, second] = [&common, &augment].map(|augment| run(mixture().augment(augment.clone()), 3));
        let expected = merge_rows(&first, &second);
        assert!(expected != first && expected != second);
        let both = || mixture().augment(common.clone()).augment_for(1, augment.clone());
        for workers in [1, 3, 8] {
            assert!(run(both().workers(workers), 3) == expected, "{workers} workers: {common} and {augment}");
        }
        let separate =
            mixture().augment(Augment::resize(9, 9)).augment_for(0, common.clone()).augment_for(1, augment.clone());
        assert!(run(separate, 3) == expected, "{common} and {augment}");
        let ranks = [0, 1, 2].map(|rank| both().batch_size(2).rank(rank, 3).host().unwrap());
        let mut joined = Vec::new();
        let mut ranks = ranks;
        for epoch in 0..3 {
            let batches =
                ranks.each_mut().map(|rank| rank.epoch(epoch).map(|batch| rows(&batch.unwrap())).collect::<Vec<_>>());
            for number in 0..batches[0].len() {
                batches.iter().for_each(|rank| joined.extend(rank[number].clone()));
            }
        }
        assert!(joined == expected, "3 ranks: {common} and {augment}");
    }
}

#[test]
fn batches_of_one_dataset_have_its_augmentation_and_size() {
    exit_on_hang(|| {
        let mix = |augment: Augment| augment.mix(Mix::either(0.4, 1.0));
        let [common, second_mix] =
            [Augment::train(24), Augment::letterbox(24, 24).erase(RandomErasing::new(0.8))].map(mix);
        let options = || MixtureOptions::new().single_dataset_batches(true).global_batch_sizes([7, 3]);
        let make = |augment: &Augment| {
            let loader = Loader::mixture([(set(0, FIRST), 0.6), (set(FIRST, 50), 0.4)]).drop_field("label").seed(7);
            loader.mixture_options(options()).augment(augment.clone()).last_batch(LastBatch::Drop)
        };
        let images = |loader: Loader| {
            let mut batches = loader.host().unwrap();
            let image = |batch: HostBatch| (batch.ids().next().unwrap(), batch.images().bytes().to_vec());
            let batches =
                (0..2).flat_map(|epoch| batches.epoch(epoch).map(|batch| image(batch.unwrap())).collect::<Vec<_>>());
            batches.collect::<Vec<_>>()
        };
        let [first, second] = [&common, &second_mix].map(|augment| images(make(augment)));
        let expected: Vec<_> =
            first.iter().zip(&second).map(|(ours, other)| if ours.0 < FIRST { ours } else { other }).cloned().collect();
        assert!(expected != first && expected != second);
        assert!(images(make(&common).augment_for(1, second_mix)) == expected);
    });
}

#[test]
fn a_run_with_an_augmentation_for_each_dataset_resumes() {
    let (common, second_augment) = (Augment::train(24), Augment::letterbox(24, 24).flip(0.5).solarize(100.0, 0.5));
    let make = |augment: &Augment| mixture().augment(common.clone()).augment_for(1, augment.clone());
    let unbroken = run(make(&second_augment), 2);
    let mut batches = make(&second_augment).host().unwrap();
    let delivered: usize = batches.epoch(0).take(5).map(|batch| batch.unwrap().len()).sum();
    let saved = batches.checkpoint();
    assert!(run(make(&second_augment).workers(1).resume(saved.clone()), 2) == unbroken[delivered..]);
    let refused = |loader: Loader, words: &str| {
        let e = loader.resume(saved.clone()).host().unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.to_string().contains(words), "{e}");
    };
    refused(
        make(&Augment::letterbox(24, 24).flip(0.25).solarize(100.0, 0.5)),
        "the augmentation of dataset 1 differs in step 2: the checkpoint has flip(probability=0.5), this loader has \
         flip(probability=0.25)",
    );
    refused(make(&second_augment).augment(Augment::eval(30, 24)), "the augmentation of dataset 0 differs in step 1");
    refused(mixture().augment(common.clone()), "the checkpoint has 3 augmentations, this loader has 1");
    assert!(make(&common).resume(saved.clone().any_augment()).host().is_ok());
}

#[test]
fn augmentations_that_contradict_each_other_are_refused() {
    let train = || Augment::train(24);
    let pair = |common: Augment, augment: Augment| mixture().augment(common).augment_for(1, augment);
    refused(
        pair(train(), Augment::train(32)),
        "augment_for: dataset 1 has images of 32x32 pixels in epoch 0, but dataset 0 has 24x24",
    );
    refused(
        pair(train(), train().from_epoch(4, Augment::train(32))),
        "dataset 1 has images of 32x32 pixels in epoch 4, but dataset 0 has 24x24",
    );
    refused(
        pair(train(), train().mix(Mix::mixup(0.2))),
        "datasets 0 and 1 have different Augment::mix settings in epoch 0: mixing applies to whole batches",
    );
    refused(pair(train(), train().flip(2.0)), "dataset 1: ");
    refused(mixture().augment_for(2, train()), "there is no dataset 2: the mixture has 2 datasets, numbered from 0");
    refused(
        Loader::source(set(0, 4)).augment_for(0, train()),
        "augment_for: expected a mixture, but this loader has one dataset",
    );
    let labeled = || Loader::mixture([(set(0, 4), 0.5), (set(4, 4), 0.5)]).augment(train());
    refused(
        labeled().augment_for(1, Augment::iou_crop(24, 24)),
        "dataset 1: augment: iou_crop needs a field with boxes",
    );
    refused(pair(train(), train().copy_paste(CopyPaste::new())), "dataset 1: ");
}

#[test]
fn proportions_cannot_change_if_one_dataset_has_mosaics() {
    let tiled = Augment::letterbox(24, 24).mosaic(Mosaic::new());
    let batches = mixture().augment(Augment::train(24)).augment_for(1, tiled).host().unwrap();
    let e = batches.set_mixture(&[1.0, 1.0], 0).unwrap_err();
    assert!(e.to_string().contains("remove mosaic and copy_paste"), "{e}");
}
