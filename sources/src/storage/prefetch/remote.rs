//! [`Remote`]: reads from a store with retries, and uses prefetched bytes where possible.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::fetcher::{Fetcher, FetcherHandle};
use super::request::{Counts, MAX_ATTEMPTS, SampleRanges, final_error, log_retry, retry_pause};
use crate::error::{Error, Result};
use crate::machine::bytes::grow_to;
use crate::machine::cancel;
use crate::model::{Lookahead, Object, Prefetcher, Store};
use crate::stats::NetworkStats;

/// Maximum prefetch buffer of a source in a store, in bytes. This is enough for 10 Gbit/s with a
/// latency of 200 ms, and for reading the blocks of a windowed shuffle with large requests.
pub(crate) const MAX_PREFETCH_BYTES: usize = 256 << 20;

/// Returns the size of a dataset's prefetch buffer in bytes. `objects` yields the lengths of its
/// objects, and their sum is an upper limit.
pub(crate) fn max_prefetch_bytes(objects: impl Iterator<Item = u64>) -> usize {
    usize::try_from(objects.fold(0, u64::saturating_add)).map_or(MAX_PREFETCH_BYTES, |all| all.min(MAX_PREFETCH_BYTES))
}

/// A store with retries, prefetching, and request counters.
pub struct Remote {
    store: Arc<dyn Store>,
    /// The fetchers of all loaders that prefetch from this store.
    fetchers: Mutex<Vec<Weak<Fetcher>>>,
    counts: Arc<Counts>,
}

impl Remote {
    /// Creates a `Remote` that reads from `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Remote { store, fetchers: Mutex::default(), counts: Arc::default() }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Fills `out` with the bytes of `sample`, which start at `offset` in `object`. Waits for the
    /// request if the sample is being prefetched. Errors are never transient, because transient
    /// errors have been retried.
    pub(crate) fn read(&self, sample: u64, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        for fetcher in self.fetchers() {
            if fetcher.read(sample, None, offset..offset + out.len() as u64, out)? {
                return Ok(());
            }
        }
        self.read_direct(object, offset, out)?;
        self.counts.used_bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// If the bytes have been prefetched or are in the cache, copies them to `out` and returns
    /// true.
    #[cfg(feature = "video")]
    pub(crate) fn read_prefetched(&self, sample: u64, object: &Object, offset: u64, out: &mut [u8]) -> Result<bool> {
        for fetcher in self.fetchers() {
            if fetcher.read(sample, Some(object), offset..offset + out.len() as u64, out)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Plans batches with byte ranges that have become
    /// [known](SampleRanges::with_deferred_planning).
    #[cfg(feature = "video")]
    pub(crate) fn replan(&self) {
        self.fetchers().iter().for_each(Fetcher::replan);
    }

    /// Returns a `Remote` for the same store, with separately numbered samples.
    #[cfg(feature = "parquet")]
    pub(crate) fn separate(&self) -> Self {
        Self::new(self.store.clone())
    }

    fn fetchers(&self) -> Vec<Arc<Fetcher>> {
        let fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        fetchers.iter().filter_map(Weak::upgrade).collect()
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn is_planned(&self, sample: u64) -> bool {
        self.fetchers().iter().any(|fetcher| fetcher.is_planned(sample))
    }

    pub(crate) fn read_direct(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        if cancel::CancelToken::current().is_some() {
            // The store may still be writing after a canceled read has returned, so it gets a
            // separate buffer.
            out.copy_from_slice(&self.bytes(object, offset, out.len() as u64)?);
            return Ok(());
        }
        self.with_retries(object, offset..offset + out.len() as u64, || self.store.read(object, offset, out))
    }

    /// Reads the `len` bytes at `offset` of `object` from the store, even if they have been
    /// prefetched.
    ///
    /// # Errors
    /// If the bytes cannot be read, even with retries.
    pub fn bytes(&self, object: &Object, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.with_retries(object, offset..offset + len, || {
            let (store, object) = (self.store.clone(), object.clone());
            cancel::cancelable(move || {
                let mut bytes = Vec::new();
                store.read(&object, offset, grow_to(&mut bytes, len)?)?;
                Ok(bytes)
            })
        })
    }

    fn with_retries<T>(&self, object: &Object, range: Range<u64>, request: impl FnMut() -> Result<T>) -> Result<T> {
        self.retry(range.end - range.start, request, |e, attempts| final_error(e, object, range, attempts))
    }

    /// Sends `request`, which transfers `bytes` bytes of samples, and repeats it after transient
    /// errors until the retries are used up. `finish` completes the error of the last attempt, and
    /// gets the number of attempts.
    fn retry<T>(
        &self,
        bytes: u64,
        mut request: impl FnMut() -> Result<T>,
        finish: impl FnOnce(Error, u32) -> Error,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
            let response = request();
            match &response {
                Ok(_) => _ = self.counts.bytes.fetch_add(bytes, Ordering::Relaxed),
                Err(e) if e.is_throttled() => _ = self.counts.refusals.fetch_add(1, Ordering::Relaxed),
                Err(_) => {}
            }
            match response {
                Err(e) if e.is_transient() && attempt < MAX_ATTEMPTS => {
                    self.counts.retries.fetch_add(1, Ordering::Relaxed);
                    log_retry(attempt, &e);
                    cancel::sleep(retry_pause(attempt))?;
                    attempt += 1;
                }
                result => return result.map_err(|e| finish(e, attempt)),
            }
        }
    }

    pub(crate) fn list(&self, url: &str) -> Result<Vec<Object>> {
        let prefix = format!("{}/", url.trim_end_matches('/'));
        self.repeated(move |store| store.list(&prefix))
    }

    /// Like [`list`](Remote::list), but bypasses cached listings.
    pub(crate) fn list_uncached(&self, url: &str) -> Result<Vec<Object>> {
        let prefix = format!("{}/", url.trim_end_matches('/'));
        self.repeated(move |store| store.list_uncached(&prefix))
    }

    /// Sends `request`, which transfers no bytes of samples, and repeats it after transient errors
    /// until the retries are used up.
    ///
    /// # Errors
    /// Returns the error of the last attempt, marked as not transient.
    pub fn repeated<T: Send + 'static>(
        &self,
        request: impl Fn(&dyn Store) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let send = || {
            let (store, request) = (self.store.clone(), request.clone());
            cancel::cancelable(move || request(&*store))
        };
        self.retry(0, send, |e, _| e.settled(""))
    }

    pub(crate) fn network_stats(&self) -> NetworkStats {
        self.counts.stats()
    }

    /// Returns `None` if the byte budget of the order is 0.
    pub(crate) fn prefetcher(&self, order: Lookahead, ranges: SampleRanges) -> Option<Box<dyn Prefetcher>> {
        if order.budget_bytes() == 0 {
            return None;
        }
        let fetcher = Fetcher::new(self.store.clone(), ranges, order, self.counts.clone());
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        fetchers.retain(|fetcher| fetcher.strong_count() > 0);
        fetchers.push(Arc::downgrade(&fetcher));
        Some(Box::new(FetcherHandle(fetcher)))
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("counts", &self.counts).finish_non_exhaustive()
    }
}
