//! Tests closing a loader and aborting the opening of a dataset while the store hangs or fails:
//! both must be fast and release the store. Also tests that the epoch after an abandoned one is
//! complete.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::objects::Objects;
use crate::support::{BeforeRead, NumberCodec, NumberSource, exit_on_hang};
use warpfeed::pack::Pack;
use warpfeed::source::{CancelToken, Object, Options, ReadCompletion, Source, Store, is_stopped};
use warpfeed::{Augment, Error, Loader, Result};

/// Maximum duration of closing: shorter than the two minutes after which a request without a
/// response is sent again, and much longer than closing takes on a busy machine.
const MAX_CLOSING_TIME: Duration = Duration::from_secs(20);

const ANSWERS: u8 = 0;
const SILENT: u8 = 1;
const FAILS: u8 = 2;

#[derive(Clone)]
struct FlakyStore {
    objects: Objects,
    mode: Arc<AtomicU8>,
    /// A number of requests and a mode. Each blocking request after that number of requests sets
    /// this mode.
    last_mode: (usize, u8),
    replies: Arc<Mutex<Vec<ReadCompletion>>>,
    /// Whether `fetch` returns before the response arrives.
    asynchronous: bool,
    calls_in_progress: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
}

impl FlakyStore {
    fn of(len: usize, asynchronous: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        Pack::new(&NumberSource::new(len))
            .shard_size(16_000)
            .keep_undecodable(true)
            .to(root.path().join("s.tar"))
            .unwrap();
        FlakyStore {
            objects: Objects::of(root.path(), "mem://set"),
            mode: Arc::default(),
            last_mode: (usize::MAX, ANSWERS),
            replies: Arc::default(),
            asynchronous,
            calls_in_progress: Arc::default(),
            begun: Arc::default(),
        }
    }

    fn set_mode(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    fn call<T>(&self, answer: impl FnOnce() -> Result<T>) -> Result<T> {
        struct LeaveOnDrop<'a>(&'a AtomicUsize);
        impl Drop for LeaveOnDrop<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.calls_in_progress.fetch_add(1, Ordering::SeqCst);
        let (answered_requests, mode) = self.last_mode;
        if self.begun.fetch_add(1, Ordering::SeqCst) >= answered_requests {
            self.set_mode(mode);
        }
        let _left = LeaveOnDrop(&self.calls_in_progress);
        loop {
            match self.mode.load(Ordering::SeqCst) {
                ANSWERS => return answer(),
                FAILS => return Err(Error::in_source("connection reset").transient()),
                _ if is_stopped() => return Err(Error::in_source("stopped")),
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits until nothing uses the store: no blocking call, no pending reply and no clone. Panics
    /// if this takes too long.
    fn wait_until_unused(&self, name: &str) {
        let begun = Instant::now();
        // Drop canceled replies, as a real store does.
        while self.calls_in_progress.load(Ordering::SeqCst) > 0 || Arc::strong_count(&self.objects.0) > 1 {
            self.replies.lock().unwrap().retain(|reply| !reply.is_canceled());
            assert!(begun.elapsed() < MAX_CLOSING_TIME, "{name}: something still uses the store");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(self.replies.lock().unwrap().is_empty());
    }
}

impl Store for FlakyStore {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.call(|| self.objects.list(prefix))
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.call(|| self.objects.object(url))
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.call(|| self.objects.read(object, offset, out))
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        if self.asynchronous && self.mode.load(Ordering::SeqCst) == SILENT {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.replies.lock().unwrap().push(reply);
            return;
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.read(object, range.start, &mut bytes);
        reply.complete(read.map(|()| bytes));
    }
}

#[test]
fn a_loader_closes_quickly_during_an_outage() {
    exit_on_hang(|| {
        for asynchronous in [true, false] {
            for planned in [true, false] {
                for mode in [SILENT, FAILS] {
                    for after in [0, 3] {
                        let name = format!(
                            "asynchronous {asynchronous}, planned {planned}, silent {}, after {after} batches",
                            mode == SILENT
                        );
                        let store = FlakyStore::of(200, asynchronous);
                        let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
                        // Without a prefetcher, the threads that read samples wait for the store.
                        let source: Arc<dyn Source> =
                            if planned { source } else { Arc::new(BeforeRead(source, |_| Ok(()))) };
                        let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16));
                        let loader = loader.batch_size(4).shuffle(3).workers(2).prefetch(2);
                        // A low limit keeps the prefetch budget small, so that samples remain to be
                        // requested when the loader is closed.
                        let mut epochs = loader.memory_limit(8 << 20).host().unwrap();
                        if after == 0 {
                            store.set_mode(mode);
                        }
                        epochs.begin(0);
                        for _ in 0..after {
                            epochs.next_interruptible(&mut || Some(Duration::from_secs(60))).unwrap().unwrap();
                        }
                        store.set_mode(mode);
                        let begun = Instant::now();
                        while epochs
                            .next_interruptible(&mut || {
                                (begun.elapsed() < Duration::from_millis(150)).then_some(Duration::from_millis(20))
                            })
                            .is_some_and(|batch| batch.is_ok())
                        {}
                        let begun = Instant::now();
                        drop(epochs);
                        assert!(begun.elapsed() < MAX_CLOSING_TIME, "{name}: closed after {:?}", begun.elapsed());
                        store.wait_until_unused(&name);
                    }
                }
            }
        }
    });
}

#[test]
fn the_next_epoch_starts_once_the_store_answers_again() {
    exit_on_hang(|| {
        let store = FlakyStore::of(40, false);
        let loader =
            Loader::new("mem://set").store("mem", store.clone()).codec(NumberCodec).augment(Augment::train(16));
        let mut batches = loader.batch_size(4).shuffle(3).workers(2).prefetch(2).host().unwrap();
        let expected: Vec<_> = batches.epoch(0).map(|batch| batch.unwrap().labels().unwrap().to_vec()).collect();
        store.set_mode(SILENT);
        batches.begin(7);
        let begun = Instant::now();
        let mut idle = || (begun.elapsed() < Duration::from_millis(200)).then_some(Duration::from_millis(20));
        while batches.next_interruptible(&mut idle).is_some() {}
        store.set_mode(ANSWERS);
        batches.begin(0);
        let mut received = Vec::new();
        while let Some(batch) = batches.next_interruptible(&mut || Some(Duration::from_millis(50))) {
            received.push(batch.unwrap().labels().unwrap().to_vec());
        }
        assert_eq!(received, expected, "the canceled reads of the abandoned epoch changed this one");
    });
}

#[test]
fn opening_can_be_aborted_at_every_request() {
    exit_on_hang(|| {
        for mode in [SILENT, FAILS] {
            for url in ["mem://set", "mem://set/s-{000000..000001}.tar"] {
                for answered_requests in 0..5 {
                    let store = FlakyStore { last_mode: (answered_requests, mode), ..FlakyStore::of(60, false) };
                    let abort = Arc::new(AtomicU8::new(0));
                    let is_aborted = abort.clone();
                    let stop = CancelToken::new(move || is_aborted.load(Ordering::SeqCst) > 0);
                    let options = Options::new().store("mem", Arc::new(store.clone()));
                    let begun = thread::scope(|scope| {
                        let opening = scope.spawn(|| stop.run(|| options.open(url).map(|_| ())));
                        thread::sleep(Duration::from_millis(100));
                        let begun = Instant::now();
                        abort.store(1, Ordering::SeqCst);
                        let opened = opening.join().unwrap();
                        assert_eq!(
                            opened.is_ok(),
                            store.begun.load(Ordering::SeqCst) <= answered_requests,
                            "{answered_requests}: {opened:?}"
                        );
                        begun
                    });
                    assert!(
                        begun.elapsed() < MAX_CLOSING_TIME,
                        "{url}, {answered_requests}: aborted after {:?}",
                        begun.elapsed()
                    );
                    drop(options);
                    store.wait_until_unused(url);
                }
            }
        }
    });
}
