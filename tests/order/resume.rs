//! Tests that a run resumes after the last delivered batch, with a different number of workers or
//! ranks, and after `kill -9`. A different dataset, seed, batch size, order or augmentation must be
//! refused.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::process::child;
use crate::support::{self, BatchContent, NumberSource, exit_on_hang, loader};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use warpfeed::sampler::{Rng, Sampler};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Checkpoint, ErrorKind, HostBatch, LastBatch, Loader, Result};

const EPOCHS: u64 = 3;

type Step = (u64, u64, BatchContent, Vec<bool>);

fn step(batch: &HostBatch) -> Step {
    (batch.epoch(), batch.batch_index(), BatchContent::from(batch), batch.valid().collect())
}

fn rest(loader: Loader, all_epochs: bool) -> Vec<Step> {
    let mut batches = loader.host().unwrap();
    let first = if all_epochs { 0 } else { batches.first_epoch() };
    (first..EPOCHS).flat_map(|epoch| batches.epoch(epoch).map(|b| step(&b.unwrap())).collect::<Vec<_>>()).collect()
}

fn stop(loader: Loader, steps: usize) -> String {
    let mut batches = loader.host().unwrap();
    let mut remaining = steps;
    for number in 0..EPOCHS {
        let mut epoch = batches.epoch(number);
        while remaining > 0 && epoch.next().map(Result::unwrap).is_some() {
            remaining -= 1;
        }
        let inside = epoch.checkpoint();
        drop(epoch);
        assert_eq!(batches.checkpoint(), inside);
        if remaining == 0 {
            break;
        }
    }
    serde_json::to_string(&batches.checkpoint()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_resumes_from_any_point_on_any_workers_and_ranks(
        samples in 1usize..60,
        global in 3usize..20,
        last in prop_oneof![Just(LastBatch::Keep), Just(LastBatch::Drop), Just(LastBatch::Pad)],
        seed: u64,
        point in 0.0f64..=1.0,
        before in (1usize..4, 1usize..4),
        after in (1usize..4, 1usize..4),
        all_epochs: bool,
    ) {
        exit_on_hang(|| {
            let make = |workers, rank, world| {
                let loader = loader(NumberSource::new(samples)).shuffle(seed).global_batch_size(global).last_batch(last);
                loader.workers(workers).rank(rank, world)
            };
            if last == LastBatch::Drop && samples < global {
                assert_eq!(make(1, 0, 1).host().map(|_| ()).unwrap_err().kind(), ErrorKind::Config);
                return;
            }
            let steps = rest(make(1, 0, 1), false).len();
            let seen = (point * steps as f64) as usize;
            let saved: Vec<_> = (0..before.1).map(|rank| stop(make(before.0, rank, before.1), seen)).collect();
            assert!(saved.iter().all(|state| *state == saved[0]));
            for rank in 0..after.1 {
                let unbroken = rest(make(1, rank, after.1), false);
                let state: Checkpoint = serde_json::from_str(&saved[0]).unwrap();
                let rest = rest(make(after.0, rank, after.1).resume(state), all_epochs);
                assert!(rest == unbroken[seen..], "after batch {seen} of {steps}");
            }
        });
    }
}

#[test]
fn a_checkpoint_is_small_and_states_its_position() {
    let mut batches = loader(NumberSource::new(50)).shuffle(1).host().unwrap();
    let state = batches.checkpoint();
    assert_eq!((state.epoch(), state.batch(), batches.first_epoch()), (0, 0, 0));
    for _ in batches.epoch(4).take(3) {}
    let state = batches.checkpoint();
    assert_eq!((state.epoch(), state.batch()), (4, 3), "breaking out of an epoch does not end it");
    assert!(batches.epoch(4).last().is_some());
    assert_eq!(
        (batches.checkpoint().epoch(), batches.checkpoint().batch()),
        (5, 0),
        "an epoch ends after its last batch"
    );
    assert!(batches.epoch_from(7, 6).next().is_some());
    assert_eq!((batches.checkpoint().epoch(), batches.checkpoint().batch()), (7, 7));
    let text = serde_json::to_string(&state).unwrap();
    assert!(text.len() < 800, "{} bytes: {text}", text.len());

    let mut resumed = loader(NumberSource::new(50)).shuffle(1).resume(state.clone()).host().unwrap();
    assert_eq!(resumed.first_epoch(), 4);
    assert_eq!(resumed.epoch(3).count(), 0, "delivered samples are not delivered again");
    assert_eq!(resumed.checkpoint(), state, "a resumed loader is at the saved position");
    assert_eq!(resumed.epoch(4).map(|b| b.unwrap().batch_index()).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    assert_eq!(resumed.epoch(4).count(), 8, "a repeated epoch is complete");
    assert_eq!(resumed.epoch(3).count(), 8);
}

#[test]
fn resuming_starts_in_the_epoch_of_the_checkpoint() {
    let mut batches = loader(NumberSource::new(50)).host().unwrap();
    for _ in batches.epoch(4).take(3) {}
    assert_eq!(batches.first_epoch(), 0);
    let mut resumed = loader(NumberSource::new(50)).resume(batches.checkpoint()).host().unwrap();
    for epoch in 4..7 {
        assert_eq!(resumed.first_epoch(), 4, "before epoch {epoch}");
        assert!(resumed.epoch(epoch).all(|batch| batch.is_ok()));
    }
    assert_eq!((resumed.first_epoch(), resumed.checkpoint().epoch()), (4, 7));
}

#[test]
fn a_resumed_loader_works_in_a_for_loop() {
    let mut batches = loader(NumberSource::new(50)).shuffle(1).host().unwrap();
    for _ in batches.epoch(2).take(5) {}
    let numbers = loader(NumberSource::new(50)).shuffle(1).resume(batches.checkpoint()).into_iter();
    let numbers: Vec<_> = numbers.map(|b| b.map(|b| (b.epoch(), b.batch_index())).unwrap()).collect();
    assert_eq!(numbers, [(2, 5), (2, 6), (2, 7)]);
}

#[test]
fn a_failed_batch_is_retried_after_resuming() {
    let set = |bad_index: usize| {
        let sample = |i: usize| {
            let number = if i == bad_index { vec![] } else { (i as u64).to_le_bytes().to_vec() };
            OwnedSample::new(format!("{i}")).field("img", number).label(0)
        };
        Loader::source(Memory::new((0..50).map(sample).collect()))
            .codec(support::NumberCodec)
            .augment(warpfeed::Augment::train(16))
            .batch_size(7)
    };
    let mut batches = set(25).host().unwrap();
    assert!(batches.epoch(0).any(|b| b.is_err()));
    let state = batches.checkpoint();
    assert_eq!((state.epoch(), state.batch()), (0, 3));
    let numbers: Vec<_> = set(99).resume(state).into_iter().map(|b| b.unwrap().batch_index()).collect();
    assert_eq!(numbers, [3, 4, 5, 6, 7]);
}

#[test]
fn resuming_a_changed_loader_fails_with_both_values() {
    let numbers = || loader(NumberSource::new(100)).batch_size(10);
    let mut batches = numbers().shuffle(5).host().unwrap();
    for _ in batches.epoch(1).take(4) {}
    let state = batches.checkpoint();
    let refused = |loader: Loader, state: &Checkpoint, words: &[&str]| {
        let e = loader.resume(state.clone()).host().unwrap_err();
        assert!(e.kind() == ErrorKind::Config && words.iter().all(|w| e.cause().contains(w)), "{e}");
    };
    refused(numbers().shuffle(6), &state, &["seed", "has 5,", "has 6"]);
    refused(numbers().shuffle(5).batch_size(20), &state, &["global batch", "has 10,", "has 20"]);
    refused(numbers().shuffle(5).rank(0, 2), &state, &["global batch", "has 10,", "has 20"]);
    refused(
        loader(NumberSource::new(101)).batch_size(10).shuffle(5),
        &state,
        &["source samples", "has 100,", "has 101"],
    );
    refused(numbers().seed(5), &state, &["the order", "position 0 of epoch 0"]);
    let renamed = Memory::new((0..100).map(|i| OwnedSample::new(format!("new/{i}")).field("img", [])).collect());
    let renamed = Loader::source(renamed).codec(support::NumberCodec).batch_size(10).shuffle(5);
    refused(renamed, &state, &["the dataset", "/0000", "has new/"]);
    assert!(numbers().shuffle(5).batch_size(5).rank(1, 2).resume(state.clone()).host().is_ok());

    let text = serde_json::to_string(&state).unwrap();
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        serde_json::from_str(&text.replace(from, to)).unwrap()
    };
    refused(
        numbers().shuffle(5),
        &edited("\"version\":1", "\"version\":2"),
        &["version 2 and 0 changes in its history"],
    );
    let later = serde_json::from_str(r#"{"version":7,"cursor":[1,2]}"#).unwrap();
    refused(numbers().shuffle(5), &later, &["version 7; this build reads versions 1 and 2"]);
    for part in ["\"version\":1,", "\"epoch\":1,", "\"batch\":4,"] {
        refused(numbers().shuffle(5), &edited(part, ""), &["version, epoch or batch is missing", "whole checkpoint"]);
    }
    refused(numbers().shuffle(5), &edited("\"batch\":4", "\"batch\":11"), &["batch 11 of epoch 1, which has 10"]);
    refused(
        numbers().shuffle(5),
        &edited("\"epoch_samples\":100", "\"epoch_samples\":7"),
        &["epoch 1", "has 7,", "has 100"],
    );
}

#[derive(Clone, Default)]
struct Stateful {
    shift: Arc<AtomicU64>,
    asked: Arc<Mutex<HashSet<u64>>>,
}

impl Sampler for Stateful {
    fn len(&self, epoch: u64) -> u64 {
        self.asked.lock().unwrap().insert(epoch);
        100
    }

    fn index(&self, _: u64, position: u64) -> u64 {
        (position + self.shift.load(Relaxed)) % 100
    }
}

#[test]
fn resuming_a_changed_augmentation_fails_with_the_step() {
    let samples = Memory::new((0..20).map(|i| OwnedSample::new(format!("{i}")).field("img", [])).collect());
    let loader = |augment: Augment| Loader::source(samples.clone()).drop_field("label").batch_size(4).augment(augment);
    let train = || Augment::train(32).scale(0.25, 1.0).solarize(128.0, 0.2);
    let state = loader(train()).host().unwrap().checkpoint();
    let resumed = |loader: Loader| loader.resume(state.clone()).host();
    let refused = |augment: Augment, words: &str| {
        let e = resumed(loader(augment)).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(words), "{e}");
    };
    refused(train().flip(0.2), "in step 4: the checkpoint has no more steps, this loader has flip(probability=0.2)");
    refused(
        Augment::train(32).scale(0.2, 1.0).solarize(128.0, 0.2),
        "in step 2: the checkpoint has scale(low=0.25, high=1.0), this loader has scale(low=0.2, high=1.0)",
    );
    refused(
        Augment::train(32).scale(0.25, 1.0).solarize(127.0, 0.2),
        "the checkpoint has solarize(threshold=128.0, probability=0.2), this loader has solarize(threshold=127.0",
    );
    refused(train().from_epoch(9, Augment::eval(40, 32)), "this loader has from_epoch(epoch=9, augment=[{eval={");
    let e = resumed(loader(train()).views(vec![train(), train()])).unwrap_err();
    assert!(e.cause().contains("the checkpoint has 1 augmentations, this loader has 2"), "{e}");
    // Different options that give the same pixels are accepted.
    assert!(
        resumed(loader(Augment::train(32).flip(0.5).scale(0.1, 0.2).scale(0.25, 1.0).solarize(128.0, 0.2))).is_ok()
    );
    assert!(loader(Augment::eval(40, 32)).resume(state.clone().any_augment()).host().is_ok());
}

#[test]
fn an_order_that_depends_on_state_is_compared_inside_its_epoch() {
    let order = Stateful::default();
    let make = || loader(NumberSource::new(100)).batch_size(10).sampler(order.clone()).epochs(0);
    let mut batches = make().host().unwrap();
    let _ = batches.epoch(0).last();
    // Between two epochs, a checkpoint neither compares nor requests the order of the next epoch.
    let between = batches.checkpoint();
    assert!((between.epoch(), between.batch()) == (1, 0) && !order.asked.lock().unwrap().contains(&1));
    order.shift.store(3, Relaxed);
    let resumed: Vec<_> =
        make().resume(between).host().unwrap().epoch(1).map(|b| b.unwrap().ids().next().unwrap()).collect();
    assert_eq!(resumed[..2], [3, 13]);
    // Inside an epoch, a checkpoint compares the order of this epoch instead of epoch 0.
    for _ in batches.epoch(1).take(4) {}
    let inside = batches.checkpoint();
    assert!(make().resume(inside.clone()).host().is_ok());
    order.shift.store(4, Relaxed);
    let e = make().resume(inside.clone()).host().unwrap_err();
    assert!(
        e.cause().contains("the order of epoch 1 differs")
            && e.cause().contains("before you resume, restore the state"),
        "{e}"
    );
    order.shift.store(3, Relaxed);
    let e = loader(NumberSource::new(101))
        .batch_size(10)
        .sampler(order.clone())
        .epochs(0)
        .resume(inside)
        .host()
        .unwrap_err();
    assert!(e.cause().contains("source samples"), "{e}");
    let mut batches = loader(NumberSource::new(100)).batch_size(10).sampler(RotatesFromEpoch2(0)).host().unwrap();
    for _ in batches.epoch(2).take(1) {}
    let late = batches.checkpoint();
    let e =
        loader(NumberSource::new(100)).batch_size(10).sampler(RotatesFromEpoch2(1)).resume(late).host().unwrap_err();
    assert!(e.cause().contains("the order of epoch 2 differs from the saved one"), "{e}");
}

/// A sampler that rotates the samples by its field from epoch 2 on.
struct RotatesFromEpoch2(u64);

impl Sampler for RotatesFromEpoch2 {
    fn len(&self, _: u64) -> u64 {
        100
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        if epoch < 2 { position } else { (position + self.0) % 100 }
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_or_valid() {
    let make = || loader(NumberSource::new(100)).batch_size(10).shuffle(5).workers(1);
    let text = serde_json::to_string(&make().host().unwrap().checkpoint()).unwrap();
    let mut rng = Rng::new(1, 2, 3);
    let (mut unread, mut refused) = (0, 0);
    exit_on_hang(|| {
        for _ in 0..400 {
            let mut bytes = text.clone().into_bytes();
            let place = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[place] = b'0' + rng.below(10) as u8,
                1 => drop(bytes.remove(place)),
                _ => bytes.truncate(place),
            }
            match serde_json::from_slice::<Checkpoint>(&bytes) {
                Err(_) => unread += 1,
                Ok(state) => match make().resume(state).host() {
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Config, "{e}");
                        refused += 1;
                    }
                    Ok(mut batches) => drop(batches.epoch(batches.first_epoch()).next()),
                },
            }
        }
    });
    assert!(unread > 100 && refused > 20, "{unread} checkpoints failed to parse, and {refused} were refused");
}

#[derive(Serialize, Deserialize)]
struct Saved {
    steps: u64,
    model: u64,
    state: Checkpoint,
}

impl Saved {
    fn read(path: &Path) -> Option<Saved> {
        Some(serde_json::from_slice(&fs::read(path).ok()?).expect("a checkpoint is written completely or not at all"))
    }
}

fn learn(model: u64, (epoch, number, content, _): &Step) -> u64 {
    let bytes = content.images.iter().map(|&b| u64::from(b));
    bytes.chain(content.ids.iter().copied()).fold(model ^ epoch << 32 ^ number, |m, x| Rng::new(m, x, 0).next_u64())
}

fn killed_loader() -> Loader {
    loader(NumberSource::new(200)).shuffle(8).last_batch(LastBatch::Pad)
}

#[test]
#[ignore = "started by another test"]
fn train_until_killed() {
    let Ok(path) = std::env::var("CHECKPOINT") else { return };
    let (path, workers) = (Path::new(&path), std::env::var("WORKERS").unwrap().parse().unwrap());
    let saved = Saved::read(path);
    let (mut steps, mut model) = saved.as_ref().map_or((0, 0), |saved| (saved.steps, saved.model));
    let loader = killed_loader().workers(workers);
    let mut batches = match saved {
        Some(saved) => loader.resume(saved.state),
        None => loader,
    }
    .host()
    .unwrap();
    for epoch in batches.first_epoch()..EPOCHS {
        let mut epoch = batches.epoch(epoch);
        while let Some(batch) = epoch.next() {
            (steps, model) = (steps + 1, learn(model, &step(&batch.unwrap())));
            let checkpoint = Saved { steps, model, state: epoch.checkpoint() };
            fs::write(path.with_extension("new"), serde_json::to_vec(&checkpoint).unwrap()).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_killed_process_resumes_with_the_next_batch() {
    let expected = rest(killed_loader(), false);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let (mut rng, mut kills) = (Rng::new(7, 7, 7), 0);
    exit_on_hang(|| {
        loop {
            let mut process = child!(train_until_killed)
                .env("CHECKPOINT", &path)
                .env("WORKERS", (1 + rng.below(3)).to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let steps = || Saved::read(&path).map_or(0, |c| c.steps);
            let until = steps() + 1 + rng.below(12);
            let ended = loop {
                if let Some(status) = process.try_wait().unwrap() {
                    break status;
                }
                std::thread::sleep(Duration::from_micros(rng.below(3000)));
                if steps() >= until {
                    process.kill().unwrap();
                    kills += 1;
                    break process.wait().unwrap();
                }
            };
            match ended.code() {
                Some(0) => break,
                Some(code) => panic!("the process ended with {code}"),
                None => {} // killed
            }
        }
    });
    let last = Saved::read(&path).unwrap();
    assert!(kills >= 3, "only {kills} kills");
    assert_eq!(last.steps, expected.len() as u64);
    assert_eq!(last.model, expected.iter().fold(0, learn), "after {kills} kills");
}
