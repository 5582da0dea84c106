//! Tests that, while an epoch ends, the first batches of the next epoch are prepared in free slots,
//! and discarded if the caller requests a different epoch. Batches, checkpoints, errors and
//! statistics must be as without preparation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::{BatchContent, NumberCodec, NumberSource, exit_on_hang};
use warpfeed::sampler::{Rng, Sampler};
use warpfeed::source::{BatchIndex, Lookahead, Prefetcher, Sample, Source};
use warpfeed::{Augment, Batches, Error, ErrorKind, HostBatch, LastBatch, Loader, OnError, Result};

/// Maximum number of samples per epoch.
const EPOCH: u64 = 100;

/// A sampler in which epoch e starts at sample e * EPOCH. The function returns the length of an
/// epoch.
#[derive(Clone, Copy)]
struct EpochRanges(fn(u64) -> u64);

impl Sampler for EpochRanges {
    fn len(&self, epoch: u64) -> u64 {
        self.0(epoch)
    }

    fn index(&self, epoch: u64, position: u64) -> u64 {
        epoch * EPOCH + position
    }
}

#[derive(Clone)]
struct Recorded {
    numbers: NumberSource,
    reads: Arc<Mutex<HashMap<u64, u64>>>,
    fails: fn(u64) -> bool,
}

impl Recorded {
    fn new() -> Self {
        Recorded { numbers: NumberSource::new(10_000), reads: Arc::default(), fails: |_| false }
    }

    fn started(&self, epoch: u64) -> u64 {
        self.reads.lock().unwrap().get(&epoch).copied().unwrap_or(0)
    }

    fn from(&self, first: u64) -> u64 {
        self.reads.lock().unwrap().iter().filter(|(epoch, _)| **epoch >= first).map(|(_, reads)| reads).sum()
    }

    fn until(&self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Source for Recorded {
    fn len(&self) -> usize {
        self.numbers.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        *self.reads.lock().unwrap().entry(index as u64 / EPOCH).or_default() += 1;
        if (self.fails)(index as u64) {
            return Err(Error::in_source(format!("{index} is lost")));
        }
        self.numbers.read(index, scratch)
    }
}

fn loader(source: &Recorded, lengths: fn(u64) -> u64) -> Loader {
    let loader =
        Loader::source(source.clone()).codec(NumberCodec).augment(Augment::train(16)).sampler(EpochRanges(lengths));
    loader.batch_size(4).workers(2).prefetch(2)
}

fn contents(batches: &mut Batches<HostBatch>, epoch: u64) -> Vec<BatchContent> {
    batches.epoch(epoch).map(|batch| BatchContent::from(&batch.unwrap())).collect()
}

#[test]
fn the_next_epoch_is_prepared_before_the_last_batch_is_taken() {
    exit_on_hang(|| {
        let source = Recorded::new();
        let mut batches = loader(&source, |_| 20).host().unwrap();
        for number in 0..5 {
            let mut epoch = batches.epoch(number);
            (0..4).for_each(|_| drop(epoch.next().unwrap().unwrap()));
            // The last batch occupies one of four slots.
            source.until(|source| source.started(number + 1) >= 12);
            assert!(epoch.next().unwrap().is_ok() && epoch.next().is_none());
        }
        drop(batches);
        assert!((0..5).all(|epoch| source.started(epoch) == 20), "some samples were not read exactly once");
    });
}

#[test]
fn short_epochs_are_prepared_one_after_the_other() {
    exit_on_hang(|| {
        let source = Recorded::new();
        let mut batches = loader(&source, |epoch| 1 + epoch % 4).host().unwrap();
        let mut plain = loader(&Recorded::new(), |epoch| 1 + epoch % 4).epochs(0).host().unwrap();
        for epoch in 0..30 {
            assert!(contents(&mut batches, epoch) == contents(&mut plain, epoch), "{epoch}");
            // Each epoch has one batch, so the four slots have space for the next three epochs.
            source.until(|source| source.started(epoch + 3) > 0);
        }
    });
}

#[test]
fn preparation_is_limited_by_free_slots() {
    exit_on_hang(|| {
        for prefetch in [1, 3] {
            let source = Recorded::new();
            let mut batches = loader(&source, |_| 20).prefetch(prefetch).host().unwrap();
            assert_eq!(contents(&mut batches, 0).len(), 5);
            let max_prepared = 4 * (prefetch as u64 + 2);
            source.until(|source| source.from(1) == max_prepared);
            drop(batches);
            assert_eq!((source.started(0), source.from(1)), (20, max_prepared), "prefetch({prefetch})");
        }
    });
}

#[test]
fn nothing_is_prepared_after_the_last_epoch() {
    exit_on_hang(|| {
        let source = Recorded::new();
        let mut batches = loader(&source, |_| 20).epochs(3).host().unwrap();
        for epoch in 0..3 {
            assert_eq!(contents(&mut batches, epoch).len(), 5);
        }
        assert_eq!(source.from(3), 0);
        assert_eq!(contents(&mut batches, 7).len(), 5, "a later epoch can still be requested");
        assert_eq!(contents(&mut batches, 2).len(), 5);
        drop(batches);
        assert_eq!((source.from(0), source.started(2), source.started(7)), (100, 40, 20), "no unnecessary reads");

        let source = Recorded::new();
        let once = loader(&source, |_| 20).into_iter().map(|batch| batch.unwrap().len()).sum::<usize>();
        assert_eq!((once, source.from(0)), (20, 20), "one `for` loop reads one epoch");
    });
}

#[test]
fn an_epoch_that_is_repeated_is_prepared_again() {
    exit_on_hang(|| {
        let source = Recorded::new();
        let mut batches = loader(&source, |_| 20).host().unwrap();
        let first = contents(&mut batches, 0);
        assert!(contents(&mut batches, 0) == first);
        for pass in 3..6 {
            let wasted = source.from(1);
            source.until(|source| source.started(0) >= 20 * (pass - 1) + 16);
            assert!(contents(&mut batches, 0) == first, "pass {pass}");
            assert_eq!(source.from(1), wasted);
        }
        assert_eq!(contents(&mut batches, 1)[0].ids[0], EPOCH);
    });
}

fn uneven(epoch: u64) -> u64 {
    [20, 4, 0, 9, 0, 0, 33, 1][epoch as usize % 8]
}

#[test]
fn any_epoch_equals_the_same_epoch_of_a_new_loader() {
    exit_on_hang(|| {
        for (last, seed) in [(LastBatch::Keep, 1), (LastBatch::Drop, 2), (LastBatch::Pad, 3)] {
            let mut batches = loader(&Recorded::new(), uneven).last_batch(last).seed(seed).host().unwrap();
            // `epochs(1)` disables preparation. Unlike `epochs(0)`, it does not mark the order as
            // stateful in checkpoints.
            let mut plain = loader(&Recorded::new(), uneven).last_batch(last).seed(seed).epochs(1).host().unwrap();
            let mut rng = Rng::new(seed, 0, 0);
            let mut epoch = 0;
            for step in 0..150 {
                epoch = match rng.below(8) {
                    0 => rng.below(12),
                    1 => epoch,
                    _ => epoch + 1,
                };
                let first = if rng.below(6) == 0 { rng.below(6) } else { 0 };
                let count = if rng.below(4) == 0 { rng.below(4) as usize } else { usize::MAX };
                let contents = |batches: &mut Batches<HostBatch>| -> Vec<_> {
                    let mut epoch = batches.epoch_from(epoch, first);
                    let mut contents = Vec::new();
                    while let Some(batch) = epoch.next().filter(|_| contents.len() < count) {
                        contents.push((BatchContent::from(&batch.unwrap()), epoch.checkpoint()));
                    }
                    contents
                };
                assert!(
                    contents(&mut batches) == contents(&mut plain),
                    "step {step}, epoch {epoch} from {first}, {count} taken"
                );
                assert_eq!(batches.checkpoint(), plain.checkpoint());
                if rng.below(20) == 0 && step > 0 {
                    assert_eq!(batches.replay(2).unwrap().take(3).count(), 3);
                }
            }
        }
    });
}

#[test]
fn resuming_after_the_last_batch_starts_the_next_epoch() {
    exit_on_hang(|| {
        let open = || loader(&Recorded::new(), |_| 20);
        let mut batches = open().host().unwrap();
        let first = contents(&mut batches, 0);
        let state = batches.checkpoint();
        assert_eq!((state.epoch(), state.batch()), (1, 0), "batches that were prepared are not delivered");
        let mut plain = open().epochs(1).host().unwrap();
        assert!(contents(&mut plain, 0) == first && plain.checkpoint() == state);
        let mut resumed = open().resume(state).host().unwrap();
        assert!(contents(&mut resumed, 0).is_empty());
        let next = contents(&mut resumed, 1);
        assert!(next == contents(&mut batches, 1) && next != first);
        assert!(contents(&mut resumed, 2) == contents(&mut batches, 2));
    });
}

#[test]
fn errors_of_the_next_epoch_are_reported_in_that_epoch() {
    exit_on_hang(|| {
        let source = Recorded { fails: |index| index == EPOCH, ..Recorded::new() };
        let mut batches = loader(&source, |_| 20).host().unwrap();
        assert_eq!(contents(&mut batches, 0).len(), 5);
        source.until(|source| source.started(1) >= 16);
        assert!(batches.sample_errors().is_empty());
        let e = batches.epoch(1).next().unwrap().unwrap_err();
        assert!(e.cause() == "100 is lost" && e.sample() == Some(EPOCH), "{e}");
        let mut plain = loader(&source, |_| 20).epochs(1).host().unwrap();
        assert!(plain.epoch(1).next().unwrap().is_err());
        assert_eq!(batches.checkpoint(), plain.checkpoint(), "the failed batch comes next");
        assert_eq!(contents(&mut batches, 2).len(), 5, "the loader continues");

        let skip = OnError::Skip { max_skipped: 0 };
        let mut batches = loader(&source, |_| 20).on_error(skip).host().unwrap();
        for epoch in [0, 0, 2] {
            assert_eq!(contents(&mut batches, epoch).len(), 5);
            assert!(batches.sample_errors().is_empty(), "an undelivered batch used the skip budget");
        }
        assert_eq!(batches.epoch(1).next().unwrap().unwrap_err().kind(), ErrorKind::TooManySkipped);
        assert_eq!(batches.sample_errors().len(), 1);
    });
}

#[test]
fn a_panic_in_the_next_epochs_order_is_reported_in_that_epoch() {
    exit_on_hang(|| {
        fn fails_late(epoch: u64) -> u64 {
            assert_ne!(epoch, 2, "epoch 2 has no length");
            20
        }
        let source = Recorded::new();
        let mut batches = loader(&source, fails_late).host().unwrap();
        assert_eq!(contents(&mut batches, 0).len() + contents(&mut batches, 1).len(), 10);
        for _ in 0..2 {
            let results: Vec<_> = batches.epoch(2).collect();
            let e = results[0].as_ref().unwrap_err();
            assert!(results.len() == 1 && e.to_string().contains("length of epoch 2"), "{e}");
        }
        assert_eq!(contents(&mut batches, 3).len(), 5);
    });
}

#[test]
fn a_sampler_that_changes_its_length_fails() {
    exit_on_hang(|| {
        static LENGTH: AtomicU64 = AtomicU64::new(20);
        let source = Recorded::new();
        let mut batches = loader(&source, |_| LENGTH.load(Ordering::SeqCst)).host().unwrap();
        assert_eq!(contents(&mut batches, 0).len(), 5);
        source.until(|source| source.started(1) >= 16);
        LENGTH.store(40, Ordering::SeqCst);
        let mut epoch = batches.epoch(1);
        (0..5).for_each(|_| drop(epoch.next().unwrap().unwrap()));
        let e = epoch.next().unwrap().unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains("when the epoch was prepared, but"), "{e}");
        assert!(epoch.next().is_none());
        drop(epoch);
        assert_eq!(contents(&mut batches, 1).len(), 10);
    });
}

#[test]
fn statistics_of_an_epoch_count_its_batches() {
    exit_on_hang(|| {
        let source = Recorded::new();
        let mut batches = loader(&source, |_| 20).host().unwrap();
        let monitor = batches.handle();
        let mut before = monitor.stats();
        for epoch in 0..4 {
            assert_eq!(contents(&mut batches, epoch).len(), 5);
            source.until(|source| source.started(epoch + 1) >= 16);
            let now = monitor.stats();
            let stats = now.since(&before);
            assert_eq!((stats.batches, stats.samples, stats.epochs, stats.wait.count), (5, 20, 1, 5));
            std::thread::sleep(Duration::from_millis(20));
            let later = monitor.stats();
            assert_eq!(later.seconds, now.seconds, "time between epochs is not counted");
            assert_eq!(later.slot_wait.seconds, now.slot_wait.seconds);
            before = later;
        }
    });
}

#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

#[test]
fn the_last_batch_does_not_wait_for_the_next_epoch() {
    struct Slow(Arc<Gate>);

    impl Sampler for Slow {
        fn len(&self, epoch: u64) -> u64 {
            if epoch == 1 {
                self.0.pass();
            }
            20
        }

        fn index(&self, epoch: u64, position: u64) -> u64 {
            epoch * EPOCH + position
        }
    }

    struct Checked(Recorded, Arc<Gate>);

    impl Source for Checked {
        fn len(&self) -> usize {
            Source::len(&self.0)
        }

        fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            self.0.read(index, scratch)
        }

        fn check(&self) -> Result<()> {
            self.1.pass();
            Ok(())
        }
    }

    exit_on_hang(|| {
        let gate = Arc::<Gate>::default();
        let open = |source: Checked| {
            let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16));
            loader.batch_size(4).workers(2).prefetch(2)
        };
        let never = Arc::<Gate>::default();
        let order = open(Checked(Recorded::new(), never)).sampler(Slow(gate.clone()));
        let check = open(Checked(Recorded::new(), gate.clone())).sampler(EpochRanges(|_| 20));
        for loader in [order, check] {
            let mut batches = loader.host().unwrap();
            let mut epoch = batches.epoch(0);
            gate.set(true);
            assert_eq!(epoch.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
            drop(epoch);
            gate.set(false);
            assert_eq!(contents(&mut batches, 1).len(), 5);
        }
    });
}

/// The consumer holds every batch while the coordinator fails to prepare the next epoch.
#[test]
fn an_epoch_that_could_not_be_prepared_begins_after_a_timeout() {
    /// A sampler that panics when the coordinator first asks for epoch 1, after waiting at the
    /// gate.
    struct Unknown(Arc<Gate>, AtomicU64);

    impl Sampler for Unknown {
        fn len(&self, epoch: u64) -> u64 {
            let is_coordinator = std::thread::current().name() == Some("warpfeed-order");
            if epoch == 1 && is_coordinator && self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                self.0.pass();
                panic!("epoch 1 is not known yet");
            }
            12
        }

        fn index(&self, epoch: u64, position: u64) -> u64 {
            epoch * EPOCH + position
        }
    }

    exit_on_hang(|| {
        let gate = Arc::<Gate>::default();
        gate.set(true);
        let loader = Loader::source(Recorded::new())
            .codec(NumberCodec)
            .augment(Augment::train(16))
            .sampler(Unknown(gate.clone(), AtomicU64::new(0)));
        let loader = loader.batch_size(4).workers(2).prefetch(1).held_batches_timeout(Duration::from_millis(50));
        let mut batches = loader.host().unwrap();
        let held_batches: Vec<_> = batches.epoch(0).map(|batch| batch.unwrap()).collect();
        assert_eq!(held_batches.len(), 3, "every slot is in use");
        let mut epoch = batches.epoch(1);
        assert_eq!(epoch.next().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
        drop(held_batches);
        gate.set(false);
        assert_eq!(
            epoch.map(|batch| batch.unwrap().ids().next()).collect::<Vec<_>>(),
            [0, 4, 8].map(|sample| Some(EPOCH + sample))
        );
    });
}

#[test]
fn a_source_is_checked_while_other_threads_read_it() {
    /// A source in which two reads wait for calls to `check`. The last read of epoch 0 waits for
    /// the second call, which is made when epoch 1 is prepared. The first read of epoch 1 waits for
    /// the third call, which is made when the consumer requests epoch 1.
    #[derive(Clone, Default)]
    struct Both {
        /// The numbers of calls to `check`, and of reads that have begun to wait for one.
        checks: Arc<(Mutex<(u64, u64)>, Condvar)>,
    }

    impl Source for Both {
        fn len(&self) -> usize {
            10_000
        }

        fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            let (state, changed) = &*self.checks;
            let expected_checks = if index == 19 { 2 } else { 3 };
            if index == 19 || index as u64 == EPOCH {
                let mut state = state.lock().unwrap();
                state.1 += 1;
                changed.notify_all();
                drop(changed.wait_while(state, |(checks, _)| *checks < expected_checks).unwrap());
            }
            scratch.clear();
            scratch.extend((index as u64).to_le_bytes());
            Ok(Sample::new("").with_field("img", scratch)?.with_label(index as i64))
        }

        fn check(&self) -> Result<()> {
            let (state, changed) = &*self.checks;
            let mut state = state.lock().unwrap();
            // The first check precedes all reads.
            state = changed.wait_while(state, |(checks, reads)| *reads < *checks).unwrap();
            state.0 += 1;
            changed.notify_all();
            Ok(())
        }
    }

    exit_on_hang(|| {
        let source = Both::default();
        let loader =
            Loader::source(source.clone()).codec(NumberCodec).augment(Augment::train(16)).sampler(EpochRanges(|_| 20));
        let mut batches = loader.batch_size(4).workers(2).prefetch(2).epochs(2).host().unwrap();
        for epoch in 0..2 {
            let ids = contents(&mut batches, epoch).into_iter().flat_map(|batch| batch.ids);
            assert!(ids.eq(epoch * EPOCH..epoch * EPOCH + 20));
        }
        assert_eq!(source.checks.0.lock().unwrap().0, 3);
    });
}

#[test]
fn only_an_epoch_that_was_read_to_its_end_is_prepared_again() {
    exit_on_hang(|| {
        let source = Recorded::new();
        let mut batches = loader(&source, |_| 20).host().unwrap();
        drop(batches.epoch(0).next());
        drop(batches.epoch(0).next());
        assert_eq!(batches.replay(2).unwrap().take(2).count(), 2);
        assert_eq!(contents(&mut batches, 0).len(), 5);
        source.until(|source| source.started(1) >= 16);
        let before = source.started(0);
        assert_eq!(contents(&mut batches, 0).len(), 5);
        source.until(|source| source.started(0) == before + 20 + 16);
        drop(batches);
        assert!(source.started(1) < 20, "epoch 1 was prepared more than once");
    });
}

struct Followed {
    numbers: NumberSource,
    calls: Arc<Mutex<Vec<String>>>,
}

struct RecordsCalls(Lookahead, Arc<Mutex<Vec<String>>>);

impl Prefetcher for RecordsCalls {
    fn start(&self, place: BatchIndex) {
        let last = self.0.batches_from(place).take(100).last().map(|(place, _)| place);
        let call = format!("start {}.{} to {:?}", place.epoch, place.batch, last.map(|last| (last.epoch, last.batch)));
        self.1.lock().unwrap().push(call);
    }

    fn stop(&self) {
        self.1.lock().unwrap().push("stop".to_owned());
    }
}

impl Source for Followed {
    fn len(&self) -> usize {
        self.numbers.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.numbers.read(index, scratch)
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        Some(Box::new(RecordsCalls(order, self.calls.clone())))
    }
}

#[test]
fn a_prefetching_source_learns_when_a_run_starts_and_ends() {
    exit_on_hang(|| {
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let source = || Followed { numbers: NumberSource::new(20), calls: calls.clone() };
        let open = || Loader::source(source()).codec(NumberCodec).augment(Augment::train(16)).batch_size(4).prefetch(2);
        let new_calls = || std::mem::take(&mut *calls.lock().unwrap());
        let mut batches = open().epochs(3).host().unwrap();
        (0..3).for_each(|epoch| assert_eq!(contents(&mut batches, epoch).len(), 5));
        assert_eq!(new_calls(), ["start 0.0 to Some((2, 4))"]);
        // An epoch after the last one is prefetched to its end, too.
        assert_eq!(contents(&mut batches, 6).len(), 5);
        drop(batches.epoch(1).next());
        assert_eq!(new_calls(), ["start 6.0 to Some((6, 4))", "start 1.0 to Some((6, 4))", "stop"]);
        // If the source prefetches, a repeated epoch is not prepared, because the source has
        // already continued with the next epoch.
        let mut batches = open().host().unwrap();
        (0..3).for_each(|_| assert_eq!(contents(&mut batches, 0).len(), 5));
        let call = "start 0.0 to Some((19, 4))";
        assert_eq!(new_calls(), [call, "stop", call, call]);
    });
}
