//! Tests batches that are used on streams other than the consumer's.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Registration {
    Nothing,
    /// A different framework has the address.
    Exported,
    /// The batch is used on one or more streams of the test.
    Stream,
}

/// Reads the batch on `stream`, like a framework that has the batch's address. Unless `wait` is
/// set, the ring must have made the stream wait for the batch.
fn read_on(stream: &SimStream, batch: &ConsumerBatch<Sim>, seen: &Seen, wait: bool) {
    let (slot, memory, seen) = (batch.slot(), batch.shared.memory.clone(), seen.clone());
    let spec = &batch.shared.variant(&slot.info).spec;
    let images = expected_on_device(spec, slot.info.epoch(), slot.info.batch_index()).swap_remove(0);
    let (epoch, number, offset, ready) = (slot.info.epoch(), slot.info.batch_index(), slot.offset, slot.ready.passed());
    stream.run(move |_| {
        if wait {
            ready();
        }
        std::thread::sleep(Duration::from_micros(500));
        let right = images.iter().enumerate().all(|(i, &byte)| memory[offset + i].load(Relaxed) == byte);
        seen.lock().unwrap().push((epoch, number, right));
    });
}

/// Returns the number of torn batches in an epoch that a different framework reads on `streams`
/// streams.
fn torn_elsewhere(streams: usize, registration: Registration) -> usize {
    let sim = Sim::new(Mistake::None, 60);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let (others, seen): (Vec<_>, _) = ((0..streams).map(|_| sim.stream().unwrap()).collect(), Seen::default());
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    while let Some(batch) = next(&mut ring) {
        let batch = batch.unwrap();
        if registration == Registration::Exported {
            batch.export();
        }
        for other in &others {
            if registration == Registration::Stream {
                batch.use_on(other.twin()).unwrap();
                batch.use_on(other.twin()).unwrap();
            }
            read_on(other, &batch, &seen, registration != Registration::Stream);
        }
    }
    others.iter().for_each(|other| finish(&sim, other));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), streams * BATCHES as usize);
    seen.iter().filter(|(_, _, right)| !right).count()
}

#[test]
fn only_streams_for_requests_have_a_high_priority() {
    for (spec, expected) in [(spec(CONVERTED), 0), (overlapping(), 3)] {
        let sim = Sim::new(Mistake::None, 60);
        let _ring = open_spec(&sim, spec, 0).unwrap();
        assert_eq!(sim.state().urgent_streams.load(Relaxed), expected);
    }
}

#[test]
fn a_slot_is_reused_after_foreign_work_on_any_stream() {
    for _ in 0..5 {
        assert_eq!(torn_elsewhere(1, Registration::Exported), 0);
    }
    assert!(
        (0..200).any(|_| torn_elsewhere(1, Registration::Nothing) > 0),
        "the test must detect a use that is not registered"
    );
}

#[test]
fn a_slot_is_reused_after_the_work_of_a_named_stream() {
    for streams in [1, 2, 3, 1, 2] {
        assert_eq!(torn_elsewhere(streams, Registration::Stream), 0, "on {streams} streams");
    }
}

/// Unrelated work blocks the consumer's stream. Neither the reader nor the next batches wait for
/// it.
#[test]
fn use_on_does_not_wait_for_the_consumers_stream() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let (other, seen) = (sim.stream().unwrap(), Seen::default());
    let (gate, open) = bounded::<()>(0);
    ring.shared.consumer.run(move |_| {
        let _ = open.recv();
    });
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    for _ in 0..BATCHES {
        let batch = next(&mut ring).unwrap().unwrap();
        batch.use_on(other.twin()).unwrap();
        read_on(&other, &batch, &seen, false);
    }
    finish(&sim, &other);
    assert!(seen.lock().unwrap().iter().all(|(_, _, right)| *right));
    drop(gate);
}

#[test]
fn a_batch_dropped_during_a_capture_is_released_after_it() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let other = sim.stream().unwrap();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    let batch = next(&mut ring).unwrap().unwrap();
    let used = other.twin();
    used.capturing.store(true, Relaxed);
    batch.shared.gpu.wait(&other, &batch.slot().ready).unwrap();
    batch.use_on_captured(used);
    drop(batch);
    assert_eq!(ring.shared.deferred_slots.lock().unwrap().len(), 1, "no event was recorded into the capture");
    while let Some(batch) = next(&mut ring) {
        drop(batch.unwrap());
    }
    assert!(ring.shared.deferred_slots.lock().unwrap().is_empty());
}

/// The streams of a batch that is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Users {
    /// A stream of the program, and a stream that is being captured.
    OneCaptured,
    /// A stream of the program. The batch is also exported.
    Exported,
}

/// A driver older than CUDA 12.5 cannot record an event for all work on the device.
#[test]
fn with_an_old_driver_a_deferred_slot_is_reused_after_the_work_of_its_users() {
    for users in [Users::OneCaptured, Users::Exported] {
        let sim = Sim::new(Mistake::None, 5);
        sim.state().cannot_mark.store(true, Relaxed);
        let mut ring = open(&sim, CONVERTED, 0).unwrap();
        let (other, seen) = (sim.stream().unwrap(), Seen::default());
        ring.start(RunPlan::one_epoch(0, 0..BATCHES));
        while let Some(batch) = next(&mut ring) {
            let batch = batch.unwrap();
            batch.use_on(other.twin()).unwrap();
            read_on(&other, &batch, &seen, false);
            if users == Users::Exported {
                batch.export();
            } else {
                let captured = other.twin();
                captured.capturing.store(true, Relaxed);
                batch.use_on_captured(captured);
            }
        }
        finish(&sim, &other);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), BATCHES as usize);
        assert!(seen.iter().all(|(_, _, right)| *right), "{users:?}: {seen:?}");
    }
}
