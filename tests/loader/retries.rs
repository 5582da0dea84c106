//! Tests that reads with transient errors are retried a limited number of times and counted.
//! Permanent errors must not be retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use codes::{EIO, ENOENT, EXHAUSTED, TRANSIENT};

use crate::support::{self, NumberCodec, NumberSource, exit_on_hang, loader};
use warpfeed::source::{Sample, Source};
use warpfeed::{Augment, Error, ErrorKind, Loader, OnError, Result};

/// Error codes of the operating system: a device I/O error, a missing file, transient errors, and
/// exhausted limits with the advice that the message must contain.
#[cfg(not(windows))]
mod codes {
    pub(super) const EIO: i32 = libc::EIO;
    pub(super) const ENOENT: i32 = libc::ENOENT;
    pub(super) const TRANSIENT: [i32; 6] =
        [libc::EIO, libc::EAGAIN, libc::ESTALE, libc::ETIMEDOUT, libc::EMFILE, libc::ENOMEM];
    pub(super) const EXHAUSTED: [(i32, &str); 3] =
        [(libc::EMFILE, "ulimit -n"), (libc::ENFILE, "fs.file-max"), (libc::ENOMEM, "out of memory")];
}
#[cfg(windows)]
mod codes {
    pub(super) const EIO: i32 = 1117;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const TRANSIENT: [i32; 6] = [1117, 23, 32, 121, 4, 8];
    pub(super) const EXHAUSTED: [(i32, &str); 2] = [(4, "limit on open files"), (8, "out of memory")];
}

/// A source in which sample 5 fails `failures_left` times with the error `code`.
struct Shaky {
    numbers: NumberSource,
    failures_left: Arc<AtomicUsize>,
    code: i32,
}

impl Source for Shaky {
    fn len(&self) -> usize {
        self.numbers.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let fails = index == 5
            && self.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if fails {
            scratch.resize(1000, 0xee);
            return Err(Error::io("shard", &std::io::Error::from_raw_os_error(self.code)));
        }
        self.numbers.read(index, scratch)
    }
}

fn shaky(failures: usize, code: i32) -> (Loader, Arc<AtomicUsize>) {
    let failures_left = Arc::new(AtomicUsize::new(failures));
    let source = Shaky { numbers: NumberSource::new(14), failures_left: failures_left.clone(), code };
    (open(source), failures_left)
}

fn open(source: impl Source + 'static) -> Loader {
    Loader::source(source).codec(NumberCodec).augment(Augment::train(16)).batch_size(7).workers(2)
}

/// A source in which the image of sample 2 is damaged as well.
struct Damaged(Shaky);

impl Source for Damaged {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        if index == 2 { Sample::new("damaged").with_field("img", b"?") } else { self.0.read(index, scratch) }
    }
}

#[test]
fn a_transient_read_error_is_retried() {
    exit_on_hang(|| {
        let content = |loader: Loader| -> Vec<_> {
            loader.into_iter().map(|batch| support::BatchContent::from(&batch.unwrap())).collect()
        };
        let expected = content(loader(NumberSource::new(14)));
        for code in TRANSIENT {
            assert!(content(shaky(3, code).0) == expected, "errno {code}");
        }
        let (loader, failures_left) = shaky(2, EIO);
        let mut batches = loader.host().unwrap();
        assert!(batches.epoch(0).all(|batch| batch.is_ok()));
        assert_eq!((batches.stats().read_retries, failures_left.load(Ordering::SeqCst)), (2, 0));
        assert!(batches.sample_errors().is_empty(), "a sample was skipped");
    });
}

#[test]
fn the_last_error_is_returned_when_retries_run_out() {
    exit_on_hang(|| {
        let (loader, failures_left) = shaky(100, EIO);
        let error = loader.retries(1).into_iter().find_map(Result::err).unwrap();
        assert_eq!((error.kind(), error.sample(), error.os_code()), (ErrorKind::Io, Some(5), Some(EIO)));
        assert_eq!(failures_left.load(Ordering::SeqCst), 98);

        let (loader, failures_left) = shaky(100, EIO);
        let mut batches = loader.retries(0).epochs(1).on_error(OnError::Skip { max_skipped: 9 }).host().unwrap();
        assert!(batches.epoch(0).all(|batch| batch.is_ok()));
        assert_eq!((batches.sample_errors().len(), failures_left.load(Ordering::SeqCst)), (1, 99));
    });
}

#[test]
fn exhausted_machine_resources_never_skip_a_sample() {
    exit_on_hang(|| {
        for (code, advice) in EXHAUSTED {
            // Only the larger batch has a sample that could serve as the replacement.
            for batch_size in [1, 7] {
                let (loader, _) = shaky(100, code);
                let loader = loader.retries(1).batch_size(batch_size).on_error(OnError::Skip { max_skipped: 9 });
                let mut batches = loader.epochs(1).host().unwrap();
                let error = batches.epoch(0).find_map(Result::err).unwrap();
                assert_eq!((error.kind(), error.sample(), error.os_code()), (ErrorKind::Io, Some(5), Some(code)));
                assert!(error.cause().contains(advice) && batches.sample_errors().is_empty(), "{error}");
            }
            // A different sample of the batch is damaged. The batch fails, so no sample is skipped.
            let failures_left = Arc::new(AtomicUsize::new(100));
            let source = Damaged(Shaky { numbers: NumberSource::new(14), failures_left, code });
            let loader = open(source).retries(1).on_error(OnError::Skip { max_skipped: 9 });
            let mut batches = loader.host().unwrap();
            let error = batches.epoch(0).find_map(Result::err).unwrap();
            assert_eq!((error.sample(), error.os_code()), (Some(5), Some(code)), "{error}");
            assert!(batches.sample_errors().is_empty(), "{:?}", batches.sample_errors());
        }
    });
}

#[test]
fn reads_during_opening_are_retried() {
    exit_on_hang(|| {
        let (loader, failures_left) = shaky(3, EIO);
        let ids: Vec<_> = loader.balanced().into_iter().flat_map(|b| b.unwrap().ids().collect::<Vec<_>>()).collect();
        let steady = loader_of(0).balanced().into_iter().flat_map(|b| b.unwrap().ids().collect::<Vec<_>>());
        assert!(ids.into_iter().eq(steady) && failures_left.load(Ordering::SeqCst) == 0);
        let (loader, failures_left) = shaky(100, EIO);
        let error = loader.retries(1).balanced().host().unwrap_err();
        assert_eq!((error.kind(), error.sample(), failures_left.load(Ordering::SeqCst)), (ErrorKind::Io, Some(5), 98));

        // With this subset, resuming compares only the key of sample 5.
        let state = loader_of(0).subset([5]).host().unwrap().checkpoint();
        let (loader, failures_left) = shaky(3, EIO);
        let resumed = loader.subset([5]).resume(state.clone()).host().unwrap();
        assert_eq!((resumed.stats().read_retries, failures_left.load(Ordering::SeqCst)), (3, 0));
        assert_eq!(resumed.checkpoint(), state);
    });
}

fn loader_of(failures: usize) -> Loader {
    shaky(failures, EIO).0
}

#[test]
fn permanent_errors_are_not_retried() {
    let (loader, failures_left) = shaky(100, ENOENT);
    assert!(loader.into_iter().any(|batch| batch.is_err()));
    assert_eq!(failures_left.load(Ordering::SeqCst), 99);
}

#[test]
fn excessive_retries_are_refused_when_opening() {
    for times in [1001, usize::MAX] {
        let e = shaky(0, EIO).0.retries(times).host().unwrap_err();
        let cause =
            format!("retries({times}): expected at most 1000, because their pauses take about 17 minutes per read");
        assert_eq!((e.kind(), e.cause()), (ErrorKind::Config, &*cause));
    }
    let mut batches = shaky(1, EIO).0.retries(1000).host().unwrap();
    assert!(batches.epoch(0).all(|batch| batch.is_ok()));
}
