//! Tests that a batch in page-locked memory can be uploaded asynchronously on any stream and
//! dropped immediately. The device must still receive exactly that batch.
//!
//! `WARPFEED_BATCHES=10000` runs that many batches in most tests. The test of pageable memory runs
//! at most 1000.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::device::{Probe, batches, loader, stream};
use crate::process::serial;
use crate::reference::checksum;
use warpfeed::HostBatch;
use warpfeed::cuda::cudarc::driver::CudaStream;

/// Nanoseconds of work on each stream before an upload.
const STEP_NS: u64 = 400_000;

/// Uploads `count` batches, cycling through `streams`. Each upload is queued behind a long kernel,
/// and `give` receives the batch without waiting for the upload. Returns the number of corrupted
/// batches.
fn torn(count: usize, streams: &[Arc<CudaStream>], pinned: bool, give: impl Fn(HostBatch, &Arc<CudaStream>)) -> usize {
    const BATCH: usize = 64;
    let first = &streams[0];
    let probe = Probe::new(first);
    let mut sums = first.alloc_zeros::<u64>(count).unwrap();
    first.synchronize().unwrap();
    let mut open =
        loader(BATCH * 40).batch_size(BATCH).shuffle(7).pinned(pinned).prefetch(1).workers(4).host().unwrap();
    assert_eq!(open.memory_plan().pinned_bytes > 0, pinned);
    let mut expected = Vec::new();
    for epoch in 0.. {
        for batch in open.epoch(epoch).take(count - expected.len()) {
            let batch = batch.unwrap();
            let index = expected.len();
            let stream = &streams[index % streams.len()];
            expected.push(checksum(batch.images().bytes()));
            probe.spin(stream, STEP_NS);
            let images = stream.clone_htod(batch.images().bytes()).unwrap();
            give(batch, stream);
            probe.checksum(stream, &images.as_view(), &mut sums.slice_mut(index..=index));
        }
        if expected.len() == count {
            break;
        }
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    let actual = first.clone_dtoh(&sums).unwrap();
    let torn = actual.iter().zip(&expected).filter(|(actual, expected)| actual != expected).count();
    eprintln!("{count} batches on {} streams, {torn} torn", streams.len());
    torn
}

fn streams() -> Option<[Arc<CudaStream>; 3]> {
    let stream = stream()?;
    let new_stream = || stream.context().new_stream().unwrap();
    Some([stream.clone(), new_stream(), new_stream()])
}

#[test]
fn pageable_memory_is_never_torn() {
    let _serial = serial();
    let Some(streams) = streams() else { return };
    assert_eq!(torn(batches(500).min(1000), &streams[..1], false, |batch, _| drop(batch)), 0);
}

#[test]
fn no_batch_is_torn_on_the_consumers_stream() {
    let _serial = serial();
    let Some(streams) = streams() else { return };
    assert_eq!(torn(batches(500), &streams[..1], true, |batch, _| drop(batch)), 0);
}

#[test]
fn no_batch_is_torn_on_a_stream_unknown_to_the_loader() {
    let _serial = serial();
    let Some(streams) = streams() else { return };
    assert_eq!(torn(batches(500), &streams[1..2], true, |batch, _| drop(batch)), 0);
}

#[test]
fn no_batch_is_torn_on_two_streams() {
    let _serial = serial();
    let Some(streams) = streams() else { return };
    assert_eq!(torn(batches(500), &streams[1..], true, |batch, _| drop(batch)), 0);
}

#[test]
fn no_batch_is_torn_when_a_different_thread_drops_it() {
    let _serial = serial();
    let Some(streams) = streams() else { return };
    let (send, receive) = sync_channel::<HostBatch>(1);
    let dropper = std::thread::spawn(move || {
        for (i, batch) in receive.into_iter().enumerate() {
            if i % 3 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
            drop(batch);
        }
    });
    assert_eq!(torn(batches(500), &streams[1..], true, |batch, _| send.send(batch).unwrap()), 0);
    drop(send);
    dropper.join().unwrap();
}

#[test]
fn no_batch_is_torn_when_it_is_released_on_its_stream() {
    let _serial = serial();
    let Some(streams) = streams() else { return };
    assert_eq!(torn(batches(500), &streams, true, |batch, stream| batch.release_on(stream).unwrap()), 0);
}

#[test]
fn a_batch_that_outlives_its_loader_stays_intact() {
    let _serial = serial();
    let Some([stream, ..]) = streams() else { return };
    let probe = Probe::new(&stream);
    let mut sums = stream.alloc_zeros::<u64>(1).unwrap();
    for _ in 0..50 {
        stream.memset_zeros(&mut sums).unwrap();
        let mut open = loader(256).batch_size(64).pinned(true).prefetch(1).host().unwrap();
        let batch = open.epoch(0).next().unwrap().unwrap();
        drop(open);
        let expected = checksum(batch.images().bytes());
        probe.spin(&stream, 5_000_000);
        let images = stream.clone_htod(batch.images().bytes()).unwrap();
        drop(batch);
        probe.checksum(&stream, &images.as_view(), &mut sums.slice_mut(0..1));
        assert_eq!(stream.clone_dtoh(&sums).unwrap(), [expected]);
    }
}
