//! Tests that a device loader does not disturb the program around it: its CUDA graph captures,
//! errors, current device and queued work.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::device::{Probe, loader, stream};
use crate::process::{child, serial};
use crate::reference::checksum;
use warpfeed::ErrorKind;
use warpfeed::cuda::cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use warpfeed::cuda::cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use warpfeed::cuda::internal::calls_in_progress;

const BATCH: usize = 32;
const BATCHES: usize = 24;

const MODES: [CUstreamCaptureMode; 3] = [
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

fn expected() -> Vec<u64> {
    let mut host = loader(BATCH * BATCHES).batch_size(BATCH).shuffle(3).host().unwrap();
    host.epoch(0).map(|batch| checksum(batch.unwrap().images().bytes())).collect()
}

/// Captures a copy, and calls `inside` during the capture, which must remain valid.
fn capture(stream: &Arc<CudaStream>, mode: CUstreamCaptureMode, inside: impl FnOnce()) {
    let (from, mut to) = (stream.clone_htod(&[7u8; 4096]).unwrap(), stream.alloc_zeros::<u8>(4096).unwrap());
    stream.synchronize().unwrap();
    stream.begin_capture(mode).unwrap();
    stream.memcpy_dtod(&from, &mut to).unwrap();
    inside();
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    graph.expect("the capture is valid").expect("it holds a copy").launch().unwrap();
    assert_eq!(stream.clone_dtoh(&to).unwrap(), [7u8; 4096]);
}

#[test]
fn next_fails_during_a_capture_and_does_not_disturb_it() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    // cudarc's event tracking would add events to the graph. SAFETY: every buffer of this test is
    // used on one stream.
    unsafe { stream.context().disable_event_tracking() };
    let expected = expected();
    for mode in MODES {
        let mut open = loader(BATCH * BATCHES).batch_size(BATCH).shuffle(3).prefetch(2).cuda(&stream).unwrap();
        let (mut epoch, mut seen) = (open.epoch(0), Vec::new());
        while let Some(batch) = epoch.next() {
            let batch = batch.unwrap();
            seen.push(checksum(&batch.images().download().unwrap()));
            if seen.len() % 5 == 1 && seen.len() < BATCHES {
                capture(&stream, mode, || {
                    let e = epoch.next().unwrap().unwrap_err();
                    assert_eq!(e.kind(), ErrorKind::Capturing);
                    assert!(e.to_string().contains("take the batch before the capture"), "{e}");
                    drop(batch);
                    // The loader's thread keeps polling its copies during the capture.
                    std::thread::sleep(Duration::from_millis(5));
                });
            }
        }
        assert_eq!(seen, expected, "{mode:?}");
    }
}

#[test]
fn pinned_batches_may_be_dropped_and_received_during_a_capture() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    // SAFETY: every buffer of this test is used on one stream.
    unsafe { stream.context().disable_event_tracking() };
    let expected = expected();
    for mode in MODES {
        for exact in [false, true] {
            let mut open =
                loader(BATCH * BATCHES).batch_size(BATCH).shuffle(3).prefetch(2).pinned(true).host().unwrap();
            let (mut epoch, mut seen) = (open.epoch(0), Vec::new());
            while let Some(batch) = epoch.next() {
                let batch = batch.unwrap();
                seen.push(checksum(batch.images().bytes()));
                let images = stream.clone_htod(batch.images().bytes()).unwrap();
                if seen.len() % 5 == 1 {
                    capture(&stream, mode, || {
                        if exact {
                            assert_eq!(batch.release_on(&stream).unwrap_err().kind(), ErrorKind::Capturing);
                        } else {
                            drop(batch);
                        }
                        // `cuda::stream` created this stream, so the loader recognizes it.
                        if seen.len() < BATCHES {
                            let next = epoch.next().unwrap().unwrap();
                            seen.push(checksum(next.images().bytes()));
                        }
                        std::thread::sleep(Duration::from_millis(5));
                    });
                }
                drop(images);
            }
            assert_eq!(seen, expected, "{mode:?}, exact {exact}");
        }
    }
}

/// Only this thread can end the capture, and until then no slot becomes free, so waiting for a
/// batch would hang.
#[test]
fn exhausting_the_slots_during_a_capture_fails() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    // SAFETY: every buffer of this test is used on one stream.
    unsafe { stream.context().disable_event_tracking() };
    let mut open = loader(BATCH * BATCHES).batch_size(BATCH).shuffle(3).prefetch(1).pinned(true).host().unwrap();
    let (mut epoch, mut seen) = (open.epoch(0), Vec::new());
    seen.push(checksum(epoch.next().unwrap().unwrap().images().bytes()));
    capture(&stream, MODES[0], || {
        let error = loop {
            match epoch.next().unwrap() {
                Ok(batch) => seen.push(checksum(batch.images().bytes())),
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Capturing, "{error}");
        assert!(seen.len() < BATCHES);
    });
    seen.extend(epoch.map(|batch| checksum(batch.unwrap().images().bytes())));
    assert_eq!(seen, expected());
}

#[test]
fn the_loader_does_not_report_earlier_cuda_errors() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    let last_error = DriverError(CUresult::CUDA_ERROR_INVALID_VALUE);
    stream.context().record_err::<()>(Err(last_error));
    let mut open =
        loader(BATCH * BATCHES).batch_size(BATCH).shuffle(3).cuda(&stream).expect("the error is not the loader's");
    let mut seen = 0;
    for batch in open.epoch(0) {
        let batch = batch.expect("the error is not the loader's");
        assert!(batch.images().view::<u8>().is_ok());
        seen += 1;
        if seen == 3 {
            assert_eq!(stream.context().check_err(), Err(last_error), "the loader must not clear the program's error");
            stream.context().record_err::<()>(Err(last_error));
        }
    }
    drop(open);
    assert_eq!((seen, stream.context().check_err()), (BATCHES, Err(last_error)));
}

fn current() -> Option<usize> {
    result::ctx::get_current().unwrap().map(|context| context as usize)
}

#[test]
fn the_current_device_of_a_thread_does_not_change() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    let mut places = vec![0];
    // A second GPU is a device that the loader does not use.
    let other = (CudaContext::device_count().unwrap() > 1).then(|| CudaContext::new(1).unwrap());
    places.extend(other.iter().map(|context| context.cu_ctx() as usize));
    for place in places {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: a live context, or null.
                let there = || unsafe { result::ctx::set_current(place as sys::CUcontext) }.unwrap();
                there();
                let before = current();
                let stays = |what: &str| assert_eq!(current(), before, "after {what}");
                let mut open = loader(BATCH * 4).batch_size(BATCH).cuda(&stream).unwrap();
                stays("opening");
                let mut epoch = open.epoch(0);
                let batch = epoch.next().unwrap().unwrap();
                stays("next");
                drop(batch);
                stays("dropping a batch");
                drop(epoch);
                drop(open);
                stays("dropping the loader");
                let mut open = loader(BATCH * 4).batch_size(BATCH).pinned(true).host().unwrap();
                stays("opening on the host");
                for batch in open.epoch(0) {
                    drop(batch.unwrap());
                    stays("dropping a page-locked batch");
                }
                open.epoch(1).next().unwrap().unwrap().release_on(&stream).unwrap();
                drop(open);
                stays("release_on");
                // Soon, only the loader has a handle of this stream.
                let own_stream = stream.context().new_stream().unwrap();
                there();
                let mut open = loader(BATCH * 4).batch_size(BATCH).cuda(&own_stream).unwrap();
                drop(own_stream);
                let last = open.epoch(0).next().unwrap().unwrap();
                drop(open);
                drop(last);
                stays("dropping the last handle of a stream");
                drop(warpfeed::cuda::stream(0).unwrap());
                there();
                let new_stream = warpfeed::cuda::stream(0).unwrap();
                stays("creating a stream");
                drop(new_stream);
            });
        });
    }
}

unsafe extern "C" fn wait_for(gate: *mut c_void) {
    // SAFETY: `hold` passed ownership of this handle to the function, which the driver calls once.
    let gate = unsafe { Arc::from_raw(gate.cast::<AtomicBool>().cast_const()) };
    while !gate.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn hold(stream: &Arc<CudaStream>) -> Arc<AtomicBool> {
    let gate = Arc::new(AtomicBool::new(false));
    stream.context().bind_to_thread().unwrap();
    let handle = Arc::into_raw(gate.clone()).cast_mut().cast::<c_void>();
    // SAFETY: the function and its argument have the types that the driver expects.
    let result = unsafe { sys::cuLaunchHostFunc(stream.cu_stream(), Some(wait_for), handle) };
    result.result().unwrap();
    gate
}

/// This thread also opens the gate, so the test would hang if the drop waited for the stream.
#[test]
fn dropping_a_loader_does_not_wait_for_work_of_the_program() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    let probe = Probe::new(&stream);
    for count in 1..5 {
        let mut open = loader(BATCH * BATCHES).batch_size(BATCH).prefetch(1).cuda(&stream).unwrap();
        let (mut gate, mut last) = (None, None);
        for batch in open.epoch(0).take(count) {
            last = Some(batch.unwrap());
            gate.get_or_insert_with(|| hold(&stream));
            probe.spin(&stream, 100_000);
        }
        drop(open);
        drop(last);
        gate.unwrap().store(true, Ordering::SeqCst);
        stream.synchronize().unwrap();

        let mut open = loader(BATCH * BATCHES).batch_size(BATCH).prefetch(4).pinned(true).host().unwrap();
        let (mut gate, mut uploads) = (None, Vec::new());
        for batch in open.epoch(0).take(count) {
            let batch = batch.unwrap();
            gate.get_or_insert_with(|| hold(&stream));
            uploads.push((checksum(batch.images().bytes()), stream.clone_htod(batch.images().bytes()).unwrap()));
        }
        drop(open);
        gate.unwrap().store(true, Ordering::SeqCst);
        for (expected, images) in uploads {
            assert_eq!(
                checksum(&stream.clone_dtoh(&images).unwrap()),
                expected,
                "the memory was freed while the copy was reading it"
            );
        }
    }
}

/// Threads of the loader may be inside a driver call when the program exits.
#[test]
fn a_program_may_exit_at_any_time_while_a_loader_works() {
    let _serial = serial();
    if std::env::var_os("WARPFEED_EXIT").is_some() {
        let stream = stream().expect("the parent process has a device");
        let open = || loader(BATCH * BATCHES).batch_size(BATCH).prefetch(2).cuda(&stream).unwrap();
        let dropped = open();
        let mut held_loader = open();
        let _held = held_loader.epoch(0).next().unwrap().unwrap();
        drop(dropped);
        std::process::exit(7);
    }
    let Some(_stream) = stream() else { return };
    for _ in 0..8 {
        let status = child!(a_program_may_exit_at_any_time_while_a_loader_works)
            .env("WARPFEED_EXIT", "1")
            .stdout(std::process::Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(7));
    }
}

/// A driver call in progress may delay the exit by up to a second.
#[test]
fn a_waiting_loader_has_no_driver_call_in_progress() {
    let _serial = serial();
    let Some(stream) = stream() else { return };
    let mut open = loader(BATCH * BATCHES).batch_size(BATCH).prefetch(2).cuda(&stream).unwrap();
    let ends = |when: &str| {
        let since = Instant::now();
        while calls_in_progress() > 0 {
            assert!(since.elapsed() < Duration::from_secs(60), "{when}: a driver call is still in progress");
            std::thread::yield_now();
        }
    };
    ends("before the first epoch");
    let mut epoch = open.epoch(0);
    let _held = epoch.next().unwrap().unwrap();
    ends("while all slots are full");
    epoch.for_each(|batch| drop(batch.unwrap()));
    ends("after an epoch");
}
