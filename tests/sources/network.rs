//! Tests that the statistics count every network request. The counters of a trace must add up to
//! the statistics, except for requests that were sent before the trace began. If the loader waits
//! for the network, the verdict must say so.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::objects::Objects;
use crate::support::{NumberCodec, NumberSource, exit_on_hang};
use crate::warnings::Warnings;
use warpfeed::pack::Pack;
use warpfeed::source::{Concat, Object, Options, ReadCompletion, Source, Store};
use warpfeed::trace::{Bottleneck, Schedule};
use warpfeed::{Augment, Error, Loader, Result};

const DELAY: Duration = Duration::from_millis(90);

/// A store with limited bandwidth and a latency of [`DELAY`]. If `refuses` is set, the first
/// attempt of some requests fails.
#[derive(Clone)]
struct Throttled {
    objects: Objects,
    send: mpsc::Sender<(Instant, ReadCompletion, Result<Vec<u8>>)>,
    refuses: bool,
    requested: Arc<Mutex<HashSet<(String, u64)>>>,
    requests: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    /// Number of bytes of prefetched responses, which `bytes` includes.
    prefetched_bytes: Arc<AtomicU64>,
}

impl Throttled {
    fn new(samples: usize, rate: f64, refuses: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        Pack::new(&NumberSource::new(samples)).keep_undecodable(true).to(root.path().join("s.tar")).unwrap();
        let (send, waiting) = mpsc::channel::<(Instant, ReadCompletion, Result<Vec<u8>>)>();
        thread::spawn(move || {
            let mut free = Instant::now();
            for (sent, reply, bytes) in waiting {
                thread::sleep((sent + DELAY).max(free).saturating_duration_since(Instant::now()));
                reply.record_first_byte();
                let len = bytes.as_ref().map_or(0, Vec::len);
                thread::sleep(Duration::from_secs_f64(len as f64 / rate));
                free = Instant::now();
                reply.complete(bytes);
            }
        });
        Throttled {
            objects: Objects::of(root.path(), "mem://set"),
            send,
            refuses,
            requested: Arc::default(),
            requests: Arc::default(),
            refused: Arc::default(),
            bytes: Arc::default(),
            prefetched_bytes: Arc::default(),
        }
    }
}

impl Store for Throttled {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(out.len() as u64, Ordering::SeqCst);
        self.objects.read(object, offset, out)
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let first = self.requested.lock().unwrap().insert((object.url.clone(), range.start));
        let answer = if self.refuses && first && (range.start >> 9).is_multiple_of(3) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            Err(Error::in_source("status 503").throttled())
        } else {
            self.bytes.fetch_add(range.end - range.start, Ordering::SeqCst);
            self.prefetched_bytes.fetch_add(range.end - range.start, Ordering::SeqCst);
            self.objects.bytes(object, range)
        };
        self.send.send((Instant::now(), reply, answer)).unwrap();
    }
}

fn loader(source: Arc<dyn Source>) -> Loader {
    Loader::source(source)
        .codec(NumberCodec)
        .augment(Augment::train(16))
        .batch_size(4)
        .shuffle(3)
        .workers(2)
        .prefetch(2)
}

#[test]
fn a_throttled_store_is_network_bound_with_counted_requests() {
    exit_on_hang(|| {
        for refuses in [false, true] {
            let store = Throttled::new(120, 300_000.0, refuses);
            let source = Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
            let mut batches = loader(source.clone()).epochs(1).host().unwrap();
            assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 120);
            let stats = batches.stats();
            let network = stats.network.clone().unwrap();
            let loaded = |count: &AtomicU64| count.load(Ordering::SeqCst);
            assert_eq!((network.requests, network.received_bytes), (loaded(&store.requests), loaded(&store.bytes)));
            assert_eq!((network.refusals, network.retries), (loaded(&store.refused), loaded(&store.refused)));
            assert_eq!(network.refusals > 0, refuses);
            // The received bytes also include the tar, which opening reads once, the gaps between
            // samples, and samples that a worker reads before they are prefetched.
            assert!(network.used_bytes > 120 * 1024 && network.used_bytes <= network.received_bytes, "{network:?}");
            let tar_bytes = store.object("mem://set/s.tar").unwrap().len;
            assert!(network.responses.bytes <= network.received_bytes - tar_bytes, "{network:?}");
            assert_eq!(network.responses.bytes, loaded(&store.prefetched_bytes));
            assert!(network.time_to_first_byte.p50_seconds >= 0.9 * DELAY.as_secs_f64(), "{network:?}");
            assert!(network.time_to_first_byte.seconds <= network.responses.seconds);
            assert_eq!((network.hit_rate(), network.has_cache), (None, false));
            let verdict = stats.verdict();
            assert_eq!(verdict.bottleneck, Bottleneck::Network, "{verdict}\n{stats}");
            for words in ["network-bound\n", "first byte after", "region of the store", "a local disk cache"] {
                assert!(verdict.text.contains(words), "{words}: {verdict}");
            }
            assert_eq!(verdict.text.contains("the server refused"), refuses, "{verdict}");
            assert!(stats.to_string().contains("\n  network: "), "{stats}");
            // A second loader adds to the counts of the same source.
            drop(batches);
            let before = stats.clone();
            let mut batches = loader(source).epochs(1).host().unwrap();
            batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
            let later = batches.stats().since(&before).network.unwrap();
            assert_eq!(network.requests + later.requests, loaded(&store.requests));
            assert_eq!(later.refusals, 0);
        }
    });
}

#[test]
fn combined_sources_report_the_sum_of_their_requests() {
    let store = Throttled::new(10, 1e9, false);
    let open = || Options::new().store("mem", Arc::new(store.clone())).open("mem://set").unwrap();
    let (one, other) = (open(), open());
    let local: Arc<dyn Source> = Arc::new(NumberSource::new(5));
    assert_eq!(local.network_stats(), None);
    let joined = Concat::keep_labels(vec![one.clone(), local, other.clone()]).unwrap();
    (0..joined.len()).for_each(|index| assert!(joined.read(index, &mut Vec::new()).is_ok()));
    let (network, parts) =
        (joined.network_stats().unwrap(), [one.network_stats().unwrap(), other.network_stats().unwrap()]);
    assert_eq!(network, parts[0].plus(&parts[1]));
    assert!(parts[0].used_bytes > 0 && network.requests == store.requests.load(Ordering::SeqCst));
}

#[test]
fn a_trace_counts_what_the_network_did_between_two_batches() {
    exit_on_hang(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let store = Throttled::new(120, 300_000.0, true);
        let source = Options::new().store("mem", Arc::new(store)).open("mem://set").unwrap();
        let schedule = Schedule { wait: 0, warmup: 0, active: 1_000, repeat: 1 };
        let mut batches = loader(source).epochs(1).trace(&path, schedule).host().unwrap();
        let opened = batches.stats().network.unwrap();
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let stats = batches.stats();
        drop(batches);
        let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let mut tracks = BTreeMap::<&str, Vec<&Value>>::new();
        for event in document["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "C") {
            assert!(event["pid"] == 1 && event["tid"] == 0, "{event}");
            tracks.entry(event["name"].as_str().unwrap()).or_default().push(event);
        }
        let sum = |track: &str, value: &str, rate: bool| -> f64 {
            let number = |event: &Value, what: &str| event[what].as_f64().unwrap();
            let events = &tracks[track];
            let last = &events.last().unwrap()["args"][value];
            assert_eq!(last.as_f64(), Some(0.0), "the last event of {track} is at the end of the window");
            let each = events.windows(2).map(|two| {
                let seconds = (number(two[1], "ts") - number(two[0], "ts")) / 1e6;
                assert!(seconds >= 0.0, "{:?}", two[1]);
                number(&two[0]["args"], value) * if rate { seconds } else { 1.0 }
            });
            each.sum()
        };
        let network = stats.network.clone().unwrap();
        let near = |actual: f64, expected: f64, what: &str| {
            assert!((actual - expected).abs() <= 1e-6 * expected.max(1.0), "{what}: {actual} instead of {expected}");
        };
        near(
            1e6 * sum("network, MB/s", "arrived", true),
            (network.received_bytes - opened.received_bytes) as f64,
            "bytes",
        );
        near(1e6 * sum("network, MB/s", "used", true), network.used_bytes as f64, "bytes of samples");
        // The trace begins when the first batch is requested. By then, the source may have sent up
        // to half of its requests, but has no response yet.
        let (sent, total) = (sum("requests/s", "sent", true), (network.requests - opened.requests) as f64);
        assert!(sent > 0.5 * total && sent <= total + 1e-6, "{sent} of {total} requests");
        near(sum("retried requests", "refused", false), network.refusals as f64, "refusals");
        near(sum("retried requests", "retried", false), network.retries as f64, "retries");
        assert!(network.refusals > 0 && stats.batches > 20 && tracks["requests/s"].len() > 20);
        let first: Vec<_> = tracks["time to first byte, ms"].iter().filter_map(|e| e["args"]["p50"].as_f64()).collect();
        assert!(first.iter().any(|&ms| ms >= 0.9e3 * DELAY.as_secs_f64()), "{first:?}");
        let names: BTreeSet<_> = tracks.keys().copied().collect();
        assert!(!names.iter().any(|name| name.starts_with("cache")), "this store has no cache: {names:?}");
    });
}

/// A store whose fetches fail until one request has failed `tries` times.
#[derive(Clone)]
struct Refusing {
    objects: Objects,
    send: mpsc::Sender<(Object, Range<u64>, ReadCompletion)>,
}

impl Refusing {
    fn new(objects: Objects, tries: usize, warnings: Warnings) -> Self {
        let (send, requests) = mpsc::channel::<(Object, Range<u64>, ReadCompletion)>();
        let contents = objects.clone();
        thread::spawn(move || {
            tracing::subscriber::with_default(warnings, || {
                let (mut tried, mut is_up) = (HashMap::<(String, u64), usize>::new(), false);
                for (object, range, reply) in requests {
                    let count = tried.entry((object.url.clone(), range.start)).or_default();
                    *count += 1;
                    is_up |= *count > tries;
                    reply.complete(match is_up {
                        true => contents.bytes(&object, range),
                        false => Err(Error::in_source("connection refused").transient()),
                    });
                }
            });
        });
        Refusing { objects, send }
    }
}

impl Store for Refusing {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.objects.list(prefix)
    }

    fn object(&self, url: &str) -> Result<Object> {
        self.objects.object(url)
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.objects.read(object, offset, out)
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        self.send.send((object.clone(), range, reply)).unwrap();
    }
}

#[test]
fn an_outage_is_reported_once_with_url_and_cause() {
    exit_on_hang(|| {
        let (objects, warnings) = (Throttled::new(120, 1e9, false).objects, Warnings::default());
        let store = Refusing::new(objects, 5, warnings.clone());
        let source = Options::new().store("mem", Arc::new(store)).open("mem://set").unwrap();
        let mut batches = loader(source).epochs(1).host().unwrap();
        assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 120);
        assert!(batches.stats().network.unwrap().retries >= 5);
        let logged = warnings.0.lock().unwrap().clone();
        assert_eq!(logged.len(), 1, "{logged:?}");
        for words in ["request failed 4 times", "mem://set/s.tar", "connection refused"] {
            assert!(logged[0].contains(words), "{words}: {logged:?}");
        }
    });
}
