//! [`CancelToken`] cancels reads when their results are no longer needed.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, guarded};

/// Interval at which a waiting thread checks its token.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    static CURRENT: RefCell<Option<CancelToken>> = const { RefCell::new(None) };
}

/// Cancels reads of a thread when their results are no longer needed. This happens if the loader is
/// being closed, if its epoch was abandoned, or if the user canceled the opening of a dataset. Once
/// the token is set, a read from a store fails promptly, even if the store does not respond.
///
/// A loader sets a token for its own threads. To make the opening of a dataset cancelable, set a
/// token yourself:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use warpfeed_sources::{CancelToken, is_stopped, open};
///
/// let requested = Arc::new(AtomicBool::new(false)); // set by a signal, for example
/// let stop = CancelToken::new({
///     let requested = requested.clone();
///     move || requested.load(Ordering::Relaxed)
/// });
/// let opened = stop.run(|| open("s3://bucket/train"));
/// # assert!(opened.is_err() && !is_stopped());
/// ```
#[derive(Clone)]
pub struct CancelToken {
    run: u64,
    is_set: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl CancelToken {
    /// Creates a token that is set once `is_set` returns true. `is_set` is called often, and from
    /// several threads.
    pub fn new(is_set: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        CancelToken { run: 0, is_set: Arc::new(move |_| is_set()) }
    }

    /// Creates the token of run number `run`. Several runs share `is_set`, which receives this
    /// number.
    #[doc(hidden)]
    pub fn of_run(run: u64, is_set: Arc<dyn Fn(u64) -> bool + Send + Sync>) -> Self {
        CancelToken { run, is_set }
    }

    /// Returns the token of the calling thread, or `None` if the thread has no token.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns whether reads should be canceled.
    pub fn is_set(&self) -> bool {
        (self.is_set)(self.run)
    }

    /// Runs `work` on the calling thread, with this token as the thread's token.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        run_with_token(Some(self.clone()), work)
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelToken").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}

/// Returns whether the reads of the calling thread should be canceled. If the methods of a
/// [`Store`](crate::Store) block for a long time, they should call this function regularly, and
/// return any error once it returns true. Even if they do not, a loader abandons a canceled read,
/// but the reading thread lives until the method returns.
pub fn is_stopped() -> bool {
    CURRENT.with_borrow(|stop| stop.as_ref().is_some_and(CancelToken::is_set))
}

/// Runs `work` with `stop` as the thread's token, or without a token if `stop` is `None`. The token
/// may come from a different thread.
pub fn run_with_token<T>(stop: Option<CancelToken>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<CancelToken>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(stop));
    work()
}

/// Fails if the reads of the calling thread should be canceled.
pub(crate) fn check() -> Result<()> {
    if is_stopped() { Err(canceled_error()) } else { Ok(()) }
}

pub(crate) fn canceled_error() -> Error {
    Error::new(
        ErrorKind::Io,
        "the read was canceled: the loader was closed, its epoch was abandoned, or opening the dataset was canceled",
    )
}

/// Pauses the calling thread. Fails if its token is set before or during the pause.
pub(crate) fn sleep(pause: Duration) -> Result<()> {
    let end = Instant::now() + pause;
    loop {
        check()?;
        let remaining = end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(());
        }
        // Without a token, nothing can interrupt the pause.
        std::thread::sleep(if CancelToken::current().is_some() { remaining.min(POLL_INTERVAL) } else { remaining });
    }
}

/// Makes `work`, which may block for a long time, cancelable. If the calling thread has a token,
/// `work` runs on a separate thread with the same token, and is abandoned when the token is set.
pub(crate) fn cancelable<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let Some(stop) = CancelToken::current() else { return work() };
    check()?;
    let (sender, receiver) = sync_channel(1);
    let token = stop.clone();
    std::thread::Builder::new()
        .name("warpfeed-wait".to_owned())
        .spawn(move || drop(sender.send(token.run(|| guarded(work)))))
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start a thread: {e}")).transient())?;
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if stop.is_set() => return Err(canceled_error()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(canceled_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_cancel_token_belongs_to_its_thread_and_work() {
        assert!(!is_stopped());
        let (set, unset) = (CancelToken::new(|| true), CancelToken::new(|| false));
        set.run(|| {
            assert!(is_stopped() && check().is_err());
            unset.run(|| assert!(!is_stopped()));
            assert!(is_stopped());
            std::thread::spawn(|| assert!(!is_stopped())).join().unwrap();
        });
        assert!(guarded(|| set.run(|| -> Result<()> { panic!("of the test") })).is_err());
        assert!(!is_stopped() && CancelToken::current().is_none());
        let current_run = AtomicU64::new(3);
        let is_set: Arc<dyn Fn(u64) -> bool + Send + Sync> =
            Arc::new(move |run| run != current_run.load(Ordering::Relaxed));
        let tokens = [2, 3].map(|run| CancelToken::of_run(run, is_set.clone()));
        assert_eq!([tokens[0].is_set(), tokens[1].is_set()], [true, false]);
    }

    #[test]
    fn pauses_and_blocked_work_end_soon_after_a_cancel() {
        let flag = Arc::new(AtomicBool::new(false));
        let is_set = flag.clone();
        let stop = CancelToken::new(move || is_set.load(Ordering::Relaxed));
        assert_eq!(stop.run(|| cancelable(|| Ok(7))).unwrap(), 7);
        assert!(stop.run(|| cancelable(|| -> Result<()> { panic!("of the test") })).is_err());
        let started = Instant::now();
        let (ended, work_ended) = sync_channel(1);
        std::thread::scope(|scope| {
            let pause = scope.spawn(|| stop.run(|| sleep(Duration::from_secs(100))));
            let blocked = scope.spawn(|| {
                stop.run(|| {
                    cancelable(move || {
                        while !is_stopped() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        ended.send(()).map_err(|_| canceled_error())
                    })
                })
            });
            let forever = scope.spawn(|| {
                stop.run(|| {
                    cancelable(|| -> Result<()> {
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
        assert!(started.elapsed() < Duration::from_secs(60), "the sleep was not interrupted");
        assert_eq!(work_ended.recv_timeout(Duration::from_secs(60)), Ok(()), "the abandoned work sees the token");
    }
}
