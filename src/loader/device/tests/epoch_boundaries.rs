//! Tests epoch boundaries, failed samples and changed weights on a device.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use super::*;
use crate::batch::Delivered;
use crate::error::Error;
use crate::sampler::Sampler;
use crate::source::{Sample, Source};

const EPOCH: u64 = 20;

/// Epoch `e` starts at sample `e * EPOCH`, so the index of a sample reveals its epoch.
struct Apart;

impl Sampler for Apart {
    fn len(&self, _: u64) -> u64 {
        EPOCH
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        epoch * EPOCH + position
    }
}

/// A source that counts the reads in each epoch.
struct Recorded {
    images: Vec<Vec<u8>>,
    reads: Mutex<HashMap<u64, u64>>,
    fails: fn(u64) -> bool,
    pause: Duration,
}

impl Recorded {
    fn new() -> Arc<Self> {
        Self::failing(|_| false)
    }

    fn failing(fails: fn(u64) -> bool) -> Arc<Self> {
        Arc::new(Recorded { images: originals(false), reads: Mutex::default(), fails, pause: Duration::ZERO })
    }

    fn until(&self, epoch: u64, reads: u64) {
        while self.started(epoch) < reads {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn started(&self, epoch: u64) -> u64 {
        self.reads.lock().unwrap().get(&epoch).copied().unwrap_or(0)
    }
}

impl Source for Recorded {
    fn len(&self) -> usize {
        1000
    }

    fn read<'a>(&'a self, index: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        // Spin, because a read that blocks would start reader threads.
        let begun = Instant::now();
        while begun.elapsed() < self.pause {}
        *self.reads.lock().unwrap().entry(index as u64 / EPOCH).or_default() += 1;
        if (self.fails)(index as u64) {
            return Err(Error::in_source(format!("{index} is lost")));
        }
        let bytes = &self.images[index % self.images.len()];
        Ok(Sample::new("").with_field("jpg", bytes)?.with_label(index as i64))
    }
}

fn open(source: &Arc<Recorded>, decode_on: DecodeOn, epochs: u64) -> (Batches<ConsumerBatch<Sim>>, Sim) {
    opened(loader(source).decode_on(decode_on).epochs(epochs))
}

fn loader(source: &Arc<Recorded>) -> Loader {
    let loader = Loader::source(source.clone()).sampler(Apart).batch_size(4).workers(2).prefetch(2);
    loader.augment(Augment::train(32))
}

fn opened(loader: Loader) -> (Batches<ConsumerBatch<Sim>>, Sim) {
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream().unwrap();
    let DeviceLoader { ring, shared } = loader.open_device(sim.clone(), consumer).unwrap();
    (Batches::new(ring, &shared), sim)
}

fn all_pixels((batches, sim): &mut (Batches<ConsumerBatch<Sim>>, Sim), epoch: u64) -> Vec<Vec<u8>> {
    batches.epoch(epoch).map(|batch| pixels(sim, &batch.unwrap())).collect()
}

#[test]
fn the_next_epoch_is_prepared_before_the_last_batch_is_taken() {
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
        let (source, plain) = (Recorded::new(), Recorded::new());
        let mut opened = open(&source, decode_on, u64::MAX);
        let mut plain = open(&plain, decode_on, 0);
        for number in 0..4 {
            let mut arrived = Vec::new();
            let mut epoch = opened.0.epoch(number);
            for _ in 0..4 {
                arrived.push(pixels(&opened.1, &epoch.next().unwrap().unwrap()));
            }
            // The device has three slots, and the host has four. Only one of these slots contains
            // the last batch, so the other slots can contain batches of the next epoch.
            while source.started(number + 1) < 16 {
                std::thread::sleep(Duration::from_millis(1));
            }
            arrived.push(pixels(&opened.1, &epoch.next().unwrap().unwrap()));
            assert!(epoch.next().is_none());
            drop(epoch);
            assert!(arrived == all_pixels(&mut plain, number), "{decode_on:?}");
        }
        drop(opened);
        assert!((0..4).all(|epoch| source.started(epoch) == EPOCH), "each sample is read once");
    }
}

#[test]
fn any_epoch_equals_the_same_epoch_of_a_new_loader() {
    let mut opened = open(&Recorded::new(), DecodeOn::Gpu, u64::MAX);
    // Do not use `epochs(0)`, which would mark the order as stateful in checkpoints.
    let mut plain = open(&Recorded::new(), DecodeOn::Gpu, 1);
    for (epoch, count) in [(0, 9), (1, 9), (1, 9), (1, 2), (2, 9), (5, 5), (6, 0), (7, 1), (0, 9), (0, 9), (0, 9)] {
        let some = |(batches, sim): &mut (Batches<ConsumerBatch<Sim>>, Sim)| {
            let arrived: Vec<_> = batches.epoch(epoch).take(count).map(|batch| pixels(sim, &batch.unwrap())).collect();
            (arrived, batches.checkpoint())
        };
        assert!(some(&mut opened) == some(&mut plain), "{count} of epoch {epoch}");
    }
}

#[test]
fn nothing_is_prepared_after_the_last_epoch() {
    let source = Recorded::new();
    let mut opened = open(&source, DecodeOn::Gpu, 2);
    (0..2).for_each(|epoch| assert_eq!(all_pixels(&mut opened, epoch).len(), 5));
    assert_eq!(all_pixels(&mut opened, 3).len(), 5, "a later epoch can still be requested");
    drop(opened);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|epoch| source.started(epoch)),
        [20, 20, 0, 20, 0],
        "no epoch is read that was not requested"
    );
}

#[test]
fn failures_are_listed_when_their_batch_is_delivered() {
    let skip = |max_skipped| OnError::Skip { max_skipped };
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
        // One sample of batch 3 of epoch 0 fails, and so do all samples of the first batch of epoch
        // 1.
        let source = Recorded::failing(|index| index == 13 || (EPOCH..EPOCH + 4).contains(&index));
        let open = |max_skipped| opened(loader(&source).decode_on(decode_on).on_error(skip(max_skipped)));
        let (mut batches, _sim) = open(10);
        drop(batches.epoch(0).next());
        // The samples of batch 3 must fail before it is delivered.
        let mut epoch = batches.epoch(0);
        for number in 0..5 {
            epoch.next().unwrap().unwrap();
            source.until(0, 4 + EPOCH);
            assert_eq!(epoch.sample_errors().len(), usize::from(number >= 3), "{decode_on:?}, batch {number}");
        }
        drop(epoch);
        source.until(1, 4);
        assert_eq!(batches.epoch(2).count(), 5);
        let listed: Vec<_> =
            batches.sample_errors().iter().map(|f| (f.epoch, f.batch, f.error.sample().unwrap())).collect();
        assert_eq!(listed, [(0, 3, 13)], "epoch 1 was not delivered, so its failures are not listed");
        let results: Vec<_> = batches.epoch(1).map(|batch| batch.map(drop)).collect();
        let e = results[0].as_ref().unwrap_err();
        assert!(results[1..].iter().all(Result::is_ok) && results.len() == 5);
        assert!(e.cause().starts_with("all 4 samples of batch 0 of epoch 1 failed"), "{e}");
        let listed: Vec<_> =
            batches.sample_errors().iter().map(|f| (f.epoch, f.batch, f.error.sample().unwrap())).collect();
        assert_eq!(listed, [(0, 3, 13), (1, 0, 20), (1, 0, 21), (1, 0, 22), (1, 0, 23)]);

        let (mut batches, _sim) = open(1);
        for epoch in [0, 0, 2] {
            assert_eq!(batches.epoch(epoch).filter(|batch| batch.is_ok()).count(), 5, "{decode_on:?}");
            assert_eq!(batches.sample_errors().len(), 1);
        }
        let e = batches.epoch(1).next().unwrap().map(drop).unwrap_err();
        assert!(e.kind() == ErrorKind::TooManySkipped && e.cause().starts_with("more than 1 sample failed"), "{e}");
        assert_eq!((batches.checkpoint().epoch(), batches.checkpoint().batch()), (1, 0));
        assert_eq!(batches.epoch(2).filter(|batch| batch.is_ok()).count(), 5, "the loader continues");
    }
}

#[test]
fn a_replacement_has_its_own_index_on_the_device() {
    let source = Recorded::failing(|index| [1, 2, 6, 15].contains(&index));
    let skipping = loader(&source).on_error(OnError::Skip { max_skipped: 9 });
    let mut host = skipping.clone().host().unwrap();
    let expected: Vec<(Vec<u64>, Vec<bool>)> =
        host.epoch(0).map(|batch| batch.unwrap()).map(|b| (b.ids().collect(), b.valid().collect())).collect();
    assert_eq!(expected[0], (vec![0, 3, 3, 3], vec![true, false, false, true]));
    assert_eq!(expected[3], (vec![12, 13, 14, 12], vec![true, true, true, false]));
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
        let (mut batches, _sim) = opened(skipping.clone().decode_on(decode_on));
        let actual: Vec<(Vec<u64>, Vec<bool>)> = batches
            .epoch(0)
            .map(|batch| batch.unwrap())
            .map(|batch| (batch.info().ids().collect(), batch.info().valid().collect()))
            .collect();
        assert_eq!(actual, expected, "{decode_on:?}");
        assert_eq!(batches.sample_errors().len(), 4);
    }
}

#[test]
fn the_batch_that_exceeds_max_skipped_fails() {
    // Samples 1, 6 and 13 are in batches 0, 1 and 3.
    let source = Recorded::failing(|index| [1, 6, 13].contains(&index));
    let (mut batches, sim) = opened(loader(&source).on_error(OnError::Skip { max_skipped: 2 }));
    let mut host = loader(&source).on_error(OnError::Skip { max_skipped: 2 }).host().unwrap();
    let (mut delivered, mut expected) = (Vec::new(), Vec::new());
    let mut actual = None;
    for batch in batches.epoch(0) {
        match batch {
            Ok(batch) => delivered.push(pixels(&sim, &batch)),
            Err(e) => actual = Some(e),
        }
    }
    for batch in host.epoch(0) {
        match batch {
            Ok(batch) => expected.push(batch.images().bytes().to_vec()),
            Err(e) => assert_eq!(actual.as_ref().unwrap().to_string(), e.to_string()),
        }
    }
    assert!(delivered.len() == 4 && delivered == expected, "the epoch continues after the batch");
    let samples = |faults: Vec<crate::engine::SampleError>| faults.iter().map(|f| f.error.sample()).collect::<Vec<_>>();
    assert_eq!(samples(batches.sample_errors()), samples(host.sample_errors()));
    assert_eq!(batches.checkpoint(), host.checkpoint());
}

#[test]
fn canceled_parts_are_not_timed() {
    let slow = Recorded { pause: Duration::from_millis(1), ..Arc::into_inner(Recorded::new()).unwrap() };
    let (mut batches, _sim) = opened(loader(&Arc::new(slow)).decode_on(DecodeOn::Auto));
    let runtime = batches.handle().0.runtime.clone();
    for epoch in 0..15 {
        drop(batches.epoch(epoch));
        let _ = batches.epoch(epoch).next().unwrap().unwrap();
        let [decoding, copying] = runtime.balance.mean_part_times();
        for time in [decoding, copying] {
            assert!(time == 0.0 || time >= 1e6, "a part takes more than 1 ms, but {time} ns were recorded");
        }
    }
    assert!(runtime.balance.mean_part_times() != [0.0, 0.0]);
}

#[test]
fn an_epoch_that_could_not_be_prepared_begins_on_request() {
    /// Panics when the length of epoch 1 is requested for the first time.
    struct Once(AtomicUsize);

    impl Sampler for Once {
        fn len(&self, epoch: u64) -> u64 {
            assert!(epoch != 1 || self.0.fetch_add(1, Relaxed) > 0, "not yet");
            EPOCH
        }

        fn index(&self, epoch: u64, position: u64) -> u64 {
            Apart.index(epoch, position)
        }
    }
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
        let source = Recorded::new();
        let mut once = opened(loader(&source).sampler(Once(AtomicUsize::new(0))).decode_on(decode_on));
        let mut plain = open(&Recorded::new(), decode_on, 0);
        for epoch in 0..3 {
            assert!(all_pixels(&mut once, epoch) == all_pixels(&mut plain, epoch), "epoch {epoch}");
        }
    }
}

#[test]
fn new_weights_begin_at_the_stated_batch_on_a_device() {
    let weights = |first: u64| (0..1000).map(move |sample| f64::from(u8::from(sample / 20 == first)));
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto] {
        let open = |first| {
            let loader = Loader::source(Recorded::new()).weights(weights(first)).batch_size(4).workers(2).prefetch(3);
            opened(loader.augment(Augment::train(32)).decode_on(decode_on))
        };
        let last = |(batches, sim): &mut (Batches<ConsumerBatch<Sim>>, Sim),
                    change: &dyn Fn(&Batches<ConsumerBatch<Sim>>, usize)| {
            let (mut epoch, mut arrived) = (batches.epoch_from(0, 238), Vec::new());
            while let Some(batch) = epoch.next() {
                arrived.push(pixels(sim, &batch.unwrap()));
                change(&epoch, arrived.len());
            }
            arrived
        };
        let [old, new] = [3, 9].map(|first| last(&mut open(first), &|_, _| ()));
        assert_eq!((old.len(), old.iter().zip(&new).filter(|(old, new)| old == new).count()), (12, 0));
        for after in [0, 1, 5] {
            let changed = last(&mut open(3), &|batches, number| {
                if number == 4 {
                    std::thread::sleep(Duration::from_millis(30));
                    let place = batches.set_weights(&weights(9).collect::<Vec<_>>(), after).unwrap();
                    assert_eq!(place.batch, 242 + after);
                }
            });
            let border = 4 + after as usize;
            assert!(changed == [&old[..border], &new[border..]].concat(), "{decode_on:?}, after {after} batches");
        }
    }
}
