//! Tests a ring that orders batches when they are taken, as a decoder does: one thread requests
//! batches, and other threads take them.

use super::*;

/// Opens a ring, and keeps the consumer's stream busy until the returned sender is dropped.
fn open_busy(sim: &Sim) -> (Ring<Sim>, crossbeam::channel::Sender<()>) {
    let ring = open(sim, CONVERTED, 0).unwrap();
    ring.order_when_taken();
    let (gate, open) = bounded::<()>(0);
    ring.shared.consumer.run(move |_| {
        let _ = open.recv();
    });
    (ring, gate)
}

/// Queues a slow kernel that reads the batch on `stream`, without adding any waits.
fn read_there(stream: &SimStream, batch: &ConsumerBatch<Sim>, seen: &Seen) {
    let (slot, memory, seen) = (batch.slot(), batch.shared.memory.clone(), seen.clone());
    let (epoch, number, offset) = (slot.info.epoch(), slot.info.batch_index(), slot.offset);
    let images = expected_on_device(&batch.shared.variant(&slot.info).spec, epoch, number).swap_remove(0);
    stream.run(move |_| {
        std::thread::sleep(Duration::from_micros(500));
        let right = images.iter().enumerate().all(|(i, &byte)| memory[offset + i].load(Relaxed) == byte);
        seen.lock().unwrap().push((epoch, number, right));
    });
}

/// Returns the number of batches in one epoch that the consumer read while they were incomplete or
/// overwritten (torn batches). A separate thread requests the batches, and this thread takes and
/// reads them, alternately on each stream. If `is_mistaken` is set, this thread reads each batch on
/// a different stream than it takes it on.
fn torn(streams: usize, is_mistaken: bool) -> usize {
    let sim = Sim::new(Mistake::None, 60);
    let (mut ring, gate) = open_busy(&sim);
    let (streams, seen): (Vec<_>, _) = ((0..streams).map(|_| sim.stream().unwrap()).collect(), Seen::default());
    let (sender, batches) = bounded(1);
    let answers = std::thread::spawn(move || {
        ring.start(RunPlan::one_epoch(0, 0..BATCHES));
        while let Some(batch) = next(&mut ring) {
            sender.send(batch.unwrap()).unwrap();
        }
        (std::thread::current().id(), ring)
    });
    for (number, batch) in batches.into_iter().enumerate() {
        let stream = &streams[number % streams.len()];
        batch.take_on(Some(stream.twin())).unwrap();
        // Regression: the Python package once used the stream of the request instead of the stream
        // of the response.
        let used = if is_mistaken { &streams[(number + 1) % streams.len()] } else { stream };
        read_there(used, &batch, &seen);
    }
    let (answering, _ring) = answers.join().unwrap();
    streams.iter().for_each(|stream| finish(&sim, stream));
    let waits = sim.state().waits.lock().unwrap();
    let streams_waited = [1].into_iter().chain(4..4 + streams.len());
    assert!(
        streams_waited.into_iter().all(|stream| !waits.iter().any(|wait| wait.0 == answering && wait.1 == stream)),
        "the requesting thread uses no stream of the consumer"
    );
    assert!(!waits.iter().any(|wait| wait.1 == 1), "no wait is queued in the consumer's stream");
    drop(gate);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), BATCHES as usize);
    seen.iter().filter(|(_, _, right)| !right).count()
}

#[test]
fn a_batch_is_ordered_on_the_stream_where_it_is_taken() {
    for streams in [1, 2, 3, 2] {
        assert_eq!(torn(streams, false), 0, "on {streams} streams");
    }
    assert!((0..20).any(|_| torn(2, true) > 0), "the test must detect a wrong stream");
}

#[test]
fn a_batch_without_a_stream_is_taken_on_the_consumers_stream() {
    let sim = Sim::new(Mistake::None, 20);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    ring.order_when_taken();
    let seen = Seen::default();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    while let Some(batch) = next(&mut ring) {
        let batch = batch.unwrap();
        batch.take_on(None).unwrap();
        read(&batch, &seen);
    }
    finish(&sim, &ring.shared.consumer);
    all_right(&seen.lock().unwrap(), 1);
}

/// The simulation panics if an event or a wait becomes part of a capture.
#[test]
fn no_call_becomes_part_of_a_capture() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    ring.order_when_taken();
    ring.shared.consumer.capturing.store(true, Relaxed);
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    let (first, second) = (next(&mut ring).unwrap().unwrap(), next(&mut ring).unwrap().unwrap());
    assert_eq!(first.take_on(None).unwrap_err().kind(), ErrorKind::Capturing);
    // The batch was not taken, so its slot is reused without recording an event.
    drop(first);
    let (side, seen) = (sim.stream().unwrap(), Seen::default());
    second.take_on(Some(side.twin())).unwrap();
    read_there(&side, &second, &seen);
    drop(second);
    for _ in 2..10 {
        let batch = next(&mut ring).unwrap().unwrap();
        let captured = side.twin();
        captured.capturing.store(true, Relaxed);
        assert_eq!(batch.use_on(captured).unwrap_err().kind(), ErrorKind::Capturing);
        batch.take_on(Some(side.twin())).unwrap();
        read_there(&side, &batch, &seen);
    }
    ring.shared.consumer.capturing.store(false, Relaxed);
    let batch = next(&mut ring).unwrap().unwrap();
    batch.take_on(None).unwrap();
    finish(&sim, &side);
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 9 && seen.iter().all(|(_, _, right)| *right), "{seen:?}");
}

/// A different framework drops its batches while every slot is in use, and no further batch is
/// taken.
#[test]
fn a_dropped_foreign_batch_frees_its_slot_without_more_calls() {
    let sim = Sim::new(Mistake::None, 5);
    let (mut ring, _gate) = open_busy(&sim);
    let side = sim.stream().unwrap();
    ring.start(RunPlan::one_epoch(0, 0..BATCHES));
    let batches: Vec<_> = (0..SLOTS).map(|_| next(&mut ring).unwrap().unwrap()).collect();
    for batch in &batches {
        batch.take_on(Some(side.twin())).unwrap();
        batch.export();
    }
    let asks = std::thread::spawn(move || next(&mut ring).unwrap().map(|batch| batch.info().batch_index()));
    std::thread::sleep(Duration::from_millis(30));
    // The event covers all streams, so the consumer's work must end before the slot is overwritten.
    drop(_gate);
    drop(batches);
    assert_eq!(asks.join().unwrap().unwrap(), SLOTS as u64);
}
