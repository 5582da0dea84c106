//! [`CancelToken`]: ends reads that nobody waits for.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, guarded};

/// Interval at which a wait looks at its stop.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

thread_local! {
    static CURRENT: RefCell<Option<CancelToken>> = const { RefCell::new(None) };
}

/// Tells the reads of a thread that nobody waits for them any more: the loader is being closed, its
/// epoch was left, or the user gave up opening it. A read from a store then ends within a moment,
/// with an error, even if the store does not answer.
///
/// A loader sets one for its own threads. Set one yourself to be able to give up opening a dataset
/// :
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use warpfeed_sources::{CancelToken, is_stopped, open};
///
/// let asked = Arc::new(AtomicBool::new(false)); // set by a signal, for example
/// let stop = CancelToken::new({
///     let asked = asked.clone();
///     move || asked.load(Ordering::Relaxed)
/// });
/// let opened = stop.during(|| open("s3://bucket/train"));
/// # assert!(opened.is_err() && !is_stopped());
/// ```
#[derive(Clone)]
pub struct CancelToken {
    run: u64,
    is_set: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl CancelToken {
    /// A stop that is set when `is_set` returns true. It is called often, on several threads.
    pub fn new(is_set: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        CancelToken { run: 0, is_set: Arc::new(move |_| is_set()) }
    }

    /// The stop of one of several runs, which share `is_set`.
    #[doc(hidden)]
    pub fn of_run(run: u64, is_set: Arc<dyn Fn(u64) -> bool + Send + Sync>) -> Self {
        CancelToken { run, is_set }
    }

    /// The stop that is set for the calling thread.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Whether reads should end.
    pub fn is_set(&self) -> bool {
        (self.is_set)(self.run)
    }

    /// Runs `work` with this stop for the reads of the calling thread.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        during(Some(self.clone()), work)
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stop").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}

/// Whether the reads of the calling thread should end. A [`Store`](crate::Store) whose
/// methods wait for long looks at it now and then, and returns any error. Otherwise the loader does
/// not wait for it, but its thread stays until it returns.
pub fn is_stopped() -> bool {
    CURRENT.with_borrow(|stop| stop.as_ref().is_some_and(CancelToken::is_set))
}

/// Runs `work` with `stop`, which may come from another thread.
pub fn during<T>(stop: Option<CancelToken>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<CancelToken>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(stop));
    work()
}

/// # Errors
/// If the reads of the calling thread should end.
pub(crate) fn check() -> Result<()> {
    if is_stopped() { Err(cancelled()) } else { Ok(()) }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Io, "the read was cancelled, because the loader is closed or its epoch was left")
}

/// Sleeps for `pause`.
///
/// # Errors
/// If the reads of the calling thread should end.
pub(crate) fn sleep(pause: Duration) -> Result<()> {
    let end = Instant::now() + pause;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // Without a stop nothing can end the pause.
        std::thread::sleep(if CancelToken::current().is_some() { left.min(SLICE) } else { left });
    }
}

/// Runs `work`, which may block for long. If the calling thread has a stop, `work` runs on a thread
/// of its own, with the same stop, and is left alone when the stop is set.
///
/// # Errors
/// The error of `work`, or that it was cancelled.
pub(crate) fn patiently<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let Some(stop) = CancelToken::current() else { return work() };
    check()?;
    let (give, given) = sync_channel(1);
    let inside = stop.clone();
    std::thread::Builder::new()
        .name("warpfeed-wait".to_owned())
        .spawn(move || drop(give.send(inside.during(|| guarded(work)))))
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start a thread: {e}")).transient())?;
    loop {
        match given.recv_timeout(SLICE) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if stop.is_set() => return Err(cancelled()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(cancelled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_stop_is_that_of_its_thread_and_ends_with_the_work_also_after_a_panic() {
        assert!(!is_stopped());
        let (set, unset) = (CancelToken::new(|| true), CancelToken::new(|| false));
        set.during(|| {
            assert!(is_stopped() && check().is_err());
            unset.during(|| assert!(!is_stopped()));
            assert!(is_stopped());
            std::thread::spawn(|| assert!(!is_stopped())).join().unwrap();
        });
        assert!(guarded(|| set.during(|| -> Result<()> { panic!("of the test") })).is_err());
        assert!(!is_stopped() && CancelToken::current().is_none());
        let wanted = Arc::new(AtomicU64::new(3));
        let of = wanted.clone();
        let run: Arc<dyn Fn(u64) -> bool + Send + Sync> = Arc::new(move |run| run != of.load(Ordering::Relaxed));
        let stops = [2, 3].map(|number| CancelToken::of_run(number, run.clone()));
        assert_eq!([stops[0].is_set(), stops[1].is_set()], [true, false]);
    }

    #[test]
    fn pauses_and_blocked_work_end_soon_after_the_stop_is_set() {
        let flag = Arc::new(AtomicBool::new(false));
        let of = flag.clone();
        let stop = CancelToken::new(move || of.load(Ordering::Relaxed));
        assert_eq!(stop.during(|| patiently(|| Ok(7))).unwrap(), 7);
        assert!(stop.during(|| patiently(|| -> Result<()> { panic!("of the test") })).is_err());
        let begun = Instant::now();
        let (told, noticed) = sync_channel(1);
        std::thread::scope(|scope| {
            let pause = scope.spawn(|| stop.during(|| sleep(Duration::from_secs(100))));
            let blocked = scope.spawn(|| {
                stop.during(|| {
                    patiently(move || {
                        while !is_stopped() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        told.send(()).map_err(|_| cancelled())
                    })
                })
            });
            let forever = scope.spawn(|| {
                stop.during(|| {
                    patiently(|| -> Result<()> {
                        loop {
                            std::thread::park()
                        }
                    })
                })
            });
            std::thread::sleep(Duration::from_millis(50));
            flag.store(true, Ordering::Relaxed);
            assert!(pause.join().unwrap().is_err() && forever.join().unwrap().is_err());
            let _ = blocked.join().unwrap();
        });
        assert!(begun.elapsed() < Duration::from_secs(60), "the pause alone is longer");
        assert_eq!(noticed.recv_timeout(Duration::from_secs(60)), Ok(()), "the work sees the stop");
    }
}
