//! Fuzzes checkpoints: damages the text of a checkpoint, and resumes a loader from it.

use std::sync::Arc;

use serde_json::Value;

use super::Loader;
use crate::engine::{Checkpoint, EngineConfig, Shared};
use crate::field::DeviceSplit;
use crate::fuzz::{self, Random};
use crate::sampler::Sampler;
use crate::source::{Memory, OwnedSample, Source};
use crate::{Augment, ErrorKind, Layout};

const SAMPLES: u64 = 40;
const WORDS: [&[u8]; 19] = [
    b"\"version\":",
    b"\"epoch\":",
    b"\"batch\":",
    b"\"seed\":",
    b"\"samples\":",
    b"\"epoch_samples\":",
    b"\"probes\":[",
    b"\"position\":",
    b"\"key\":",
    b"\"augment\":",
    b"[{\\\"train\\\":",
    b"null",
    b"1e400",
    b"-1",
    b"0.5",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\"\\ud800\"",
    b"[[[[[[[[[[[[[[[[",
];

/// A sampler that breaks its contract: indices are out of range, and very late epochs panic.
struct Careless;

impl Sampler for Careless {
    fn len(&self, epoch: u64) -> u64 {
        if epoch >= 1 << 40 {
            // Unwind like a panic, but without printing a million messages.
            std::panic::resume_unwind(Box::new("nobody trains that long"));
        }
        SAMPLES - epoch % 3
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        if epoch.is_multiple_of(5) { position } else { position + epoch }
    }
}

struct Brief;

impl Sampler for Brief {
    fn len(&self, epoch: u64) -> u64 {
        if epoch == 0 { SAMPLES } else { 0 }
    }

    fn index(&self, _: u64, position: u64) -> u64 {
        position
    }
}

/// A loader without threads and batch buffers, and its checkpoint.
struct Saved {
    loader: Loader,
    opening: EngineConfig,
    text: Vec<u8>,
    value: Value,
    sound: bool,
}

fn saved() -> Vec<Saved> {
    let source = |first: u64| -> Arc<dyn Source> {
        let npy = [&crate::decode::raw::npy_header(crate::decode::Size::new(2, 2))[..], &[7; 12]].concat();
        let sample = |i| OwnedSample::new(format!("class/{i}")).field("rgb.npy", npy.clone()).label(i as i64 % 3);
        Arc::new(Memory::new((first..first + SAMPLES).map(sample).collect()))
    };
    let plain = || Loader::source(source(0));
    let loaders = [
        plain(),
        plain().shuffle(5),
        plain().shuffle_window(8).seed(u64::MAX),
        plain().shuffle(5).buckets((0..SAMPLES).map(|i| i as u32 % 9), [2, 4]),
        plain().weights((0..SAMPLES).map(|i| i as f64)),
        plain().shuffle(5).repeat(3),
        plain().shuffle(1).subset((0..SAMPLES / 2).map(|i| 2 * i)),
        Loader::mixture([(source(0), 0.5), (source(100), 0.5)]),
        plain().sampler(Brief),
        plain().sampler(Careless),
    ];
    let careless = loaders.len() - 1;
    let save = |(i, loader): (usize, Loader)| {
        let loader = loader.batch_size(7).augment(Augment::pass_through(2, 2)).workers(1);
        let written = loader.images.format(Layout::Nhwc).expect("valid options");
        let split = DeviceSplit::host([&loader.images.augment]);
        let kinds = loader.fields().expect("valid options");
        let opening = loader.clone().open(kinds, written, split, |_, _| 0).expect("valid options");
        let state = loader.clone().host().expect("valid options").checkpoint();
        let mut value = serde_json::to_value(&state).expect("plain data serializes");
        value["epoch"] = i.into();
        value["batch"] = 3.into();
        value["epoch_samples"] = opening.shared.schedule.order().len(i as u64).into();
        value["order"] = Value::Null;
        Saved { loader, opening, text: value.to_string().into(), value, sound: i < careless }
    };
    loaders.into_iter().enumerate().map(save).collect()
}

fn change(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) if random.below(8) > 0 => {
            let name = fields.keys().nth(random.below(fields.len())).cloned();
            if let Some(field) = name.and_then(|name| fields.get_mut(&name)) {
                change(field, random);
            }
        }
        Value::Array(items) if random.below(4) > 0 && !items.is_empty() => {
            let item = random.below(items.len());
            change(&mut items[item], random);
        }
        // Formats without field names write a struct as a list.
        Value::Object(fields) => *value = fields.values().cloned().collect(),
        Value::Array(items) if random.below(2) == 0 => items.truncate(random.below(items.len() + 1)),
        Value::Array(items) => {
            let more = items.iter().cycle().take(random.below(300)).cloned().collect::<Vec<_>>();
            items.extend(more);
        }
        _ => {
            let edge = 1u64.checked_shl(random.below(65) as u32).unwrap_or(0);
            *value = match random.below(8) {
                0 => Value::Null,
                1 => Value::from(-1),
                2 => Value::from(0.5),
                3 => Value::from("class/7"),
                4 => Value::from(random.below(12)),
                _ => edge.wrapping_add(random.below(5) as u64).wrapping_sub(2).into(),
            };
        }
    }
}

/// A damaged checkpoint must fail to parse, be rejected for its options, or be a valid position.
fn checkpoint(saved_runs: &[Saved], texts: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let saved = &saved_runs[random.below(saved_runs.len())];
    let text = if random.below(3) == 0 {
        random.mutated(texts, &WORDS)
    } else {
        let mut value = saved.value.clone();
        for _ in 0..random.below(4) {
            change(&mut value, random);
        }
        // A matching number of samples makes more checkpoints acceptable.
        if random.below(2) == 0 && value.is_object() {
            let far = if random.below(4) == 0 { 0 } else { random.below(64) };
            value["epoch"] = (random.next() >> far).into();
            value["batch"] = random.below(9).into();
            let len = || saved.opening.shared.schedule.order().len(value["epoch"].as_u64().unwrap_or(0));
            if saved.sound {
                value["epoch_samples"] = len().into();
            }
        }
        value.to_string().into()
    };
    let Ok(state) = serde_json::from_slice::<Checkpoint>(&text) else { return false };
    let again = serde_json::to_vec(&state).expect("plain data serializes");
    assert!(serde_json::from_slice::<Checkpoint>(&again).expect("a serialized checkpoint parses") == state);

    let Shared { recipe, runtime, schedule, .. } = &saved.opening.shared;
    let position = match state.check(recipe, &runtime.counters, schedule) {
        Ok((position, _)) => position,
        Err(e) => {
            assert!(e.kind() == ErrorKind::Config && e.cause().starts_with("resume: "), "{e}");
            return false;
        }
    };
    assert_eq!((position.epoch, position.batch), (state.epoch(), state.batch()));
    if serde_json::to_value(&state).expect("plain data serializes")["stateful"] == true {
        return true;
    }
    // Except for the position, missing keys and the augmentation (compared below), an accepted
    // checkpoint equals the loader's own.
    let mut restored = serde_json::to_value(&state).expect("plain data serializes");
    for field in ["epoch", "batch", "epoch_samples", "order"] {
        restored[field] = saved.value[field].clone();
    }
    for (restored, saved_rank) in
        restored["probes"].as_array_mut().into_iter().flatten().zip(saved.value["probes"].as_array().expect("a list"))
    {
        if restored["key"].is_null() {
            restored["key"] = saved_rank["key"].clone();
        }
    }
    // An augmentation can be written in several ways, so parsed values are compared. A checkpoint
    // may lack the augmentation.
    let augments = |steps_of: &Value| {
        steps_of["augment"].as_str().map(|text| serde_json::from_str::<Vec<Augment>>(text).expect("steps"))
    };
    if augments(&restored).is_none_or(|augments_found| Some(augments_found) == augments(&saved.value)) {
        restored["augment"] = saved.value["augment"].clone();
    }
    assert!(restored == saved.value, "accepted {restored}, but the loader saved {}", saved.value);

    let batches = schedule.num_batches(state.epoch());
    assert!(state.batch() <= batches);
    if saved.sound {
        let mut picks = Vec::new();
        for number in state.batch()..batches.min(state.batch() + 3) {
            schedule.fill(state.epoch(), number, &mut picks);
            assert!(!picks.is_empty() && picks.iter().all(|pick| pick.sample < recipe.source.len() as u64));
        }
    }
    // Starting threads is slow, so only some loaders are opened completely.
    if random.below(32) == 0 {
        let batches = saved.loader.clone().resume(state.clone()).into_iter();
        for (number, batch) in (state.batch()..).zip(batches).take(3) {
            match batch {
                Ok(batch) => assert_eq!((batch.epoch(), batch.batch_index()), (state.epoch(), number)),
                Err(e) => assert!(!saved.sound, "{e}"),
            }
        }
    }
    true
}

#[test]
fn checkpoints() {
    let saved_runs = saved();
    let texts: Vec<_> = saved_runs.iter().map(|saved| saved.text.clone()).collect();
    fuzz::run("checkpoints", |seed| checkpoint(&saved_runs, &texts, seed));
}
