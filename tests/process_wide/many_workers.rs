//! Tests that the CPU time per worker of starting and stopping a loader is bounded: with the
//! maximum number of workers, it must be less than 12 times the time with 125 workers plus 200
//! microseconds. More workers must be rejected.
#![allow(unsafe_code)] // `getrusage`

use crate::process::serial;
use crate::support::{NumberSource, exit_on_hang, loader, wait_for_threads};
use warpfeed::ErrorKind;

#[test]
fn an_unrealistic_number_of_workers_is_refused() {
    let _serial = serial();
    let cores = std::thread::available_parallelism().unwrap();
    for workers in [769, 100_000, usize::MAX] {
        let e = loader(NumberSource::new(10)).workers(workers).host().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        let expected = format!("workers({workers}): the maximum is 768; workers(0) starts {cores} on this machine");
        assert_eq!(e.cause(), expected);
    }
}

/// Returns the CPU time of this process in microseconds, which depends much less on the machine's
/// load than elapsed time.
#[cfg(target_os = "linux")]
fn core_time() -> i64 {
    // SAFETY: an all-zero `rusage` is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a `rusage` that the call may write.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) }, 0);
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec * 1_000_000 + time.tv_usec).sum()
}

/// Pool threads synchronize when they start and end. A cost per thread that grew with their number
/// would add up to seconds.
#[cfg(target_os = "linux")]
#[test]
fn the_maximum_number_of_workers_starts_and_stops_quickly() {
    let _serial = serial();
    exit_on_hang(|| {
        let each = |workers: usize| {
            let before = core_time();
            let mut batches = loader(NumberSource::new(70)).workers(workers).host().unwrap();
            assert_eq!(batches.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 70);
            drop(batches);
            wait_for_threads(0);
            (core_time() - before) as f64 / workers as f64
        };
        // The first loader of the process includes one-time costs.
        each(2);
        let (few, many) = ((0..16).map(|_| each(125)).sum::<f64>() / 16.0, each(768));
        println!("{few:.0} us for each of 125 workers, {many:.0} us for each of 768");
        assert!(many < 12.0 * few + 200.0, "{few:.0} us for each of 125 workers, {many:.0} us for each of 768");
    });
}
