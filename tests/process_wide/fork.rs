//! Tests that a forked child can drop its parent's loader, decoder and batches without disturbing
//! the parent. If the child uses the loader or the decoder, it must get an error instead of a hang.
#![cfg(unix)]
#![allow(unsafe_code)]

use crate::process::serial;
use crate::support::{self, NumberSource, exit_on_hang, loader};
use warpfeed::ErrorKind;

fn fork() -> libc::pid_t {
    // SAFETY: libc unlocks its allocator in the child. The tests check that the child does not wait
    // for any other lock of a parent's thread, and the child ends with `exit_child`.
    unsafe { libc::fork() }
}

fn exit_child(is_success: bool) -> ! {
    // SAFETY: `_exit` only ends the process.
    unsafe { libc::_exit(if is_success { 0 } else { 1 }) }
}

fn assert_success(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: `status` is an integer that the call may write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child must exit with status 0");
}

#[test]
fn using_a_loader_in_a_forked_child_fails() {
    let _serial = serial();
    exit_on_hang(|| {
        let mut batches = loader(NumberSource::new(40)).workers(2).host().unwrap();
        let mut epoch = batches.epoch(0);
        let batch = epoch.next().unwrap().unwrap();
        let ids: Vec<u64> = batch.ids().collect();
        let child = fork();
        if child == 0 {
            let is_fork_error =
                |e: warpfeed::Error| e.kind() == ErrorKind::Config && e.cause().contains("do not survive fork");
            let mut ok = epoch.next().is_some_and(|batch| batch.is_err_and(is_fork_error)) && epoch.next().is_none();
            drop(epoch);
            ok &= batches.epoch(1).next().is_some_and(|batch| batch.is_err());
            drop(batch);
            drop(batches);
            exit_child(ok)
        }
        assert_success(child);
        assert!(batch.ids().eq(ids), "the parent's batch must stay intact");
        drop(batch);
        assert!(epoch.all(|batch| batch.is_ok()), "the parent's loader must continue");
    });
}

/// Sample 3 is damaged.
struct DamagedSource(NumberSource);

impl warpfeed::source::Source for DamagedSource {
    fn len(&self) -> usize {
        self.0.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> warpfeed::Result<warpfeed::source::Sample<'a>> {
        if index == 3 {
            return warpfeed::source::Sample::new("damaged").with_field("img", b"?");
        }
        self.0.read(index, scratch)
    }
}

#[test]
fn an_epoch_that_failed_before_a_fork_ends_in_the_child() {
    let _serial = serial();
    exit_on_hang(|| {
        let loader = warpfeed::Loader::source(DamagedSource(NumberSource::new(40))).codec(support::NumberCodec);
        let mut batches = loader.augment(warpfeed::Augment::train(16)).batch_size(7).workers(2).host().unwrap();
        let mut epoch = batches.epoch(0);
        assert_eq!(epoch.next().unwrap().unwrap_err().kind(), ErrorKind::Decode);
        let child = fork();
        if child == 0 {
            exit_child(epoch.next().is_some_and(|batch| batch.is_err()) && epoch.next().is_none())
        }
        assert_success(child);
        assert!(epoch.all(|batch| batch.is_ok()), "the parent's loader must continue");
    });
}

#[test]
fn a_forked_child_leaves_the_cache_of_its_parent_intact() {
    let _serial = serial();
    exit_on_hang(|| {
        let cached = || loader(NumberSource::new(40)).workers(2).cache_decoded(1 << 20).epochs(0);
        let mut batches = cached().host().unwrap();
        let content = |batch: warpfeed::Result<warpfeed::HostBatch>| batch.unwrap().images().bytes().to_vec();
        let expected: Vec<_> = cached().cache_decoded(0).host().unwrap().epoch(0).map(content).collect();
        assert!(batches.epoch(0).map(content).eq(expected.iter().cloned()));
        let before = batches.stats().decoded_cache.unwrap();
        let child = fork();
        if child == 0 {
            let same = batches.stats().decoded_cache == Some(before);
            let refused = batches.epoch(0).next().is_some_and(|batch| batch.is_err());
            drop(batches);
            exit_child(same && refused)
        }
        assert_success(child);
        assert!(batches.epoch(0).map(content).eq(expected.iter().cloned()));
        assert_eq!(batches.stats().decoded_cache.unwrap().images, before.images);
    });
}

#[test]
fn using_a_decoder_in_a_forked_child_fails() {
    let _serial = serial();
    exit_on_hang(|| {
        let options = warpfeed::Decoder::builder().codec(support::NumberCodec).augment(warpfeed::Augment::train(16));
        let decoder = options.workers(2).host().unwrap();
        let images = || (0..5_u64).map(|number| number.to_le_bytes());
        assert_eq!(decoder.decode(images()).unwrap().valid().filter(|valid| *valid).count(), 5);
        let child = fork();
        if child == 0 {
            let result = decoder.decode(images());
            drop(decoder);
            let is_fork_error =
                |e: warpfeed::Error| e.kind() == ErrorKind::Config && e.cause().contains("do not survive fork");
            exit_child(result.is_err_and(is_fork_error))
        }
        assert_success(child);
        assert!(decoder.decode(images()).is_ok(), "the parent's decoder must continue");
    });
}

struct SlowSource(NumberSource);

impl warpfeed::source::Source for SlowSource {
    fn len(&self) -> usize {
        self.0.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> warpfeed::Result<warpfeed::source::Sample<'a>> {
        std::thread::sleep(std::time::Duration::from_millis(3));
        self.0.read(index, scratch)
    }
}

#[test]
fn a_forked_child_can_drop_a_loader_with_active_readers() {
    let _serial = serial();
    exit_on_hang(|| {
        let loader = warpfeed::Loader::source(SlowSource(NumberSource::new(400))).codec(support::NumberCodec);
        let mut batches = loader.augment(warpfeed::Augment::train(16)).batch_size(7).workers(2).host().unwrap();
        let mut epoch = batches.epoch(0);
        assert!(epoch.by_ref().take(20).all(|batch| batch.is_ok()));
        let child = fork();
        if child == 0 {
            let ok = epoch.next().is_some_and(|batch| batch.is_err());
            drop(epoch);
            drop(batches);
            exit_child(ok)
        }
        assert_success(child);
        assert!(epoch.by_ref().all(|batch| batch.is_ok()), "the parent's loader must continue");
        assert!(epoch.stats().readahead.is_some(), "the loader must have started reader threads");
    });
}
