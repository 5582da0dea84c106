//! Runs work on several threads and returns the results in item order, so that errors do not depend
//! on timing.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::prelude::*;

use super::cancel::{CancelToken, run_with_token};
use super::pool::Pool;
use crate::error::{Error, ErrorKind, Result, guarded, reserve, try_collect};

/// Maximum number of threads. It may exceed the number of cores, because the threads mostly wait
/// for the disk.
const MAX_THREADS: usize = 16;

/// Maximum number of threads that wait for responses from a store while a dataset is opened.
pub(crate) const STORE_THREADS: usize = 128;

/// Calls `process` for each item on several threads, and returns the results in item order. If
/// calls fail, returns the error of the first failed item, regardless of timing.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    process: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    in_parallel_on(MAX_THREADS, items, process)
}

pub(crate) fn in_parallel_on<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    process: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    if items.len() < 2 {
        return try_collect(items.iter().map(&process));
    }
    let start = |threads| Pool::start(rayon::ThreadPoolBuilder::new(), threads);
    let Some(pool) = start_largest_pool(items.len().min(threads), start) else {
        return try_collect(items.iter().map(&process));
    };
    let cancel_token = CancelToken::current();
    let process = |item| run_with_token(cancel_token.clone(), || process(item));
    let mut results = Vec::new();
    reserve(&mut results, items.len())?;
    pool.install(|| items.par_iter().map(&process).collect_into_vec(&mut results));
    try_collect(results.into_iter())
}

/// Starts a pool of `threads` threads with `start`. If the system cannot spawn them, tries half as
/// many, and so on. Returns `None` if only a single thread would be left.
fn start_largest_pool<P>(mut threads: usize, start: impl Fn(usize) -> Result<P>) -> Option<P> {
    while threads > 1 {
        match start(threads) {
            Ok(pool) => return Some(pool),
            Err(_) => threads /= 2,
        }
    }
    None
}

struct Progress<R> {
    next_index: usize,
    /// Total size of the items that have been started but not yet passed to `consume`.
    size_in_flight: u64,
    has_failed: bool,
    /// Finished results that have not been passed to `consume` yet, by item index.
    results: BTreeMap<usize, Result<R>>,
}

/// Calls `process` for each item on up to `threads` threads, and calls `consume` on this thread for
/// each result, in item order. The items in flight (started but not yet taken) have a total size of
/// at most `max_bytes`. A larger item runs alone. The error is the first one in item order.
pub(crate) fn in_order<T: Sync, R: Send>(
    threads: usize,
    max_bytes: u64,
    items: &[T],
    size: impl Fn(&T) -> u64 + Sync,
    process: impl Fn(&T) -> Result<R> + Sync,
    consume: &mut dyn FnMut(R) -> Result<()>,
) -> Result<()> {
    let progress =
        Mutex::new(Progress { next_index: 0, size_in_flight: 0, has_failed: false, results: BTreeMap::new() });
    let changed = Condvar::new();
    let lock_progress = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let wait = |guard: MutexGuard<'_, Progress<R>>| drop(changed.wait(guard));
    let cancel_token = CancelToken::current();
    // Waits until `max_bytes` allows the next item to start, and returns its index. Returns `None`
    // after the last item or an error.
    let start_next = || loop {
        let mut state = lock_progress();
        let item = items.get(state.next_index).filter(|_| !state.has_failed)?;
        if state.size_in_flight == 0 || state.size_in_flight + size(item) <= max_bytes {
            state.size_in_flight += size(item);
            state.next_index += 1;
            return Some(state.next_index - 1);
        }
        wait(state);
    };
    thread::scope(|scope| {
        let run = || {
            while let Some(index) = start_next() {
                let result = guarded(|| run_with_token(cancel_token.clone(), || process(&items[index])));
                lock_progress().results.insert(index, result);
                changed.notify_all();
            }
        };
        let threads = threads.min(items.len());
        let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, run).is_ok();
        if (0..threads).filter(start).count() < threads.min(1) {
            return Err(Error::new(ErrorKind::Io, "cannot start a thread"));
        }
        for (index, item) in items.iter().enumerate() {
            let result = loop {
                let mut state = lock_progress();
                if let Some(result) = state.results.remove(&index) {
                    break result;
                }
                wait(state);
            };
            // Use `guarded`, because a panic in `consume` would leave the threads waiting forever.
            let result = guarded(|| result.and_then(&mut *consume));
            let mut state = lock_progress();
            state.size_in_flight -= size(item);
            state.has_failed = result.is_err();
            drop(state);
            changed.notify_all();
            result?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pool_starts_with_fewer_threads_if_spawning_fails() {
        let start = |max_threads| {
            move |threads| if threads <= max_threads { Ok(threads) } else { Err(Error::in_source("no thread")) }
        };
        let threads = [16, 15, 8, 7, 2, 1, 0].map(|max_threads| start_largest_pool(16, start(max_threads)));
        assert_eq!(threads, [Some(16), Some(8), Some(8), Some(4), Some(2), None, None]);
        assert_eq!(start_largest_pool(3, start(2)), None);
    }

    #[test]
    fn in_order_is_bounded_and_stops_at_an_error() {
        let items: Vec<u64> = (0..200).collect();
        for (max_bytes, fails) in [(40, None), (1, None), (100, Some(57)), (40, Some(0))] {
            let (size_started, peak, started) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
            let size = |item: &u64| 1 + item % 7;
            let process = |item: &u64| {
                let now = size_started.fetch_add(size(item), Ordering::SeqCst) + size(item);
                peak.fetch_max(now, Ordering::SeqCst);
                started.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(item * 37 % 300));
                if Some(*item) == fails { Err(Error::in_source("broken")) } else { Ok(*item) }
            };
            let mut received = Vec::new();
            let end = in_order(16, max_bytes, &items, size, process, &mut |item| {
                received.push(item);
                size_started.fetch_sub(size(&item), Ordering::SeqCst);
                Ok(())
            });
            assert_eq!(received, (0..fails.unwrap_or(200)).collect::<Vec<_>>());
            assert_eq!(end.is_err(), fails.is_some());
            // A single item may exceed the limit.
            assert!(peak.into_inner() <= max_bytes.max(7), "bound {max_bytes}");
            assert!(fails.is_none() || started.into_inner() < 200, "all items were started despite an error");
        }
        let refused = in_order(4, 9, &items, |_| 1, |item| Ok(*item), &mut |item| match item {
            5 => Err(Error::in_source("full")),
            _ => Ok(()),
        });
        assert!(refused.unwrap_err().cause().contains("full"));
        let panicked =
            in_order(4, 9, &items, |_| 1, |item| if *item == 5 { panic!("oops") } else { Ok(()) }, &mut |()| Ok(()));
        assert!(panicked.is_err());
        in_order(4, 9, &[] as &[u64], |_| 1, |item| Ok(*item), &mut |_| Ok(())).unwrap();
    }
}
