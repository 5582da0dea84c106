//! Tests that `Loader::trace` writes valid Chrome trace events, with one row for each thread that
//! does work. Spans must be properly nested, and include the program's own spans. The file must be
//! complete once the loader has been dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::process::serial;
use crate::support::{self, NumberSource, exit_on_hang, loader};
use serde_json::Value;
use warpfeed::trace::{Schedule, span};
use warpfeed::{ErrorKind, Loader};

fn train(path: &Path, schedule: Schedule, batches: usize) {
    // Slow the transform down, so that the first worker does not finish before the second one
    // starts.
    let slow = |_: &mut warpfeed::transform::ImageMut<'_>, _: &mut warpfeed::sampler::Rng| {
        std::thread::sleep(Duration::from_micros(100));
        Ok(())
    };
    exit_on_hang(|| {
        let loader = loader(NumberSource::new(700)).transform(slow).workers(2).trace(path, schedule);
        let mut loader = loader.host().unwrap();
        for batch in loader.epoch(4).take(batches) {
            let batch = batch.unwrap();
            let _step = span("train");
            {
                let _forward = span("forward");
                std::thread::sleep(Duration::from_micros(200));
            }
            let _backward = span("backward \"2\"");
            drop(batch);
        }
    });
}

fn events(path: &Path) -> Vec<Value> {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = document["traceEvents"].as_array().unwrap().clone();
    for event in &events {
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        assert!(event["args"].is_object(), "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                assert!(event["ts"].as_f64().unwrap() >= 0.0 && event["dur"].as_f64().unwrap() >= 0.0, "{event}");
                assert!(event["cat"].is_string(), "{event}");
            }
            "M" => assert!(event["args"]["name"].is_string() || event["args"]["sort_index"].is_u64(), "{event}"),
            other => panic!("phase {other}"),
        }
    }
    events
}

fn rows(events: &[Value]) -> BTreeMap<String, Vec<Value>> {
    let names: BTreeMap<_, _> = events
        .iter()
        .filter(|e| e["name"] == "thread_name")
        .map(|e| (e["tid"].as_u64().unwrap(), e["args"]["name"].as_str().unwrap().to_owned()))
        .collect();
    let mut rows = BTreeMap::<_, Vec<_>>::new();
    for event in events.iter().filter(|e| e["ph"] == "X") {
        rows.entry(names[&event["tid"].as_u64().unwrap()].clone()).or_default().push(event.clone());
    }
    rows
}

fn range(event: &Value) -> (f64, f64) {
    let ts = event["ts"].as_f64().unwrap();
    (ts, ts + event["dur"].as_f64().unwrap())
}

fn check_nesting(row: &[Value]) {
    let mut open: Vec<f64> = Vec::new();
    let mut last = 0.0;
    for event in row {
        let (begin, end) = range(event);
        assert!(begin >= last, "{event} begins before its predecessor");
        last = begin;
        // The tolerance of a thousandth of a nanosecond covers the conversion of decimal fractions
        // to binary.
        open.retain(|&outer| outer > begin + 1e-6);
        assert!(open.iter().all(|&outer| end <= outer + 1e-6), "{event} overlaps {open:?}");
        open.push(end);
    }
}

fn batches_of(row: &[Value]) -> BTreeSet<u64> {
    row.iter().filter_map(|e| e["args"]["batch"].as_u64()).collect()
}

#[test]
fn a_trace_window_has_a_row_for_each_active_thread() {
    let _serial = serial();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    train(&path, Schedule { wait: 10, warmup: 5, active: 20, repeat: 1 }, 60);
    let events = events(&path);
    let rows = rows(&events);
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["consumer", "coordinator", "worker 0", "worker 1"]);
    rows.values().for_each(|row| check_nesting(row));

    let consumer = &rows["consumer"];
    assert_eq!(batches_of(consumer), (15..35).collect(), "the batches of the window, and no others");
    let named = |name: &str| consumer.iter().filter(|e| e["name"] == name).count();
    assert_eq!(["train", "forward", "backward \"2\"", "wait for a batch"].map(named), [20; 4]);
    let (train, forward) =
        (consumer.iter().find(|e| e["name"] == "train"), consumer.iter().find(|e| e["name"] == "forward"));
    let (train, forward) = (range(train.unwrap()), range(forward.unwrap()));
    assert!(train.0 <= forward.0 && forward.1 <= train.1 && forward.1 - forward.0 >= 200.0);

    for worker in ["worker 0", "worker 1"] {
        for name in ["read", "decode", "transform", "write"] {
            let span =
                rows[worker].iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("no {name} of {worker}"));
            let args = &span["args"];
            let key = format!("class{}/{:06}", args["sample"].as_u64().unwrap() % 10, args["sample"].as_u64().unwrap());
            assert_eq!(args["key"], key, "{span}");
            assert_eq!(args["epoch"], 4, "{span}");
            assert!(args["bytes"].as_u64().unwrap() > 0 && args["batch"].is_u64(), "{span}");
        }
    }
    // All events are inside the window. It opens shortly before the consumer's first wait, so allow
    // 5 ms at the start.
    let (first, last) = (range(&consumer[0]).0 - 5e3, consumer.iter().map(|e| range(e).1).fold(0.0, f64::max));
    for event in rows.values().flatten() {
        assert!(range(event).0 >= first && range(event).1 <= last, "{event} is not in {first}..{last}");
    }
}

#[test]
fn the_file_is_complete_when_the_loader_is_dropped_in_a_window() {
    let _serial = serial();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    train(&path, Schedule { wait: 2, warmup: 1, active: 1_000_000, repeat: 1 }, 30);
    let rows = rows(&events(&path));
    // The loader is dropped after the thirtieth step, inside the window.
    assert_eq!(batches_of(&rows["consumer"]), (3..30).collect());
    rows.values().for_each(|row| check_nesting(row));
    for batches in [0, 1, 2] {
        train(&path, Schedule { wait: 2, warmup: 1, active: 9, repeat: 1 }, batches);
        assert!(events(&path).is_empty(), "a loader that is dropped before the window records no events");
    }
}

#[test]
fn the_file_is_complete_while_a_monitor_outlives_the_loader() {
    let _serial = serial();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let schedule = Schedule { wait: 2, warmup: 1, active: 1_000_000, repeat: 1 };
    let mut loader = loader(NumberSource::new(700)).trace(&path, schedule).host().unwrap();
    let monitor = loader.handle();
    loader.epoch(0).take(30).for_each(|batch| drop(batch.unwrap()));
    drop(loader);
    let complete = fs::read(&path).unwrap();
    assert_eq!(batches_of(&rows(&events(&path))["consumer"]), (3..30).collect());
    // After the end of the trace, this span must not be recorded, and the file must not be written
    // again.
    drop(span("after the loader"));
    assert_eq!(monitor.stats().batches, 30);
    drop(monitor);
    assert!(fs::read(&path).unwrap() == complete);
}

#[test]
fn windows_repeat_as_often_as_requested() {
    let _serial = serial();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let seen = |wait, warmup, active, repeat| {
        train(&path, Schedule { wait, warmup, active, repeat }, 20);
        batches_of(&rows(&events(&path))["consumer"]).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(seen(3, 1, 2, 2), [4, 5, 10, 11]);
    assert_eq!(seen(5, 0, 2, 0), [5, 6, 12, 13, 19]);
    assert_eq!(seen(0, 0, 1, 0), (0..20).collect::<Vec<_>>(), "no batch between two windows is missing");
}

#[test]
fn opening_fails_if_the_trace_cannot_be_written() {
    let _serial = serial();
    let schedule = Schedule { wait: 0, warmup: 0, active: 1, repeat: 1 };
    let e = loader(NumberSource::new(9)).trace("/nowhere/trace.json", schedule).host().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io);
    assert!(e.to_string().starts_with("/nowhere/trace.json: io: "), "{e}");
    let dir = tempfile::tempdir().unwrap();
    let never = Schedule { active: 0, ..schedule };
    let e = loader(NumberSource::new(9)).trace(dir.path().join("trace.json"), never).host().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Config);
}

#[test]
fn tracing_does_not_change_batches() {
    let _serial = serial();
    let dir = tempfile::tempdir().unwrap();
    let schedule = Schedule { wait: 1, warmup: 0, active: 3, repeat: 0 };
    let contents = |loader: warpfeed::Loader| -> Vec<support::BatchContent> {
        loader.into_iter().map(|batch| support::BatchContent::from(&batch.unwrap())).collect()
    };
    let traced = contents(loader(NumberSource::new(70)).workers(2).trace(dir.path().join("trace.json"), schedule));
    assert!(traced == contents(loader(NumberSource::new(70)).workers(2)));
}

#[test]
fn a_loader_that_fails_to_open_keeps_the_previous_trace() {
    let _serial = serial();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    fs::write(&path, "previous run").unwrap();
    let traced = |loader: Loader| loader.trace(&path, Schedule { wait: 0, warmup: 0, active: 1, repeat: 1 }).host();
    let state = loader(NumberSource::new(60)).shuffle(1).host().unwrap().checkpoint();
    assert!(
        traced(loader(NumberSource::new(60)).shuffle(2).resume(state)).is_err(),
        "the seed differs from the checkpoint's"
    );
    assert!(traced(loader(NumberSource::new(60)).memory_limit(1)).is_err(), "no memory");
    assert!(traced(loader(NumberSource::new(0))).is_err(), "no samples");
    assert_eq!(fs::read_to_string(&path).unwrap(), "previous run");
    drop(traced(loader(NumberSource::new(60))).unwrap());
    assert!(fs::read_to_string(&path).unwrap().starts_with("{"), "a successful opening overwrites the file");
}
