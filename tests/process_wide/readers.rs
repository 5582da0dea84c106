//! Tests the reader threads, which read ahead for the workers if reads block. More reads than
//! workers must be in flight, with a bounded number of bytes. Batches, errors, retries and shutdown
//! must behave as without readers. The number of readers must grow while latency is the bottleneck.
//! If no read blocks, no reader may start.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use crate::process::serial;
use crate::support::{
    BatchContent, BeforeRead, NumberCodec, NumberSource, exit_on_hang, reference_epoch, run_until, wait_for_threads,
};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Batches, Error, ErrorKind, HostBatch, Loader, OnError, Result};

fn waits(ms: u64) -> impl Fn(usize) -> Result<()> + Send + Sync {
    move |_| {
        sleep(Duration::from_millis(ms));
        Ok(())
    }
}

/// Like [`waits`], but also records the maximum number of concurrent reads.
fn in_flight(ms: u64) -> (Arc<AtomicUsize>, impl Fn(usize) -> Result<()> + Send + Sync) {
    let (now, max_reads) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let noted = max_reads.clone();
    let before = move |_| {
        noted.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        sleep(Duration::from_millis(ms));
        now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    };
    (max_reads, before)
}

fn loader(source: impl Source + 'static) -> Loader {
    Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(8).shuffle(3)
}

fn read_ahead(batches: &Batches<HostBatch>) -> u64 {
    batches.stats().readahead.map_or(0, |ahead| ahead.count)
}

#[test]
fn a_blocking_source_has_more_reads_in_flight_than_workers() {
    let _serial = serial();
    exit_on_hang(|| {
        let (samples, cores) = (800, available_parallelism().unwrap().get());
        let (max_reads, before) = in_flight(4);
        let mut batches = loader(BeforeRead(NumberSource::new(samples), before)).host().unwrap();
        assert_eq!(batches.workers(), cores);
        let augment = Augment::train(16);
        let mut expected = HashMap::new();
        let same = |batch: &HostBatch| {
            let epoch = expected.entry(batch.epoch()).or_insert_with(|| {
                reference_epoch(&NumberSource::new(samples), NumberCodec, &augment, Some(3), batch.epoch(), 8)
            });
            assert_eq!(BatchContent::from(batch), epoch[batch.batch_index() as usize]);
        };
        // Without readers, each worker would have one read in flight.
        let reached = run_until(
            &mut batches,
            |_| Duration::ZERO,
            same,
            |stats| {
                let ahead = stats.readahead.as_ref().map_or(0, |ahead| ahead.count);
                max_reads.load(Ordering::SeqCst) > cores.min(16) + 8 && stats.samples > 400 && 2 * ahead > stats.samples
            },
        );
        let stats = batches.stats();
        assert!(reached, "{} reads in flight\n{stats}", max_reads.load(Ordering::SeqCst));
        assert!(stats.to_string().contains("by reader threads"), "{stats}");
        drop(batches);
        wait_for_threads(0);
    });
}

#[test]
fn a_source_that_does_not_block_has_no_readers() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut batches = loader(NumberSource::new(800)).workers(2).host().unwrap();
        for number in 0..20 {
            batches.epoch(number).for_each(|batch| drop(batch.unwrap()));
        }
        assert_eq!(batches.stats().readahead, None);
        wait_for_threads(3); // two workers and the coordinator
    });
}

#[test]
fn one_slow_sample_starts_no_readers() {
    let _serial = serial();
    exit_on_hang(|| {
        let slow = |index| if index == 7 { waits(100)(index) } else { Ok(()) };
        let mut batches = loader(BeforeRead(NumberSource::new(400), slow)).workers(2).host().unwrap();
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        assert_eq!(batches.stats().readahead, None);
    });
}

#[test]
fn readers_pause_while_reads_do_not_block() {
    let _serial = serial();
    exit_on_hang(|| {
        let slow = Arc::new(AtomicBool::new(true));
        let now = slow.clone();
        let source = BeforeRead(NumberSource::new(800), move |_| {
            if now.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let mut batches = loader(source).workers(2).host().unwrap();
        assert!(run_until(&mut batches, |_| Duration::ZERO, |_| (), |stats| stats.readahead.is_some()));
        slow.store(false, Ordering::SeqCst);
        let rested = (0..100).any(|number| {
            let before = read_ahead(&batches);
            batches.epoch(number).for_each(|batch| drop(batch.unwrap()));
            read_ahead(&batches) == before
        });
        assert!(rested, "{}", batches.stats());
        slow.store(true, Ordering::SeqCst);
        let before = read_ahead(&batches);
        assert!(run_until(
            &mut batches,
            |_| Duration::ZERO,
            |_| (),
            |stats| stats.readahead.as_ref().is_some_and(|a| a.count > before)
        ));
    });
}

/// A source with blocking reads and samples of `bytes` bytes. `ahead` counts samples that have been
/// read but not decoded.
struct Large {
    len: usize,
    bytes: usize,
    ahead: Arc<AtomicUsize>,
    max_ahead: Arc<AtomicUsize>,
}

impl Source for Large {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, _: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        sleep(Duration::from_millis(1));
        let ahead = self.ahead.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_ahead.fetch_max(ahead, Ordering::SeqCst);
        // Nothing touches the zeroed memory here, so the read costs almost no CPU time.
        *scratch = vec![0; self.bytes];
        Sample::new("large").with_field("img", scratch)
    }
}

struct Counts(Arc<AtomicUsize>);

impl Codec for Counts {
    fn format(&self) -> Format {
        Format::any("anything")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(16, 16)))
    }

    fn decode(&self, _: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        sleep(Duration::from_millis(1));
        self.0.fetch_sub(1, Ordering::SeqCst);
        out.reset(region.size()).fill(0);
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

#[test]
fn bytes_that_are_read_but_not_decoded_are_bounded() {
    let _serial = serial();
    const MIB: usize = 1 << 20;
    exit_on_hang(|| {
        let source = |len, bytes| Large { len, bytes, ahead: Arc::default(), max_ahead: Arc::default() };
        let open = |source: Large, limit| {
            let decode = Counts(source.ahead.clone());
            Loader::source(source)
                .codec(decode)
                .augment(Augment::train(16))
                .batch_size(64)
                .workers(2)
                .memory_limit(limit)
        };
        for (len, bytes, limit) in [(600, MIB, 160 * MIB), (300, 4 * MIB, 160 * MIB), (100, 16 * MIB, 64 * MIB)] {
            let large = source(len, bytes);
            let max_ahead = large.max_ahead.clone();
            let mut batches = open(large, limit).host().unwrap();
            let plan = batches.memory_plan();
            assert!(plan.scratch_bytes >= plan.readahead_bytes && plan.to_string().contains("to read ahead"), "{plan}");
            batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
            // With samples of 16 MiB, a part of a batch exceeds the bound, so only one of its
            // samples is read ahead.
            let min_ahead = if bytes < 16 * MIB { 20 } else { 4 };
            assert!(read_ahead(&batches) > min_ahead, "{}", batches.stats());
            // The samples that fit into `readahead_bytes`, one more for each of the 32 readers, and
            // eight more for each of the two workers.
            let bound = plan.readahead_bytes / bytes + 32 + 2 * 8;
            let max_ahead = max_ahead.load(Ordering::SeqCst);
            println!("at most {max_ahead} samples of {bytes} bytes were read ahead: {plan}");
            assert!(
                max_ahead <= bound,
                "{max_ahead} samples of {bytes} bytes were read ahead, but only {bound} are allowed: {plan}"
            );
        }
    });
}

#[test]
fn errors_panics_and_retries_of_readers_reach_the_caller() {
    let _serial = serial();
    exit_on_hang(|| {
        let tries = Arc::new(AtomicUsize::new(0));
        let count = tries.clone();
        let fails = move |index: usize| {
            sleep(Duration::from_millis(2));
            match index {
                370 if count.fetch_add(1, Ordering::SeqCst) < 2 => {
                    Err(Error::io("shard", &std::io::Error::from_raw_os_error(libc::EIO)))
                }
                380 => Err(Error::new(ErrorKind::Source, "three hundred and eighty")),
                390 => panic!("three hundred and ninety"),
                _ => Ok(()),
            }
        };
        let loader = Loader::source(BeforeRead(NumberSource::new(400), fails))
            .codec(NumberCodec)
            .augment(Augment::train(16))
            .batch_size(7);
        let mut batches = loader.on_error(OnError::Skip { max_skipped: 9 }).host().unwrap();
        let valid: usize = batches.epoch(0).map(|batch| batch.unwrap().valid().filter(|valid| *valid).count()).sum();
        assert_eq!(valid, 398);
        let stats = batches.stats();
        assert!(read_ahead(&batches) > 100 && stats.read_retries == 2, "{stats}");
        let faults: Vec<_> = batches.sample_errors().iter().map(|f| (f.error.sample(), f.error.kind())).collect();
        assert_eq!(faults, [(Some(380), ErrorKind::Source), (Some(390), ErrorKind::Panic)]);
        assert!(batches.sample_errors()[1].error.to_string().contains("three hundred and ninety"));
    });
}

#[test]
fn canceling_and_dropping_end_readers_in_the_middle_of_a_read() {
    let _serial = serial();
    exit_on_hang(|| {
        for round in 0..20 {
            let mut batches = loader(BeforeRead(NumberSource::new(800), waits(3))).workers(2).host().unwrap();
            for number in 0..3 {
                let partly = batches.epoch(number).take(1 + (round + number as usize) % 12);
                partly.for_each(|batch| drop(batch.unwrap()));
            }
            if round % 5 == 0 {
                let ids: usize = batches.epoch(9).map(|batch| batch.unwrap().len()).sum();
                assert_eq!(ids, 800);
            }
            drop(batches);
            wait_for_threads(0);
        }
    });
}

#[test]
fn a_trace_has_a_row_for_each_reader() {
    let _serial = serial();
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("trace.json");
        let schedule = warpfeed::trace::Schedule { wait: 20, warmup: 1, active: 10, repeat: 1 };
        let mut batches = loader(BeforeRead(NumberSource::new(800), waits(2))).trace(&path, schedule).host().unwrap();
        batches.epoch(0).for_each(|batch| drop(batch.unwrap()));
        drop(batches);
        let text = std::fs::read_to_string(&path).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of_readers: Vec<u64> = events
            .iter()
            .filter(|e| e["args"]["name"].as_str().is_some_and(|name| name.starts_with("reader ")))
            .map(|e| e["tid"].as_u64().unwrap())
            .collect();
        assert!(of_readers.len() > 2, "{of_readers:?}");
        let read = events.iter().find(|e| e["name"] == "read" && of_readers.contains(&e["tid"].as_u64().unwrap()));
        let read = read.expect("the trace has a span of a reader");
        assert!(read["dur"].as_f64().unwrap() >= 2000.0 && read["args"]["sample"].is_u64(), "{read}");
        assert!(read["args"]["key"].as_str().unwrap().starts_with("class"), "{read}");
    });
}

#[test]
fn more_readers_are_started_while_latency_is_the_limit() {
    let _serial = serial();
    exit_on_hang(|| {
        let (max_reads, before) = in_flight(50);
        let source = BeforeRead(NumberSource::new(100_000), before);
        let mut batches =
            Loader::source(source).drop_field("image").batch_size(512).prefetch(4).workers(2).host().unwrap();
        // Initially there are 32 readers.
        let reached = run_until(&mut batches, |_| Duration::ZERO, |_| (), |_| max_reads.load(Ordering::SeqCst) > 75);
        assert!(reached, "{} reads in flight\n{}", max_reads.load(Ordering::SeqCst), batches.stats());
    });
}
