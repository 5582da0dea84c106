//! Tests sources that prefetch. Such a source receives the sample order in advance, across epoch
//! boundaries. The bytes in flight are limited and part of the memory plan; the number of threads
//! is not a limit. Canceled reads must release their memory. Batches, errors and retries must be as
//! without prefetching.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::process::serial;
use crate::support::{BatchContent, NumberCodec, NumberSource, exit_on_hang};
use warpfeed::source::{BatchIndex, Concat, Lookahead, Prefetcher, Sample, Source};
use warpfeed::{Augment, Batches, Error, ErrorKind, HostBatch, Loader, OnError, Result};

const SAMPLE: usize = 10_000;

/// A simulated store of numbers. Every request takes `latency`, and any number of requests may be
/// in flight. In most tests, the byte budget exceeds the samples that a loader reads at a time, so
/// the loader never reads a sample before its prefetch was requested.
#[derive(Clone)]
struct Store {
    numbers: NumberSource,
    latency: Duration,
    bytes: usize,
    state: Arc<Mutex<State>>,
    fails: fn(usize, usize) -> Result<()>,
}

#[derive(Default)]
struct State {
    ahead: Option<Box<dyn Iterator<Item = (BatchIndex, Vec<u64>)> + Send>>,
    place: BatchIndex,
    samples: Vec<u64>,
    bound: usize,
    /// Samples that were requested but not read: for each batch that reads the sample, the time at
    /// which its bytes arrive.
    fetched: HashMap<u64, VecDeque<(BatchIndex, Instant)>>,
    open_count: usize,
    in_flight: VecDeque<Instant>,
    requests: usize,
    waiting: usize,
    max_open: usize,
    most_in_flight: usize,
    direct: usize,
    canceled: usize,
    left_over: usize,
    tries: HashMap<usize, usize>,
}

impl State {
    /// Requests samples while the byte budget allows.
    fn fill(&mut self, latency: Duration) {
        let now = Instant::now();
        while (self.open_count + self.waiting + 1) * SAMPLE <= self.bound {
            let Some(sample) = self.samples.pop() else {
                let Some((place, mut samples)) = self.ahead.as_mut().and_then(|ahead| ahead.next()) else { break };
                samples.reverse();
                (self.place, self.samples) = (place, samples);
                continue;
            };
            (self.requests, self.open_count) = (self.requests + 1, self.open_count + 1);
            self.in_flight.push_back(now + latency);
            self.fetched.entry(sample).or_default().push_back((self.place, now + latency));
        }
        while self.in_flight.front().is_some_and(|answered| *answered <= now) {
            self.in_flight.pop_front();
        }
        self.max_open = self.max_open.max(self.open_count + self.waiting);
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
    }

    fn take(&mut self, sample: u64) -> Option<Instant> {
        let (_, arrives) = self.fetched.get_mut(&sample)?.pop_front()?;
        self.open_count -= 1;
        Some(arrives)
    }

    fn drop_all_but(&mut self, keep: impl Fn(BatchIndex) -> bool) -> usize {
        let before = self.open_count;
        self.fetched.values_mut().for_each(|times| times.retain(|(place, _)| keep(*place)));
        self.fetched.retain(|_, times| !times.is_empty());
        self.open_count = self.fetched.values().map(VecDeque::len).sum();
        before - self.open_count
    }
}

impl Store {
    fn new(len: usize, latency_ms: u64, in_flight: usize) -> Self {
        let (latency, bytes) = (Duration::from_millis(latency_ms), in_flight * SAMPLE);
        Store { numbers: NumberSource::new(len), latency, bytes, state: Arc::default(), fails: |_, _| Ok(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Source for Store {
    fn len(&self) -> usize {
        self.numbers.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let mut state = self.state();
        let arrived = state.take(index as u64);
        state.waiting += usize::from(arrived.is_some());
        state.direct += usize::from(arrived.is_none());
        let arrives = arrived.unwrap_or_else(|| Instant::now() + self.latency);
        drop(state);
        sleep(arrives.saturating_duration_since(Instant::now()));
        let mut state = self.state();
        state.waiting -= usize::from(arrived.is_some());
        state.fill(self.latency);
        let tries = state.tries.entry(index).or_default();
        *tries += 1;
        (self.fails)(index, *tries)?;
        drop(state);
        self.numbers.read(index, scratch)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        self.state().bound = order.budget_bytes();
        Some(Box::new(Following { order, store: self.clone() }))
    }

    fn prefetch_bytes(&self) -> usize {
        self.bytes
    }
}

struct Following {
    order: Lookahead,
    store: Store,
}

impl Prefetcher for Following {
    fn start(&self, place: BatchIndex) {
        let mut state = self.store.state();
        state.canceled += state.drop_all_but(|other| other >= place);
        let next = state.fetched.values().flatten().map(|(place, _)| *place).min().unwrap_or(state.place);
        if state.ahead.is_none() || next != place {
            state.canceled += state.drop_all_but(|_| false);
            state.samples.clear();
            state.ahead = Some(Box::new(self.order.batches_from(place)));
        }
        state.fill(self.store.latency);
    }

    fn done(&self, place: BatchIndex) {
        let mut state = self.store.state();
        state.left_over += state.drop_all_but(|other| other != place);
        state.fill(self.store.latency);
    }

    fn stop(&self) {
        let mut state = self.store.state();
        state.canceled += state.drop_all_but(|_| false);
        state.samples.clear();
        state.ahead = None;
    }
}

fn loader(source: impl Source + 'static) -> Loader {
    Loader::source(source)
        .codec(NumberCodec)
        .augment(Augment::train(16))
        .batch_size(16)
        .prefetch(2)
        .shuffle(3)
        .workers(2)
}

fn contents(batches: &mut Batches<HostBatch>, epoch: u64) -> Vec<BatchContent> {
    batches.epoch(epoch).map(|batch| BatchContent::from(&batch.unwrap())).collect()
}

#[test]
fn bytes_limit_the_reads_in_flight_and_batches_are_equal() {
    let _serial = serial();
    exit_on_hang(|| {
        for (in_flight, batch, samples) in [(200, 20, 2_000), (2_000, 200, 20_000)] {
            let store = Store::new(samples, 50, in_flight);
            let labels = |source: Arc<dyn Source>| {
                Loader::source(source).drop_field("image").batch_size(batch).prefetch(3).shuffle(3).workers(2)
            };
            let mut batches = labels(Arc::new(store.clone())).host().unwrap();
            let plan = batches.memory_plan();
            assert_eq!(plan.source_prefetch_bytes, in_flight * SAMPLE);
            assert!(
                plan.scratch_bytes > plan.source_prefetch_bytes
                    && plan.to_string().contains("for the source to prefetch")
            );
            let ids = |batches: &mut Batches<HostBatch>| -> Vec<Vec<u64>> {
                batches.epoch(0).map(|batch| batch.unwrap().ids().collect()).collect()
            };
            let begun = Instant::now();
            let actual = ids(&mut batches);
            let rate = samples as f64 / begun.elapsed().as_secs_f64();
            let state = store.state();
            println!(
                "{in_flight} reads of 50 ms at a time: {rate:.0} samples/s, at most {} in flight",
                state.most_in_flight
            );
            assert_eq!((state.max_open, state.direct, state.left_over), (in_flight, 0, 0));
            assert!(state.most_in_flight > in_flight * 9 / 10);
            drop(state);
            assert_eq!(actual, ids(&mut labels(Arc::new(NumberSource::new(samples))).host().unwrap()));
        }
    });
}

#[test]
fn the_next_epoch_is_prefetched_while_the_current_one_ends() {
    let _serial = serial();
    exit_on_hang(|| {
        let store = Store::new(320, 200, 80);
        let mut batches = loader(store.clone()).host().unwrap();
        let mut plain = loader(NumberSource::new(320)).host().unwrap();
        for epoch in 0..3 {
            assert!(contents(&mut batches, epoch) == contents(&mut plain, epoch), "{epoch}");
            // Each read freed space for a later sample, so all requested samples belong to the next
            // epoch.
            let state = store.state();
            let next: Vec<u64> = state.fetched.values().flatten().map(|(place, _)| place.epoch).collect();
            assert_eq!(next, vec![epoch + 1; 80 - state.waiting]);
        }
        // The loader prepares four batches of the next epoch.
        while store.state().requests < 3 * 320 + 64 + 80 {
            sleep(Duration::from_millis(10));
        }
        drop(batches);
        let state = store.state();
        assert_eq!((state.direct, state.left_over), (0, 0));
        assert_eq!(state.requests, 3 * 320 + 64 + 80, "each sample once, then the prefetched part of the next epoch");
    });
}

#[test]
fn jumping_to_an_epoch_cancels_reads_and_prefetches_from_there() {
    let _serial = serial();
    exit_on_hang(|| {
        let store = Store::new(320, 20, 100);
        let mut batches = loader(store.clone()).host().unwrap();
        let mut plain = loader(NumberSource::new(320)).host().unwrap();
        for (epoch, count) in [(0, 3), (0, 1), (5, 7)] {
            let some: Vec<_> =
                batches.epoch(epoch).take(count).map(|batch| BatchContent::from(&batch.unwrap())).collect();
            assert!(some[..] == contents(&mut plain, epoch)[..count]);
            let state = store.state();
            assert!(state.fetched.is_empty() && state.canceled > 0);
        }
        let state = batches.checkpoint();
        drop(batches);
        let mut batches = loader(store.clone()).resume(state).host().unwrap();
        // To compare samples with the checkpoint, resuming reads some directly.
        store.state().direct = 0;
        let rest = contents(&mut batches, 5);
        assert!(rest[..] == contents(&mut plain, 5)[7..]);
        let state = store.state();
        assert_eq!((state.direct, state.left_over), (0, 0), "{} slots", batches.memory_plan().slots);
        drop(state);
        drop(batches);
        assert_eq!(Arc::strong_count(&store.state), 1, "the prefetcher was dropped");
    });
}

#[test]
fn errors_and_retries_equal_those_without_prefetching() {
    let _serial = serial();
    exit_on_hang(|| {
        let fails = |index, tries| match (index, tries) {
            (7, 1 | 2) => Err(Error::in_source("busy").transient()),
            (9, _) => Err(Error::in_source("nine is lost")),
            _ => Ok(()),
        };
        let store = Store { fails, ..Store::new(320, 5, 100) };
        let mut batches = loader(store.clone()).on_error(OnError::Skip { max_skipped: 1 }).host().unwrap();
        let valid: usize = batches.epoch(0).map(|batch| batch.unwrap().valid().filter(|valid| *valid).count()).sum();
        assert_eq!((valid, batches.stats().read_retries), (319, 2));
        let faults: Vec<_> =
            batches.sample_errors().iter().map(|f| (f.error.sample(), f.error.cause().to_owned())).collect();
        assert_eq!(faults, [(Some(9), "nine is lost".to_owned())]);
        assert_eq!(store.state().direct, 2, "a retry reads directly");
    });
}

#[test]
fn ranks_and_joined_datasets_prefetch_only_their_samples() {
    let _serial = serial();
    exit_on_hang(|| {
        // Each budget exceeds the 64 samples (four batches of 16) that the loader reads at a time.
        let stores = [Store::new(100, 10, 70), Store::new(60, 10, 80)];
        let joined =
            || Concat::new(stores.iter().map(|store| Arc::new(store.clone()) as Arc<dyn Source>).collect()).unwrap();
        let numbers = || {
            let parts = [100, 60].map(|len| Arc::new(NumberSource::new(len)) as Arc<dyn Source>);
            Concat::new(parts.to_vec()).unwrap()
        };
        for rank in 0..2 {
            let mut batches = loader(joined()).rank(rank, 2).epochs(2).host().unwrap();
            assert_eq!(batches.memory_plan().source_prefetch_bytes, 150 * SAMPLE);
            let mut plain = loader(numbers()).rank(rank, 2).host().unwrap();
            for epoch in 0..2 {
                assert!(contents(&mut batches, epoch) == contents(&mut plain, epoch), "{rank}");
            }
            for (store, max_open_samples) in stores.iter().zip([70, 80]) {
                let mut state = store.state();
                assert!(state.max_open <= max_open_samples && state.requests > 0);
                assert_eq!((state.direct, state.left_over), (0, 0));
                *state = State::default();
            }
        }
    });
}

#[test]
fn a_memory_limit_bounds_the_prefetched_bytes() {
    let _serial = serial();
    exit_on_hang(|| {
        let store = Store::new(2_000, 1, 1 << 20);
        let limit = 48 << 20;
        let mut batches = loader(store.clone()).memory_limit(limit).host().unwrap();
        let plan = batches.memory_plan();
        assert!(plan.source_prefetch_bytes > SAMPLE && plan.host_bytes + plan.scratch_bytes <= limit, "{plan:?}");
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let max_open = store.state().max_open;
        assert!(max_open > 10 && max_open * SAMPLE <= plan.source_prefetch_bytes, "{max_open} samples, {plan:?}");
    });
}

#[test]
fn a_greedy_source_leaves_memory_to_automatic_prefetch() {
    let _serial = serial();
    exit_on_hang(|| {
        let plan = |wish| {
            let loader = loader(Store { bytes: wish, ..Store::new(2_000, 1, 0) }).prefetch(0).memory_limit(1 << 30);
            loader.host().unwrap().memory_plan()
        };
        let (none, unlimited) = (plan(0), plan(usize::MAX));
        assert!(none.slots > 10 && unlimited.slots == none.slots, "{none} | {unlimited}");
        assert_eq!(
            (none.source_prefetch_bytes, unlimited.source_prefetch_bytes),
            (0, 1 << 28),
            "a source gets at most a quarter of the limit"
        );
        assert_eq!(unlimited.shared_scratch_bytes, none.shared_scratch_bytes, "{unlimited}");
    });
}

#[test]
fn a_panicking_prefetcher_fails_the_first_batch() {
    let _serial = serial();
    struct Panics;
    impl Source for Panics {
        fn len(&self) -> usize {
            100
        }

        fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            Ok(Sample::new("panics"))
        }

        fn prefetcher(&self, _: Lookahead) -> Option<Box<dyn Prefetcher>> {
            Some(Box::new(Panics))
        }
    }
    impl Prefetcher for Panics {
        fn start(&self, place: BatchIndex) {
            assert_eq!(place.epoch, 0, "only epoch 0 can be prefetched");
        }

        fn done(&self, _: BatchIndex) {
            panic!("done");
        }
    }
    exit_on_hang(|| {
        let mut batches = loader(Panics).drop_field("image").unlabeled(true).host().unwrap();
        assert!(batches.epoch(0).all(|batch| batch.is_ok()), "a batch before a panic is not lost");
        let results: Vec<_> = batches.epoch(4).collect();
        let e = results[0].as_ref().unwrap_err();
        assert_eq!((results.len(), e.kind()), (1, ErrorKind::Panic));
        assert!(e.to_string().contains("the source panicked when a run started at batch 0 of epoch 4"), "{e}");
        assert!(batches.epoch(0).all(|batch| batch.is_ok()));
    });
}
