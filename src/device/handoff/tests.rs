//! Tests safe asynchronous uploads on the simulated device, with batches that are dropped
//! immediately.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::super::Gpu;
use super::*;
use crate::device::gpu::Recorded;
use crate::device::tests::sim::{Mistake, Sim, SimEvent, SimMemory, SimStream};
use crate::sampler::Rng;
use crossbeam::channel::bounded;

const BYTES: usize = 600;
const SLOTS: usize = 3;

impl Marker for Sim {
    type Mark = SimEvent;

    fn mark_all(&self, block: bool) -> Result<Marked<SimEvent>> {
        let event = self.event()?;
        Ok(match self.record_all(&event)? {
            Recorded::Yes => Marked::At(event),
            Recorded::NotNow => Marked::Capturing,
            Recorded::Never if block => {
                self.record_anyway(&event);
                event.passed()();
                Marked::At(event)
            }
            Recorded::Never => Marked::Unable,
        })
    }

    fn is_done(&self, mark: &SimEvent) -> Result<bool> {
        Gpu::is_done(self, mark)
    }

    fn recycle(&self, _mark: SimEvent) {}
}

/// Bytes of a page-locked batch. They are atomic, so returning the batch too early results in wrong
/// values instead of undefined behavior.
type Slot = Box<[AtomicU8]>;

fn content(number: usize) -> impl Iterator<Item = u8> {
    let mut rng = Rng::new(3, number as u64, 0);
    (0..BYTES).map(move |_| rng.next_u64() as u8)
}

fn upload(sim: &Sim, stream: &SimStream, memory: &SimMemory, number: usize, slot: &Slot) {
    // SAFETY: the simulated device reads the bytes as atomics. The test checks that they stay alive
    // and unchanged.
    unsafe {
        let bytes = std::slice::from_raw_parts(slot.as_ptr().cast(), BYTES);
        sim.upload(stream, memory, number * BYTES, bytes).unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Release {
    Drop,
    DropElsewhere,
    Exact,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Driver {
    Current,
    Old,
    /// The driver can mark all work, except while a stream that the loader does not know is being
    /// captured. Captures start and end at random.
    Captured,
}

/// Uploads `batches` batches, each on a random stream, and returns the number of torn batches, in
/// which the device read bytes of a later batch.
fn count_torn_batches(
    mistake: Mistake,
    driver: Driver,
    batches: usize,
    streams: usize,
    release: Release,
    seed: u64,
) -> usize {
    let sim = Sim::new(mistake, 30);
    sim.state().cannot_mark.store(driver == Driver::Old, Relaxed);
    let captures = Arc::new(AtomicBool::new(driver == Driver::Captured));
    let (is_capturing, device) = (captures.clone(), sim.clone());
    let capturer = std::thread::spawn(move || {
        let mut rng = Rng::new(seed, 1, 1);
        while is_capturing.load(Relaxed) {
            device.state().capture.store(rng.chance(0.5), Relaxed);
            std::thread::sleep(Duration::from_micros(rng.below(400)));
        }
        device.state().capture.store(false, Relaxed);
    });
    let memory = sim.memory(batches * BYTES).unwrap();
    let streams: Vec<SimStream> = (0..streams).map(|_| sim.stream().unwrap()).collect();
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Arc::new(Handoff::new(sim.clone(), free.clone()).unwrap());
    for _ in 0..SLOTS {
        free.send((0..BYTES).map(|_| AtomicU8::new(0)).collect()).unwrap();
    }
    let (dropped, drops) = bounded::<Slot>(SLOTS);
    let elsewhere = handoff.clone();
    let other = std::thread::spawn(move || drops.into_iter().for_each(|slot| elsewhere.reclaim(slot)));

    let mut rng = Rng::new(seed, 0, 0);
    for number in 0..batches {
        handoff.set_waiting(true).unwrap();
        let slot = freed.recv_timeout(Duration::from_secs(20)).expect("a slot is freed");
        handoff.set_waiting(false).unwrap();
        // The worker refills the slot immediately.
        content(number).zip(&slot).for_each(|(byte, place)| place.store(byte, Relaxed));
        let stream = &streams[rng.below(streams.len() as u64) as usize];
        upload(&sim, stream, &memory, number, &slot);
        match release {
            Release::Drop => handoff.reclaim(slot),
            Release::DropElsewhere => dropped.send(slot).unwrap(),
            Release::Exact => {
                let mark = sim.event().unwrap();
                sim.record(&mark, stream).unwrap();
                handoff.keep_until(slot, Some(mark));
            }
        }
    }
    drop(dropped);
    other.join().unwrap();
    captures.store(false, Relaxed);
    capturer.join().unwrap();
    streams.iter().for_each(|stream| sim.synchronize(stream).unwrap());
    let arrived = |number: usize| content(number).zip(&memory[number * BYTES..]).all(|(a, b)| a == b.load(Relaxed));
    (0..batches).filter(|&number| !arrived(number)).count()
}

#[test]
fn dropping_a_batch_during_its_upload_does_not_tear_it() {
    for seed in 0..3 {
        for streams in 1..=3 {
            for release in [Release::Drop, Release::DropElsewhere, Release::Exact] {
                for driver in [Driver::Current, Driver::Old, Driver::Captured] {
                    let torn = count_torn_batches(Mistake::None, driver, 50, streams, release, seed);
                    assert_eq!(torn, 0, "{driver:?} driver, {streams} streams, {release:?}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn early_reuse_of_slots_is_detected() {
    for release in [Release::Drop, Release::DropElsewhere, Release::Exact] {
        assert!(count_torn_batches(Mistake::EarlyReturn, Driver::Current, 60, 2, release, 0) > 10, "{release:?}");
    }
}

/// Blocks `stream` until the returned sender is dropped.
fn hold(stream: &SimStream) -> Sender<()> {
    let (open, gate) = bounded(0);
    stream.run(move |_| {
        let _ = gate.recv();
    });
    open
}

fn one_slot() -> Slot {
    (0..BYTES).map(|_| AtomicU8::new(0)).collect()
}

#[test]
fn nothing_is_marked_before_a_consumer_waits() {
    let sim = Sim::new(Mistake::None, 0);
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Handoff::new(sim.clone(), free).unwrap();
    handoff.reclaim(one_slot());
    assert_eq!(
        (sim.state().events.load(Relaxed), handoff.pending_slots()),
        (0, 1),
        "no event may be recorded, because a capture may be in progress"
    );
    handoff.set_waiting(true).unwrap();
    freed.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!((sim.state().events.load(Relaxed), handoff.pending_slots()), (1, 0));
    handoff.reclaim(one_slot());
    freed.recv_timeout(Duration::from_secs(20)).expect("a slot is freed immediately while the consumer waits");
}

#[test]
fn a_slow_stream_does_not_delay_other_slots() {
    let sim = Sim::new(Mistake::None, 0);
    let (slow, quick) = (sim.stream().unwrap(), sim.stream().unwrap());
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Handoff::new(sim.clone(), free).unwrap();
    let open = hold(&slow);
    for stream in [&slow, &quick] {
        let mark = sim.event().unwrap();
        sim.record(&mark, stream).unwrap();
        handoff.keep_until(one_slot(), Some(mark));
    }
    freed.recv_timeout(Duration::from_secs(20)).expect("the slot of the fast stream is freed");
    assert_eq!((freed.len(), handoff.pending_slots(), handoff.idle_since()), (0, 1, None));
    drop(open);
    freed.recv_timeout(Duration::from_secs(20)).expect("the slot of the slow stream is freed");
}

#[test]
fn dropping_the_loader_frees_held_slots_later() {
    let sim = Sim::new(Mistake::None, 0);
    let stream = sim.stream().unwrap();
    let open = hold(&stream);
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Handoff::new(sim.clone(), free).unwrap();
    handoff.reclaim(one_slot());
    drop(handoff);
    assert!(freed.is_empty(), "no slot is freed while the stream is blocked");
    drop(open);
    freed.recv_timeout(Duration::from_secs(20)).expect("the thread runs until the slot is freed");
    assert!(freed.recv().is_err(), "and ends");
}

#[test]
fn a_device_error_reaches_the_consumer_and_frees_no_slot() {
    let sim = Sim::new(Mistake::None, 0);
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Handoff::new(sim.clone(), free).unwrap();
    sim.fail_after(0);
    handoff.reclaim(one_slot());
    let error = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        handoff.set_waiting(true).err()
    });
    assert_eq!(error.expect("the consumer gets the error within 200 ms").kind(), ErrorKind::Cuda);
    assert!(freed.is_empty());
}

#[test]
fn a_slot_is_freed_after_the_capture_that_delayed_it() {
    let sim = Sim::new(Mistake::None, 0);
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Handoff::new(sim.clone(), free).unwrap();
    sim.state().capture.store(true, Relaxed);
    handoff.reclaim(one_slot());
    handoff.set_waiting(true).unwrap();
    let waits = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        handoff.is_blocked_by_capture()
    });
    assert!(waits && freed.is_empty());
    sim.state().capture.store(false, Relaxed);
    freed.recv_timeout(Duration::from_secs(20)).unwrap();
    let over = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        !handoff.is_blocked_by_capture()
    });
    assert!(over);
}

/// With an old driver, the thread waits for the work, and must not hold a lock that the consumer
/// needs.
#[test]
fn with_an_old_driver_only_the_thread_waits() {
    let sim = Sim::new(Mistake::None, 0);
    sim.state().cannot_mark.store(true, Relaxed);
    let stream = sim.stream().unwrap();
    let open = hold(&stream);
    let (free, freed) = bounded::<Slot>(SLOTS);
    let handoff = Handoff::new(sim.clone(), free).unwrap();
    for _ in 0..SLOTS {
        handoff.reclaim(one_slot());
        handoff.set_waiting(true).unwrap();
        handoff.set_waiting(false).unwrap();
    }
    assert_eq!(
        (freed.len(), handoff.pending_slots()),
        (0, SLOTS),
        "this thread does not block although the stream is blocked"
    );
    drop(open);
    (0..SLOTS).for_each(|_| drop(freed.recv_timeout(Duration::from_secs(20)).unwrap()));
}
