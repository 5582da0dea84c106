//! [`span()`] adds the program's own spans to the trace.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

use super::nvtx;

/// Number of open windows of all traces in this process.
static OPEN_WINDOWS: AtomicUsize = AtomicUsize::new(0);
static LISTENERS: Mutex<Vec<Weak<dyn Listener>>> = Mutex::new(Vec::new());

pub(super) trait Listener: Send + Sync {
    fn on_span_end(&self, name: &'static str, start: Instant, end: Instant);
}

/// Starts a span of your own code in the trace. The span ends when the returned guard is dropped,
/// and appears in the row of the calling thread.
///
/// The span is recorded in every trace ([`Loader::trace`](crate::Loader::trace)) in which one
/// window includes the start and the end of the span. If no window is open, a span costs one memory
/// load. With the `nvtx` feature, the span is also a range in Nsight Systems.
///
/// ```
/// let forward = warpfeed::trace::span("forward");
/// // the model runs
/// drop(forward);
/// ```
#[must_use = "the span ends when the guard is dropped"]
pub fn span(name: &'static str) -> Span {
    let start = (OPEN_WINDOWS.load(Relaxed) > 0).then(Instant::now);
    Span { name, start, _range: nvtx::range(name), not_send: PhantomData }
}

/// Guard that ends its [`span`] when it is dropped.
#[derive(Debug)]
pub struct Span {
    name: &'static str,
    start: Option<Instant>,
    _range: nvtx::Range,
    /// Makes the guard `!Send`. A span then ends on the thread on which it started, so the spans of
    /// a thread are properly nested.
    not_send: PhantomData<*const ()>,
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(start) = self.start else { return };
        let end = Instant::now();
        let listeners: Vec<_> = lock_listeners().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| listener.on_span_end(self.name, start, end));
    }
}

fn lock_listeners() -> std::sync::MutexGuard<'static, Vec<Weak<dyn Listener>>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add_listener(listener: Weak<dyn Listener>) {
    let mut listeners = lock_listeners();
    listeners.retain(|listener| listener.strong_count() > 0);
    listeners.push(listener);
}

pub(super) fn add_window() {
    OPEN_WINDOWS.fetch_add(1, Relaxed);
}

pub(super) fn remove_window() {
    OPEN_WINDOWS.fetch_sub(1, Relaxed);
}

pub(super) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static THIS: u64 = NEXT.fetch_add(1, Relaxed));
    THIS.with(|thread| *thread)
}
