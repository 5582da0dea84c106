//! Epochs follow each other on a device as they do on the host.

use std::collections::HashMap;
use std::sync::Mutex;

use super::*;
use crate::order::Order;
use crate::source::{Sample, Source};

/// Number of samples of an epoch.
const EPOCH: u64 = 20;

/// Epoch e has the samples e * EPOCH and following, so that a read shows its epoch.
struct Apart;

impl Order for Apart {
    fn len(&self, _: u64) -> u64 {
        EPOCH
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        epoch * EPOCH + position
    }
}

/// Pictures that record the epochs of their reads.
struct Recorded {
    pictures: Vec<Vec<u8>>,
    reads: Mutex<HashMap<u64, u64>>,
}

impl Recorded {
    fn new() -> Arc<Self> {
        Arc::new(Recorded { pictures: pictures(false), reads: Mutex::default() })
    }

    fn of(&self, epoch: u64) -> u64 {
        self.reads.lock().unwrap().get(&epoch).copied().unwrap_or(0)
    }
}

impl Source for Recorded {
    fn len(&self) -> usize {
        1000
    }

    fn read<'a>(&'a self, index: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        *self.reads.lock().unwrap().entry(index as u64 / EPOCH).or_default() += 1;
        let bytes = &self.pictures[index % self.pictures.len()];
        Ok(Sample::new("").with_field("jpg", bytes)?.with_label(index as i64))
    }
}

fn open(source: &Arc<Recorded>, decode_on: DecodeOn, epochs: u64) -> (Batches<Held<Sim>>, Sim) {
    let loader = Loader::source(source.clone()).order(Apart).batch_size(4).workers(2).prefetch(2).epochs(epochs);
    let loader = loader.augment(Augment::train(32)).decode_on(decode_on);
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream().unwrap();
    let OnDevice { ring, shared } = loader.on_device(sim.clone(), consumer, Memory::heap).unwrap();
    (Batches::new(ring, &shared), sim)
}

/// The pixels of an epoch.
fn all((batches, sim): &mut (Batches<Held<Sim>>, Sim), epoch: u64) -> Vec<Vec<u8>> {
    batches.epoch(epoch).map(|batch| pixels(sim, &batch.unwrap())).collect()
}

#[test]
fn the_next_epoch_is_prepared_before_the_last_batch_is_taken() {
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
        let (source, plain) = (Recorded::new(), Recorded::new());
        let mut opened = open(&source, decode_on, u64::MAX);
        let mut plain = open(&plain, decode_on, 0);
        for number in 0..4 {
            let mut found = Vec::new();
            let mut epoch = opened.0.epoch(number);
            for _ in 0..4 {
                found.push(pixels(&opened.1, &epoch.next().unwrap().unwrap()));
            }
            // Three slots on the device and four on the host; one of them has the last batch.
            while source.of(number + 1) < 16 {
                std::thread::sleep(Duration::from_millis(1));
            }
            found.push(pixels(&opened.1, &epoch.next().unwrap().unwrap()));
            assert!(epoch.next().is_none());
            drop(epoch);
            assert!(found == all(&mut plain, number), "{decode_on:?}");
        }
        drop(opened);
        assert!((0..4).all(|epoch| source.of(epoch) == EPOCH), "each sample was read once");
    }
}

#[test]
fn whatever_is_asked_for_next_is_what_a_fresh_loader_delivers() {
    let mut opened = open(&Recorded::new(), DecodeOn::Gpu, u64::MAX);
    let mut plain = open(&Recorded::new(), DecodeOn::Gpu, 0);
    for (epoch, taken) in [(0, 9), (1, 9), (1, 9), (1, 2), (2, 9), (5, 5), (6, 0), (7, 1), (0, 9), (0, 9), (0, 9)] {
        let some = |(batches, sim): &mut (Batches<Held<Sim>>, Sim)| {
            let found: Vec<_> = batches.epoch(epoch).take(taken).map(|batch| pixels(sim, &batch.unwrap())).collect();
            (found, batches.checkpoint())
        };
        assert!(some(&mut opened) == some(&mut plain), "{taken} of epoch {epoch}");
    }
}

#[test]
fn nothing_is_prepared_after_the_last_of_the_epochs() {
    let source = Recorded::new();
    let mut opened = open(&source, DecodeOn::Gpu, 2);
    (0..2).for_each(|epoch| assert_eq!(all(&mut opened, epoch).len(), 5));
    assert_eq!(all(&mut opened, 3).len(), 5, "a later epoch can still be requested");
    drop(opened);
    assert_eq!([0, 1, 2, 3, 4].map(|epoch| source.of(epoch)), [20, 20, 0, 20, 0], "nothing was read in vain");
}
