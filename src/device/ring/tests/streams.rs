//! Batches that are used on streams other than the consumer's.

use super::*;

/// How the ring learns of the use of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    Nothing,
    /// Another framework has the address.
    Exported,
    /// The batch is used on this stream, and on a second one if there is one.
    Stream,
}

/// Like `read`, but on `stream` instead of the consumer's, like a framework that has the batch's
/// address. With `wait`, it makes its stream wait for the batch; otherwise the ring must have done
/// so.
fn read_on(stream: &SimStream, batch: &Held<Sim>, seen: &Seen, wait: bool) {
    let (slot, memory, seen) = (batch.slot(), batch.shared.memory.clone(), seen.clone());
    let spec = &batch.shared.form(&slot.info).spec;
    let images = arrived(spec, slot.info.epoch(), slot.info.number()).swap_remove(0);
    let (epoch, number, offset, ready) = (slot.info.epoch(), slot.info.number(), slot.offset, slot.ready.passed());
    stream.run(move |_| {
        if wait {
            ready();
        }
        // Later than the consumer's own stream.
        std::thread::sleep(Duration::from_micros(500));
        let right = images.iter().enumerate().all(|(i, &byte)| memory[offset + i].load(Relaxed) == byte);
        seen.lock().unwrap().push((epoch, number, right));
    });
}

/// Torn batches of an epoch that another framework reads on `streams` other streams.
fn torn_elsewhere(streams: usize, told: Told) -> usize {
    let sim = Sim::new(Mistake::None, 60);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let (others, seen): (Vec<_>, _) = ((0..streams).map(|_| sim.stream().unwrap()).collect(), Seen::default());
    ring.start(Course::one(0, 0..BATCHES));
    while let Some(batch) = next(&mut ring) {
        let batch = batch.unwrap();
        if told == Told::Exported {
            batch.export();
        }
        for other in &others {
            if told == Told::Stream {
                batch.use_on(other.twin()).unwrap();
                // Each field of a batch makes this call.
                batch.use_on(other.twin()).unwrap();
            }
            read_on(other, &batch, &seen, told != Told::Stream);
        }
    }
    others.iter().for_each(|other| finish(&sim, other));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), streams * BATCHES as usize);
    seen.iter().filter(|(_, _, right)| !right).count()
}

#[test]
fn a_batch_that_another_framework_has_is_written_after_its_work_on_any_stream() {
    for _ in 0..5 {
        assert_eq!(torn_elsewhere(1, Told::Exported), 0);
    }
    assert!((0..20).any(|_| torn_elsewhere(1, Told::Nothing) > 0), "otherwise this shows nothing");
}

#[test]
fn a_batch_that_is_used_on_a_stream_is_waited_for_there_and_written_after_its_work() {
    for streams in [1, 2, 3, 1, 2] {
        assert_eq!(torn_elsewhere(streams, Told::Stream), 0, "on {streams} streams");
    }
}

/// The consumer's stream is busy with other work for a long time. Neither the reader nor the next
/// batches wait for it.
#[test]
fn use_on_another_stream_does_not_wait_for_the_consumers() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let (other, seen) = (sim.stream().unwrap(), Seen::default());
    let (gate, open) = bounded::<()>(0);
    ring.shared.consumer.run(move |_| {
        let _ = open.recv();
    });
    ring.start(Course::one(0, 0..BATCHES));
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
fn a_batch_dropped_while_its_stream_is_captured_waits_for_the_end_of_the_capture() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    let other = sim.stream().unwrap();
    ring.start(Course::one(0, 0..BATCHES));
    let batch = next(&mut ring).unwrap().unwrap();
    let used = other.twin();
    used.capturing.store(true, Relaxed);
    batch.shared.gpu.wait(&other, &batch.slot().ready).unwrap();
    batch.use_on_captured(used);
    drop(batch);
    assert_eq!(ring.shared.deferred.lock().unwrap().len(), 1, "no mark got into the capture");
    while let Some(batch) = next(&mut ring) {
        drop(batch.unwrap());
    }
    assert!(ring.shared.deferred.lock().unwrap().is_empty());
}
