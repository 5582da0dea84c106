use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

use super::nvtx;

/// Number of open windows in this process.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static LISTENERS: Mutex<Vec<Weak<dyn Listener>>> = Mutex::new(Vec::new());

/// Receives the program's spans.
pub(super) trait Listener: Send + Sync {
    /// Receives a span of the calling thread after its end.
    fn heard(&self, name: &'static str, start: Instant, end: Instant);
}

/// Marks a span of your own code in the trace. It lasts until the guard is dropped and appears on
/// this thread's row.
///
/// Every trace ([`Loader::trace`](crate::Loader::trace)) with an open window records it. Outside of
/// windows it costs one load. With the feature `nvtx` it is also a range in Nsight Systems.
///
/// ```
/// let forward = warpfeed::trace::span("forward");
/// // the model runs
/// drop(forward);
/// ```
#[must_use = "the span ends when the guard is dropped"]
pub fn span(name: &'static str) -> Span {
    let start = (OPEN.load(Relaxed) > 0).then(Instant::now);
    Span { name, start, _range: nvtx::range(name), stays: PhantomData }
}

/// Ends its [`span`] when it is dropped.
#[derive(Debug)]
pub struct Span {
    name: &'static str,
    start: Option<Instant>,
    _range: nvtx::Range,
    /// A span begins and ends on one thread, so the spans of a thread nest.
    stays: PhantomData<*const ()>,
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(start) = self.start else { return };
        let end = Instant::now();
        // The lock is held only to collect the listeners.
        let listeners: Vec<_> = lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| listener.heard(self.name, start, end));
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Weak<dyn Listener>>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds `listener` to those that receive the program's spans.
pub(super) fn listen(listener: Weak<dyn Listener>) {
    let mut listeners = lock();
    listeners.retain(|listener| listener.strong_count() > 0);
    listeners.push(listener);
}

pub(super) fn opened() {
    OPEN.fetch_add(1, Relaxed);
}

pub(super) fn closed() {
    OPEN.fetch_sub(1, Relaxed);
}

/// Returns a number that identifies the calling thread.
pub(super) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static THIS: u64 = NEXT.fetch_add(1, Relaxed));
    THIS.with(|this| *this)
}
