//! Tests the ring on the simulated device.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use self::host::*;
use super::*;
use crate::batch::{Delivered, Dtype, Role};
use crate::device::tests::sim::{Mistake, SLOTS, Sim, SimStream};
use crate::sampler::Rng;

mod host;
mod order_on_take;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod schedules;
mod streams;

fn next(ring: &mut Ring<Sim>) -> Option<Result<ConsumerBatch<Sim>>> {
    ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100))))
}

fn times() -> Arc<trace::Counters> {
    Arc::new(trace::Counters::new(0, 0, Vec::new()).unwrap())
}

fn open(sim: &Sim, dtype: Dtype, delay: u64) -> Result<Ring<Sim>> {
    open_spec(sim, spec(dtype), delay)
}

fn open_spec(sim: &Sim, spec: Spec, delay: u64) -> Result<Ring<Sim>> {
    let consumer = sim.stream()?;
    let feed = TestFeed::new(&spec, delay);
    Ring::new(sim.clone(), consumer, vec![spec], SLOTS - 1, Duration::from_millis(200), feed, times())
}

/// Results of the consumer's kernels: the epoch, the batch, and whether all arrays were correct.
type Seen = Arc<Mutex<Vec<(u64, u64, bool)>>>;

fn read(batch: &ConsumerBatch<Sim>, seen: &Seen) {
    let shared = &batch.shared;
    let (slot, info) = (batch.slot(), batch.info());
    let (epoch, number) = (info.epoch(), info.batch_index());
    let expected_arrays = expected_on_device(&shared.variant(info).spec, epoch, number);
    let (memory, seen) = (shared.memory.clone(), seen.clone());
    let offsets: Vec<usize> = shared.variant(info).layout.arrays.iter().map(|offset| slot.offset + offset).collect();
    let keys = info.sample_keys().enumerate().all(|(place, actual)| actual == key(number, place));
    let is_info_right = keys && info.mixing() == mixing(number).as_ref() && info.header.has_labels == (number % 3 == 1);
    shared.consumer.run(move |pace| {
        let mut right = is_info_right;
        for (offset, expected) in offsets.into_iter().zip(expected_arrays) {
            for (i, &byte) in expected.iter().enumerate() {
                if i % 64 == 0 {
                    pace.pause();
                }
                right &= memory[offset + i].load(Relaxed) == byte;
            }
        }
        seen.lock().unwrap().push((epoch, number, right));
    });
}

fn finish(sim: &Sim, stream: &SimStream) {
    sim.synchronize(stream).unwrap();
}

fn consume(sim: &Sim, spec: Spec, epochs: u64, loader_delay: u64, consumer_delay: u64) -> Vec<(u64, u64, bool)> {
    let mut ring = open_spec(sim, spec, loader_delay).unwrap();
    let seen = Seen::default();
    let mut rng = Rng::new(3, 3, 3);
    for epoch in 0..epochs {
        ring.start(RunPlan::one_epoch(epoch, 0..BATCHES));
        while let Some(batch) = next(&mut ring) {
            let batch = batch.unwrap();
            read(&batch, &seen);
            if consumer_delay > 0 && rng.chance(0.3) {
                std::thread::sleep(Duration::from_micros(rng.below(consumer_delay)));
            }
        }
    }
    finish(sim, &ring.shared.consumer);
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn all_right(seen: &[(u64, u64, bool)], epochs: u64) {
    let expected = (0..epochs).flat_map(|e| (0..BATCHES).map(move |n| (e, n, true))).collect::<Vec<_>>();
    assert_eq!(seen, expected, "every batch arrives once, in order, and complete");
}

#[test]
fn thousands_of_batches_arrive_complete_and_in_order() {
    for dtype in [CONVERTED, COPIED] {
        for (device, loader, consumer) in [(0, 0, 0), (30, 0, 0), (5, 300, 0), (5, 0, 300), (20, 200, 200)] {
            let sim = Sim::new(Mistake::None, device);
            all_right(&consume(&sim, spec(dtype), 8, loader, consumer), 8);
        }
    }
}

#[test]
fn small_batches_that_overlap_arrive_complete_and_in_order() {
    for (device, loader, consumer) in [(0, 0, 0), (30, 0, 0), (5, 300, 0), (5, 0, 300), (20, 200, 200)] {
        let sim = Sim::new(Mistake::None, device);
        all_right(&consume(&sim, overlapping(), 8, loader, consumer), 8);
    }
}

/// Covers several images, batches without images, records, rows of variable length, and soft
/// labels.
#[test]
fn every_array_of_a_batch_arrives_complete() {
    let rows = |name: &str| {
        let counts = array(&format!("{name}.count"), Dtype::I64, &[], Role::Plain);
        [array(name, Dtype::F32, &[6, 4], Role::Plain), counts]
    };
    let [boxes, counts] = rows("boxes");
    let (left, right) = (image("left", 8, 9), image("right", 3, 5));
    let mixed = vec![left.clone(), label(), right.clone(), boxes.clone(), counts.clone(), records(0), records(2)];
    for (arrays, shares) in [
        (mixed, true),
        (vec![left.clone(), right, label()], false),
        (vec![left, label()], true),
        (vec![boxes.clone(), counts.clone()], false),
        (vec![label(), boxes, counts], true),
    ] {
        for dtype in [CONVERTED, COPIED] {
            let sim = Sim::new(Mistake::None, 10);
            let spec = spec_of(arrays.clone(), dtype, shares);
            all_right(&consume(&sim, spec, 3, 0, 0), 3);
        }
    }
}

#[test]
fn the_consumer_waits_for_its_own_batch_and_nothing_else() {
    for dtype in [CONVERTED, COPIED] {
        let sim = Sim::new(Mistake::None, 5);
        let mut ring = open(&sim, dtype, 0).unwrap();
        let me = std::thread::current().id();
        ring.start(RunPlan::one_epoch(0, 0..BATCHES));
        let mut expected = Vec::new();
        while let Some(batch) = next(&mut ring) {
            // Each slot has two events, numbered in the order of the slots. The even ones are
            // `ready`.
            let batch = batch.unwrap();
            expected.push((me, 1, batch.slot().offset / ring.shared.plan.slot_bytes * 2));
        }
        let waits = sim.state().waits.lock().unwrap();
        let mine = waits.iter().filter(|w| w.1 == 1 || w.0 == me).copied().collect::<Vec<_>>();
        assert_eq!(mine, expected, "the consumer's stream waits once per batch, for the event of that batch");
    }
}

#[test]
fn steady_state_allocates_nothing_and_never_blocks_the_host() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let mut counts = Vec::new();
    for epoch in 0..4 {
        ring.start(RunPlan::one_epoch(epoch, 0..BATCHES));
        while let Some(batch) = next(&mut ring) {
            drop(batch.unwrap());
        }
        let state = sim.state();
        counts.push([&state.memories, &state.events, &state.synchronizations].map(|c| c.load(Relaxed)));
    }
    assert_eq!(counts[0][0], 1, "one block of memory is allocated");
    assert!(counts[0][1] <= SLOTS * 2 + 2 + 2, "{counts:?}");
    assert_eq!(counts[0][2], 0, "no synchronization");
    assert!(counts.iter().all(|c| c[0] == 1 && c[1] <= SLOTS * 2 + 2 + 2 && c[2] == 0), "{counts:?}");
}

fn open_timed(sim: &Sim, dtype: Dtype, trace: Option<Arc<trace::Trace>>) -> (Ring<Sim>, Arc<trace::Counters>) {
    let spec = spec(dtype);
    let (consumer, feed, times) = (sim.stream().unwrap(), TestFeed::new(&spec, 0), times());
    if let Some(trace) = trace {
        times.set_trace(trace);
    }
    let timeout = Duration::from_secs(5);
    let ring = Ring::new(sim.clone(), consumer, vec![spec], SLOTS - 1, timeout, feed, times.clone()).unwrap();
    (ring, times)
}

fn next_timed(sim: &Sim, ring: &mut Ring<Sim>, times: &trace::Counters) -> Option<ConsumerBatch<Sim>> {
    let requested = times.record_request(ring.ready());
    let batch = next(ring)?.unwrap();
    let info = batch.info();
    times.record_delivery(info.epoch(), info.batch_index(), (info.len(), 0), requested);
    finish(sim, &ring.shared.consumer);
    Some(batch)
}

fn timed(sim: &Sim, dtype: Dtype, trace: Option<Arc<trace::Trace>>) -> Arc<trace::Counters> {
    let (mut ring, times) = open_timed(sim, dtype, trace);
    for epoch in 0..3 {
        times.begin();
        ring.start(RunPlan::one_epoch(epoch, 0..BATCHES));
        // Wait for the device after each batch, so that the copy thread reads every duration soon
        // after the work.
        while next_timed(sim, &mut ring, &times).is_some() {}
    }
    drop(ring);
    // The copy thread reads the last durations while it ends.
    let since = Instant::now();
    while Arc::strong_count(&times) > 1 && since.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_micros(50));
    }
    times
}

fn device_rows(path: &std::path::Path) -> [Vec<(u64, f64, f64)>; 3] {
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    [1, 2, 3].map(|tid| {
        let events = document["traceEvents"].as_array().unwrap().iter();
        let row = events.filter(move |e| e["ph"] == "X" && e["pid"] == 2 && e["tid"] == tid);
        let span = |e: &serde_json::Value| {
            let begin = e["ts"].as_f64().unwrap();
            (e["args"]["batch"].as_u64().unwrap(), begin, begin + e["dur"].as_f64().unwrap())
        };
        row.map(span).collect()
    })
}

#[test]
fn copies_conversions_and_waits_are_timed_by_the_device() {
    for dtype in [CONVERTED, COPIED] {
        let sim = Sim::new(Mistake::None, 20);
        let stats = timed(&sim, dtype, None).stats();
        let batches = 3 * BATCHES;
        let copy = stats.copy.as_ref().unwrap();
        assert_eq!(copy.count, batches);
        assert_eq!(copy.bytes, 3 * (BATCHES * BATCH as u64 - 1) * 8 * 9 * 3, "the bytes of the images");
        assert!(copy.seconds > 0.0 && copy.seconds < stats.uptime_seconds, "{stats}");
        assert_eq!(stats.convert.map(|c| c.count), (dtype == CONVERTED).then_some(batches));
        let stall = stats.stall.unwrap();
        assert!((batches - SLOTS as u64..=batches).contains(&stall.count), "{} of {batches}", stall.count);
        // Three pairs of events per batch, for at most `SLOTS + 2` unread batches.
        assert!(sim.state().timed_events.load(Relaxed) <= 6 * (SLOTS + 2), "{:?}", sim.state().timed_events);
    }
}

#[test]
fn a_trace_shows_each_batch_on_the_rows_of_its_streams() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let schedule = trace::Schedule { wait: 4, warmup: 2, active: 30, repeat: 1 };
    let sim = Sim::new(Mistake::None, 20);
    drop(timed(&sim, CONVERTED, Some(trace::Trace::new(&path, schedule, (0, 0), Box::new(|| None)).unwrap())));
    let [copies, conversions, waits] = device_rows(&path);
    for (name, row) in [("copies", &copies), ("conversions", &conversions), ("waits", &waits)] {
        // The trace omits work that begins before its window or ends after it.
        assert!((20..=40).contains(&row.len()), "{} {name}: {row:?}", row.len());
        assert!(row.windows(2).all(|w| w[0].0 < w[1].0 && w[0].2 <= w[1].1 + 2.0), "{name} overlaps: {row:?}");
    }
    for (batch, begin, _) in &conversions {
        if let Some((_, _, copied)) = copies.iter().find(|c| c.0 == *batch) {
            assert!(copied <= &(begin + 2.0), "batch {batch} is converted at {begin}, before it is copied at {copied}");
        }
    }
}

/// Each step lasts until the batch that reuses its slot has been copied, so the trace must show
/// that copy within the step.
#[test]
fn copies_run_during_the_step_of_an_earlier_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let schedule = trace::Schedule { wait: 4, warmup: 2, active: 30, repeat: 1 };
    let sim = Sim::new(Mistake::None, 20);
    let trace = trace::Trace::new(&path, schedule, (0, 0), Box::new(|| None)).unwrap();
    let (mut ring, times) = open_timed(&sim, CONVERTED, Some(trace));
    let slots = SLOTS as u64;
    times.begin();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    while let Some(batch) = next_timed(&sim, &mut ring, &times) {
        let due = (batch.info().batch_index() + 1 + slots).min(BATCHES - 1);
        let (gate, open) = bounded::<()>(0);
        ring.shared.consumer.run(move |_| {
            let _ = open.recv();
        });
        drop(batch);
        let since = Instant::now();
        while times.stats().copy.map_or(0, |copy| copy.count) < due {
            assert!(since.elapsed() < Duration::from_secs(60), "copy {due} does not run during a step");
            std::thread::yield_now();
        }
        drop(gate);
    }
    drop(ring);
    drop(times);
    let [copies, _, waits] = device_rows(&path);
    let wait_for = |batch: u64| waits.iter().find(|wait| wait.0 == batch);
    let mut hidden = 0;
    for &(batch, begin, end) in &copies {
        // A step lasts from the end of the wait for its batch to the beginning of the next wait.
        if let (Some(from), Some(to)) = (wait_for(batch - slots), wait_for(batch - slots + 1)) {
            assert!(from.2 <= begin + 2.0 && end <= to.1 + 2.0, "copy {batch} at {begin}..{end}: {from:?}, {to:?}");
            hidden += 1;
        }
    }
    println!("{hidden} of {} copies run during the step of an earlier batch", copies.len());
    assert!(hidden >= 20, "only {hidden} of {} copies run during a step", copies.len());
}

#[test]
fn a_consumer_that_holds_every_batch_gets_an_error() {
    let sim = Sim::new(Mistake::None, 0);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    let mut batches = (0..SLOTS).map(|_| next(&mut ring).unwrap().unwrap()).collect::<Vec<_>>();
    let since = Instant::now();
    let e = next(&mut ring).unwrap().err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    assert!(e.to_string().contains("all 3 device slots are in use"), "{e}");
    assert!(since.elapsed() < Duration::from_secs(5));
    batches.clear();
    assert_eq!(next(&mut ring).unwrap().unwrap().info().batch_index(), SLOTS as u64);
    assert_eq!(ring.device_counters().stats().peak_bytes, ring.shared.plan.slots * ring.shared.plan.slot_bytes);
}

/// Language bindings split a wait to check for signals in between.
#[test]
fn an_interrupted_wait_keeps_its_timeout() {
    let sim = Sim::new(Mistake::None, 0);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    let _kept = (0..SLOTS).map(|_| next(&mut ring).unwrap().unwrap()).collect::<Vec<_>>();
    let (since, mut slices) = (Instant::now(), 0);
    let error = loop {
        let until = Instant::now() + Duration::from_millis(30);
        let mut idle = || until.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero());
        match ring.next(&mut Wait::new(since, slices > 0, &mut idle)) {
            None => slices += 1,
            Some(batch) => break batch.err().unwrap(),
        }
        assert!(since.elapsed() < Duration::from_secs(20), "the wait exceeded its timeout of 200 ms");
    };
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(slices >= 2, "{slices}");
}

#[test]
fn an_epoch_can_be_abandoned_at_any_batch() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let seen = Seen::default();
    let mut expected = Vec::new();
    for epoch in 0..30 {
        let (first, end) = (epoch % 7, epoch % 7 + epoch % 11);
        ring.start(RunPlan::one_epoch(epoch, first..BATCHES));
        for number in first..end {
            read(&next(&mut ring).unwrap().unwrap(), &seen);
            expected.push((epoch, number, true));
        }
        if epoch % 2 == 0 {
            ring.stop();
            assert!(next(&mut ring).is_none());
        }
    }
    finish(&sim, &ring.shared.consumer);
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_ring_can_be_dropped_at_any_batch() {
    for count in 0..12 {
        let sim = Sim::new(Mistake::None, 20);
        let mut ring = open(&sim, CONVERTED, 100).unwrap();
        let seen = Seen::default();
        ring.start(RunPlan::one_epoch(0, 0..BATCHES));
        let mut last = None;
        for _ in 0..count {
            last = Some(next(&mut ring).unwrap().unwrap());
        }
        drop(ring);
        if let Some(batch) = &last {
            read(batch, &seen);
            finish(&sim, &batch.shared.consumer);
            assert_eq!(*seen.lock().unwrap(), [(0, count - 1, true)]);
        }
    }
}

#[test]
fn a_driver_error_is_reported_and_ends_the_ring() {
    let sim = Sim::new(Mistake::None, 0);
    all_right(&consume(&sim, spec(CONVERTED), 1, 0, 0), 1);
    let calls = sim.state().calls.load(Relaxed);
    for n in (0..calls).step_by(7).chain(0..30) {
        let sim = Sim::new(Mistake::None, 2);
        sim.fail_after(n);
        let mut ring = match open(&sim, CONVERTED, 0) {
            Ok(ring) => ring,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Cuda, "call {n}");
                continue;
            }
        };
        ring.start(RunPlan::one_epoch(0, 0..BATCHES));
        let mut errors = 0;
        while let Some(batch) = next(&mut ring) {
            match batch {
                Ok(batch) => drop(batch),
                Err(e) => {
                    assert_eq!(e.cause().split(": ").nth(1), Some("simulated error"), "{e}");
                    errors += 1;
                }
            }
        }
        ring.start(RunPlan::one_epoch(1, 0..BATCHES));
        errors += usize::from(next(&mut ring).is_some_and(|b| b.is_err()));
        let calls = sim.state().calls.load(Relaxed);
        assert!(errors >= 1 || calls < n + 20, "call {n} of {calls}: {errors} errors");
        drop(ring);
        // The ring may still synchronize two streams, and the other thread may finish a call.
        assert!(sim.calls_after_failure() <= 4, "call {n}: {} calls after the error", sim.calls_after_failure());
    }
}

#[test]
fn a_bad_sample_ends_the_epoch_but_not_the_loader() {
    let sim = Sim::new(Mistake::None, 5);
    let spec = spec(CONVERTED);
    let mut feed = TestFeed::new(&spec, 0);
    feed.failing = Some(5);
    let consumer = sim.stream().unwrap();
    let mut ring: Ring<Sim> = Ring::new(sim, consumer, vec![spec], 2, Duration::from_secs(1), feed, times()).unwrap();
    for epoch in 0..3 {
        ring.start(RunPlan::one_epoch(epoch, 0..BATCHES));
        for number in 0..5 {
            assert_eq!(next(&mut ring).unwrap().unwrap().info().batch_index(), number);
        }
        assert_eq!(next(&mut ring).unwrap().err().unwrap().kind(), ErrorKind::Decode);
        assert!(next(&mut ring).is_none());
        ring.start(RunPlan::one_epoch(epoch, 6..BATCHES));
        assert_eq!(next(&mut ring).unwrap().unwrap().info().header.entries[0].sample, 60);
    }
}

#[test]
fn next_and_drop_during_a_capture_resume_after_it() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let seen = Seen::default();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    for round in 0..BATCHES {
        let batch = next(&mut ring).unwrap().unwrap();
        assert_eq!(batch.info().batch_index(), round, "no batch is lost");
        read(&batch, &seen);
        ring.shared.consumer.capturing.store(true, Relaxed);
        if round % 2 == 0 {
            let e = next(&mut ring).unwrap().err().unwrap();
            assert_eq!(e.kind(), ErrorKind::Capturing);
            assert!(e.cause().contains("take the batch before the capture"), "{e}");
        }
        // The simulated stream panics if an event or a wait becomes part of the capture.
        drop(batch);
        assert_eq!(ring.shared.deferred_slots.lock().unwrap().len(), 1);
        ring.shared.consumer.capturing.store(false, Relaxed);
    }
    assert!(next(&mut ring).is_none());
    finish(&sim, &ring.shared.consumer);
    all_right(&seen.lock().unwrap(), 1);
}

#[test]
fn dropping_the_ring_does_not_wait_for_the_consumer() {
    for count in [1, SLOTS, 2 * SLOTS] {
        let sim = Sim::new(Mistake::None, 0);
        let mut ring = open(&sim, CONVERTED, 0).unwrap();
        let (gate, open) = bounded::<()>(0);
        ring.start(RunPlan::one_epoch(0, 0..BATCHES));
        for number in 0..count {
            drop(next(&mut ring).unwrap().unwrap());
            if number == 0 {
                // This work lasts until the current thread drops `gate`, after the ring.
                let open = open.clone();
                ring.shared.consumer.run(move |_| {
                    let _ = open.recv();
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let shared = ring.shared.clone();
        drop(ring);
        drop(gate);
        finish(&sim, &shared.consumer);
    }
}

/// The slot of a batch that is prepared but never delivered must not be overwritten before the
/// preparation is done.
#[test]
fn a_reclaimed_slot_waits_for_its_preparation() {
    let sim = Sim::new(Mistake::None, 40);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    for epoch in 0..20 {
        ring.start(RunPlan::one_epoch(epoch, 0..BATCHES));
        drop(next(&mut ring).unwrap().unwrap());
        while ring.ready() == 0 {
            std::thread::yield_now();
        }
        ring.stop();
    }
    ring.start(RunPlan::one_epoch(20, 0..BATCHES));
    while let Some(batch) = next(&mut ring) {
        batch.unwrap();
    }
    // The copy stream (2) must have waited for a slot's `ready` event, which has an even number.
    let waits = sim.state().waits.lock().unwrap();
    assert!(waits.iter().any(|&(_, stream, event)| stream == 2 && event % 2 == 0 && event < SLOTS * 2), "{waits:?}");
}
