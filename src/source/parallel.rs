use rayon::prelude::*;

use super::pool::Pool;
use super::stop::{Stop, during};
use crate::error::Result;

/// Maximum number of threads. The work mostly waits for the disk, hence more threads than cores.
const THREADS: usize = 16;

/// Calls `open` for each item, on several threads, which end before the loader's threads start.
///
/// # Errors
/// The error of the first item that fails, whatever the speed of the threads.
pub(super) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    open: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    on_threads(THREADS, items, open)
}

/// Like [`in_parallel`], on up to `threads` threads.
///
/// # Errors
/// The errors of [`in_parallel`].
pub(super) fn on_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    open: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    if items.len() < 2 {
        return items.iter().map(&open).collect();
    }
    let pool = Pool::start(rayon::ThreadPoolBuilder::new(), items.len().min(threads))?;
    let stop = Stop::current();
    let open = |item| during(stop.clone(), || open(item));
    pool.install(|| items.par_iter().map(&open).collect::<Vec<_>>()).into_iter().collect()
}
