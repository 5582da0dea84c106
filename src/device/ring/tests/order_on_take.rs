//! A ring that orders batches when they are taken, as in a decoder: one thread requests them, and
//! others take them.

use super::*;

/// A ring whose consumer's stream is busy until the sender is dropped.
fn open_busy(sim: &Sim) -> (Ring<Sim>, crossbeam::channel::Sender<()>) {
    let ring = open(sim, CONVERTED, 0).unwrap();
    ring.order_when_taken();
    let (gate, open) = bounded::<()>(0);
    ring.shared.consumer.run(move |_| {
        let _ = open.recv();
    });
    (ring, gate)
}

/// Queues a kernel on `stream` that reads the batch, slowly, and orders nothing itself.
fn read_there(stream: &SimStream, batch: &Held<Sim>, seen: &Seen) {
    let (slot, memory, seen) = (batch.slot(), batch.shared.memory.clone(), seen.clone());
    let (epoch, number, offset) = (slot.info.epoch(), slot.info.number(), slot.offset);
    let images = arrived(&batch.shared.form(&slot.info).spec, epoch, number).swap_remove(0);
    stream.run(move |_| {
        std::thread::sleep(Duration::from_micros(500));
        let right = images.iter().enumerate().all(|(i, &byte)| memory[offset + i].load(Relaxed) == byte);
        seen.lock().unwrap().push((epoch, number, right));
    });
}

/// Number of torn batches of an epoch that one thread requests. This thread takes and reads them on
/// `streams` streams in turn, or on the wrong one.
fn torn(streams: usize, wrong: bool) -> usize {
    let sim = Sim::new(Mistake::None, 60);
    let (mut ring, gate) = open_busy(&sim);
    let (streams, seen): (Vec<_>, _) = ((0..streams).map(|_| sim.stream().unwrap()).collect(), Seen::default());
    let (given, taken) = bounded(1);
    let answers = std::thread::spawn(move || {
        ring.start(Course::one(0, 0..BATCHES));
        while let Some(batch) = next(&mut ring) {
            given.send(batch.unwrap()).unwrap();
        }
        (std::thread::current().id(), ring)
    });
    for (number, batch) in taken.into_iter().enumerate() {
        let on = &streams[number % streams.len()];
        batch.take_on(Some(on.twin())).unwrap();
        // A former mistake of the Python package: the stream of the request instead of the
        // answer's.
        let used = if wrong { &streams[(number + 1) % streams.len()] } else { on };
        read_there(used, &batch, &seen);
    }
    let (answering, _ring) = answers.join().unwrap();
    streams.iter().for_each(|stream| finish(&sim, stream));
    let waits = sim.state().waits.lock().unwrap();
    let known = [1].into_iter().chain(4..4 + streams.len());
    assert!(
        known.into_iter().all(|stream| !waits.iter().any(|wait| wait.0 == answering && wait.1 == stream)),
        "the thread that asks touches no stream of the consumer's"
    );
    assert!(!waits.iter().any(|wait| wait.1 == 1), "the consumer's stream has nothing to do with it");
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
    assert!((0..20).any(|_| torn(2, true) > 0), "otherwise this shows nothing");
}

#[test]
fn a_batch_without_its_own_stream_is_taken_on_the_consumers() {
    let sim = Sim::new(Mistake::None, 20);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    ring.order_when_taken();
    let seen = Seen::default();
    ring.start(Course::one(0, 0..BATCHES));
    while let Some(batch) = next(&mut ring) {
        let batch = batch.unwrap();
        batch.take_on(None).unwrap();
        read(&batch, &seen);
    }
    finish(&sim, &ring.shared.consumer);
    all_right(&seen.lock().unwrap(), 1);
}

/// The simulation panics if an event is recorded or waited for in a capture.
#[test]
fn a_capture_of_the_users_stream_is_never_entered() {
    let sim = Sim::new(Mistake::None, 5);
    let mut ring = open(&sim, CONVERTED, 0).unwrap();
    ring.order_when_taken();
    ring.shared.consumer.capturing.store(true, Relaxed);
    ring.start(Course::one(0, 0..BATCHES));
    let (first, second) = (next(&mut ring).unwrap().unwrap(), next(&mut ring).unwrap().unwrap());
    assert_eq!(first.take_on(None).unwrap_err().kind(), ErrorKind::Capturing);
    // The batch was not taken, so its slot is reused without a mark in any stream.
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

/// Another framework's batches are dropped while every slot is held, and no other batch is taken.
#[test]
fn a_dropped_batch_of_another_framework_frees_its_slot_without_a_further_call() {
    let sim = Sim::new(Mistake::None, 5);
    let (mut ring, _gate) = open_busy(&sim);
    let side = sim.stream().unwrap();
    ring.start(Course::one(0, 0..BATCHES));
    let kept: Vec<_> = (0..SLOTS).map(|_| next(&mut ring).unwrap().unwrap()).collect();
    for batch in &kept {
        batch.take_on(Some(side.twin())).unwrap();
        batch.export();
    }
    let asks = std::thread::spawn(move || next(&mut ring).unwrap().map(|batch| batch.info().number()));
    std::thread::sleep(Duration::from_millis(30));
    // The mark covers the work of all streams, so the consumer's work must end before the slot is
    // written.
    drop(_gate);
    drop(kept);
    assert_eq!(asks.join().unwrap().unwrap(), SLOTS as u64);
}
