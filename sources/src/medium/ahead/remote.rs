use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::fetcher::{Fetcher, Following};
use super::request::{ATTEMPTS, Counts, Parts, given_up, pause, repeats};
use crate::error::{Error, Result};
use crate::machine::bytes::room;
use crate::machine::cancel;
use crate::model::{Lookahead, Object, Prefetcher, Store};
use crate::stats::NetworkStats;

/// Bytes of samples that a source in a store wants to hold ahead of need. Enough for 10 Gbit/s at a
/// delay of 200 ms, and for the blocks of a windowed shuffle to be read in large requests.
pub(crate) const AHEAD: usize = 256 << 20;

/// Bytes of samples to hold ahead of need, for objects of these lengths. More than the whole set
/// would hold the same bytes twice.
pub(crate) fn ahead_of(objects: impl Iterator<Item = u64>) -> usize {
    usize::try_from(objects.fold(0, u64::saturating_add)).map_or(AHEAD, |all| all.min(AHEAD))
}

/// A store from which the samples of a dataset are read.
pub struct Remote {
    store: Arc<dyn Store>,
    followers: Mutex<Vec<Weak<Fetcher>>>,
    counts: Arc<Counts>,
}

impl Remote {
    /// Reads files of `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Remote { store, followers: Mutex::default(), counts: Arc::default() }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Fills `to` from offset `at` of `object` with the part of `sample`. Waits for the request that
    /// contains it, if there is one.
    ///
    /// # Errors
    /// With the URL, the range and the cause. Never transient: the request was repeated.
    pub(crate) fn read(&self, sample: u64, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        for follower in self.followers() {
            if follower.read(sample, at..at + to.len() as u64, to)? {
                return Ok(());
            }
        }
        self.direct(object, at, to)?;
        self.counts.used.fetch_add(to.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn followers(&self) -> Vec<Arc<Fetcher>> {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a loader fetches the part of `sample` ahead, and has not read it yet.
    #[cfg(feature = "parquet")]
    pub(crate) fn is_planned(&self, sample: u64) -> bool {
        self.followers().iter().any(|follower| follower.is_planned(sample))
    }

    /// Reads without a plan, and repeats what fails.
    ///
    /// # Errors
    /// The errors of [`read`](Remote::read).
    pub(crate) fn direct(&self, object: &Object, at: u64, to: &mut [u8]) -> Result<()> {
        if cancel::CancelToken::current().is_some() {
            // The store may go on to write after this call.
            to.copy_from_slice(&self.bytes(object, at, to.len() as u64)?);
            return Ok(());
        }
        self.attempts(object, at..at + to.len() as u64, || self.store.read(object, at, to))
    }

    /// The `len` bytes of `object` from `at` on, like [`direct`](Remote::direct).
    ///
    /// # Errors
    /// The errors of [`read`](Remote::read).
    pub fn bytes(&self, object: &Object, at: u64, len: u64) -> Result<Vec<u8>> {
        self.attempts(object, at..at + len, || {
            let (store, object) = (self.store.clone(), object.clone());
            cancel::patiently(move || {
                let mut bytes = Vec::new();
                store.read(&object, at, room(&mut bytes, len)?)?;
                Ok(bytes)
            })
        })
    }

    /// Reads `range` of `object` by `request`, and repeats it if it fails.
    fn attempts<T>(&self, object: &Object, range: Range<u64>, mut request: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
            let answer = request();
            match &answer {
                Ok(_) => _ = self.counts.bytes.fetch_add(range.end - range.start, Ordering::Relaxed),
                Err(e) if e.is_throttled() => _ = self.counts.refusals.fetch_add(1, Ordering::Relaxed),
                Err(_) => {}
            }
            match answer {
                Err(e) if e.is_transient() && attempt < ATTEMPTS => {
                    self.counts.retries.fetch_add(1, Ordering::Relaxed);
                    repeats(attempt, &e);
                    cancel::sleep(pause(attempt, range.start))?;
                    attempt += 1;
                }
                result => return result.map_err(|e| given_up(e, object, range, attempt)),
            }
        }
    }

    /// The objects below `url`.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(crate) fn list(&self, url: &str) -> Result<Vec<Object>> {
        let prefix = format!("{}/", url.trim_end_matches('/'));
        self.repeated(move |store| store.list(&prefix))
    }

    /// Like [`list`](Remote::list), but never a listing that was kept.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(crate) fn list_now(&self, url: &str) -> Result<Vec<Object>> {
        let prefix = format!("{}/", url.trim_end_matches('/'));
        self.repeated(move |store| store.list_now(&prefix))
    }

    /// Runs `request`, which asks for no bytes, and repeats it if it fails.
    ///
    /// # Errors
    /// The error of the last attempt. Never transient.
    pub fn repeated<T: Send + 'static>(
        &self,
        request: impl Fn(&dyn Store) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
            let (store, request) = (self.store.clone(), request.clone());
            let answer = cancel::patiently(move || request(&*store));
            if answer.as_ref().is_err_and(Error::is_throttled) {
                self.counts.refusals.fetch_add(1, Ordering::Relaxed);
            }
            match answer {
                Err(e) if e.is_transient() && attempt < ATTEMPTS => {
                    self.counts.retries.fetch_add(1, Ordering::Relaxed);
                    repeats(attempt, &e);
                    cancel::sleep(pause(attempt, 0))?;
                    attempt += 1;
                }
                result => return result.map_err(|e| e.settled("")),
            }
        }
    }

    /// What was asked of the store so far.
    pub(crate) fn network(&self) -> NetworkStats {
        self.counts.stats()
    }

    /// Follows `order`, if it has room.
    pub(crate) fn follow(&self, order: Lookahead, parts: Parts) -> Option<Box<dyn Prefetcher>> {
        if order.bytes() == 0 {
            return None;
        }
        let fetcher = Fetcher::new(self.store.clone(), parts, order, self.counts.clone());
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(Arc::downgrade(&fetcher));
        Some(Box::new(Following(fetcher)))
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("counts", &self.counts).finish_non_exhaustive()
    }
}
