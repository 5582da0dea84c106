//! Tests that a panic on any loader thread reaches the consumer as an error, and that the loader
//! leaves the program's panic hook alone.
//!
//! Each test reruns itself in a child process, because the panic hook and the `tracing` subscriber
//! are global.

use std::ops::Range;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use crate::process::child;
use crate::support::{BeforeRead, NumberCodec, NumberSource, exit_on_hang};
use tracing::span::{Attributes, Id, Record};
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Batches, Error, ErrorKind, HostBatch, Loader, LoaderHandle, OnError, Result};

const INSIDE: &str = "WARPFEED_PANICS_INSIDE";

/// Reruns the test `child` in a process that runs only `body`. Returns that process's standard
/// error, or `None` in the child.
fn in_a_process(mut child: Command, body: impl FnOnce()) -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        exit_on_hang(body);
        return None;
    }
    let Output { status, stdout, stderr } = child.env(INSIDE, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}: {out}\n{err}");
    Some(err.into_owned())
}

/// Returns a source that panics on every sixth sample, and on every hundredth at a different line.
fn panics_on_sixth(samples: usize) -> impl Source + 'static {
    BeforeRead(NumberSource::new(samples), |index: usize| {
        assert!(index % 100 != 1, "a second line panics at {index}");
        assert!(!index.is_multiple_of(6), "the source panics at {index}");
        Ok(())
    })
}

/// Returns a source in which reads of `sample` fail with a transient error if their number, counted
/// from 0, is in `failing`.
fn fails(samples: usize, sample: usize, failing: Range<usize>) -> impl Source + 'static {
    let reads = AtomicUsize::new(0);
    BeforeRead(NumberSource::new(samples), move |index| {
        if index == sample && failing.contains(&reads.fetch_add(1, SeqCst)) {
            return Err(Error::in_source("busy").transient());
        }
        Ok(())
    })
}

fn open(source: impl Source + 'static) -> Batches<HostBatch> {
    let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(20).workers(4);
    loader.on_error(OnError::Skip { max_skipped: 200 }).host().unwrap()
}

#[test]
fn a_hundred_panics_fail_and_keep_the_panic_hook() {
    let printed = in_a_process(child!(a_hundred_panics_fail_and_keep_the_panic_hook), || {
        let reports = Arc::new(AtomicUsize::new(0));
        let counted = reports.clone();
        std::panic::set_hook(Box::new(move |_| {
            counted.fetch_add(1, SeqCst);
        }));
        let mut batches = open(panics_on_sixth(600));
        assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 600);
        let faults = batches.sample_errors();
        assert_eq!(faults.len(), 100 + 6, "every panic is listed");
        assert!(faults.iter().all(|fault| fault.error.kind() == ErrorKind::Panic && fault.error.sample().is_some()));
        assert!(reports.load(SeqCst) >= 100 + 6, "the program's hook missed a panic");
    });
    assert!(printed.is_none_or(|text| !text.contains("panics at")), "the loader printed a panic itself");
}

/// The payload of a panic may itself panic when it is dropped.
#[test]
fn a_value_that_panics_when_dropped_fails_its_sample() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    in_a_process(child!(a_value_that_panics_when_dropped_fails_its_sample), || {
        let mut batches = open(BeforeRead(NumberSource::new(60), |index| match index {
            33 => std::panic::panic_any(Bomb),
            _ => Ok(()),
        }));
        assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 3);
        assert_eq!(batches.sample_errors()[0].error.to_string(), "sample 33: panic: with a non-string payload");
    });
}

/// A source with a `len` that panics on the coordinator thread, which catches panics only in its
/// outermost function.
struct PanicsInLen(NumberSource);

impl Source for PanicsInLen {
    fn len(&self) -> usize {
        assert!(std::thread::current().name() != Some("warpfeed-order"), "the count panics");
        self.0.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.0.read(index, scratch)
    }
}

#[test]
fn every_run_fails_after_a_thread_panics() {
    let printed = in_a_process(child!(every_run_fails_after_a_thread_panics), || {
        let mut batches = open(PanicsInLen(NumberSource::new(60)));
        for epoch in 0..5 {
            let mut epoch = batches.epoch(epoch);
            let e = epoch.next().unwrap().unwrap_err();
            assert!(e.kind() == ErrorKind::Panic && epoch.next().is_none(), "{e}");
            assert_eq!(e.cause(), "the coordinator panicked: the count panics");
        }
    });
    assert!(printed.is_none_or(|text| text.matches("panicked at").count() == 1));
}

/// A `tracing` subscriber, which is user code that runs where the loader does not catch panics. For
/// each event, it calls its function with the level and with whether a loader thread logged the
/// event.
struct Logger<F>(F);

impl<F: Fn(tracing::Level, bool) + 'static> tracing::Subscriber for Logger<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("warpfeed-"));
        (self.0)(*event.metadata().level(), is_worker);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_panic_outside_guarded_code_fails_the_run() {
    let printed = in_a_process(child!(a_panic_outside_guarded_code_fails_the_run), || {
        let warnings = AtomicUsize::new(0);
        let logger = Logger(move |level: tracing::Level, is_worker: bool| {
            assert!(
                !is_worker || level != tracing::Level::WARN || warnings.fetch_add(1, SeqCst) > 0,
                "the logger panics"
            );
        });
        tracing::subscriber::set_global_default(logger).unwrap();
        // A worker logs a warning when it retries.
        let source = fails(60, 33, 0..2);
        let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(20).workers(4);
        let mut batches = loader.host().unwrap();
        let mut epoch = batches.epoch(0);
        assert_eq!(epoch.next().unwrap().unwrap().len(), 20);
        let e = epoch.next().unwrap().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Panic);
        assert!(e.to_string().contains("of batch 1 of epoch 0: the logger panics"), "{e}");
        assert_eq!(epoch.next().unwrap().unwrap().batch_index(), 2, "the epoch continues");
        drop(epoch);
        assert_eq!(batches.epoch(0).filter(|batch| batch.is_ok()).count(), 3, "the loader continues");
    });
    assert!(printed.is_none_or(|text| text.matches("the logger panics").count() == 1));
}

/// A worker that panics leaves its remaining rows of the batch unread. Those rows must not show the
/// keys of the slot's previous batch.
#[test]
fn samples_left_unread_by_a_panic_have_no_stale_keys() {
    in_a_process(child!(samples_left_unread_by_a_panic_have_no_stale_keys), || {
        let logger = Logger(|level: tracing::Level, is_worker: bool| {
            assert!(!is_worker || level != tracing::Level::WARN, "the logger panics");
        });
        tracing::subscriber::set_global_default(logger).unwrap();
        let source = fails(320, 64, 5..6);
        let loader = Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(32).workers(1);
        let mut batches = loader.prefetch(1).on_error(OnError::Skip { max_skipped: 100 }).host().unwrap();
        for epoch in 0..7 {
            for batch in batches.epoch(epoch) {
                let batch = batch.unwrap();
                let unread = if (epoch, batch.batch_index()) == (5, 2) { 8 } else { 0 };
                assert!(batch.valid().eq((0..batch.len()).map(|place| place >= unread)));
                for (id, key) in batch.ids().zip(batch.sample_keys()) {
                    assert_eq!(key, format!("class{}/{id:06}", id % 10), "sample {id} of epoch {epoch}");
                }
            }
        }
        assert_eq!(batches.sample_errors().len(), 8, "each unread sample is listed");
    });
}

#[test]
fn a_logger_may_read_statistics_and_panic_while_skipping() {
    in_a_process(child!(a_logger_may_read_statistics_and_panic_while_skipping), || {
        let monitor = Arc::new(OnceLock::<LoaderHandle>::new());
        let shared_monitor = monitor.clone();
        let logger = Logger(move |level: tracing::Level, is_worker: bool| {
            let Some(monitor) = shared_monitor.get() else { return };
            monitor.stats();
            monitor.sample_errors();
            assert!(is_worker || level != tracing::Level::WARN, "the logger panics");
        });
        tracing::subscriber::set_global_default(logger).unwrap();
        let root = tempfile::tempdir().unwrap();
        let schedule = warpfeed::trace::Schedule { wait: 2, warmup: 1, active: 3, repeat: 1 };
        let loader = Loader::source(panics_on_sixth(600)).codec(NumberCodec).augment(Augment::train(16));
        let loader = loader.batch_size(20).workers(4).prefetch(2).trace(root.path().join("trace.json"), schedule);
        let mut batches = loader.on_error(OnError::Skip { max_skipped: 200 }).host().unwrap();
        monitor.set(batches.handle()).unwrap();
        for epoch in 0..3 {
            assert_eq!(batches.epoch(epoch).map(|batch| batch.unwrap().len()).sum::<usize>(), 600, "no slot is lost");
        }
        assert_eq!(batches.sample_errors().len(), 100 + 6);
    });
}
