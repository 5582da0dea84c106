//! [`Fetcher`] prefetches samples in the order in which a loader will read them. It keeps many
//! requests in flight.
//!
//! Samples are planned in rounds (see [`round`]). A round can start once half of the byte budget is
//! free. It groups the next samples to be read into **pieces**. Each piece is fetched with a single
//! range request (not counting retries and hedges) when [`CongestionControl`] allows. Once all
//! samples of a piece have been read, its bytes return to the budget.
//!
//! No reader waits forever, because every piece ends in one of three ways: its bytes arrive, its
//! last attempt fails, or it is dropped. The samples of a dropped piece are read directly.

mod responses;
mod round;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::congestion::{CongestionControl, weight};
use super::piece::{InFlightRequest, Outcome, Piece};
use super::request::{Counts, SampleRanges};
use crate::error::Result;
use crate::machine::{CancelToken, cancel};
use crate::model::store::ReadCompletion;
use crate::model::{BatchIndex, Lookahead, Object, ObjectCache, Prefetcher, Store};

const LOST_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of threads that send requests if the store blocks during requests.
const MAX_THREADS: usize = 128;

pub(super) struct Fetcher {
    store: Arc<dyn Store>,
    ranges: SampleRanges,
    order: Lookahead,
    cache: Option<Arc<dyn ObjectCache>>,
    counts: Arc<Counts>,
    opened_at: Instant,
    /// Cancels blocking requests when the fetcher is closed.
    cancel_token: CancelToken,
    is_closed: Arc<AtomicBool>,
    state: Mutex<State>,
    /// Notified when there is work to do or the fetcher is closed.
    work_ready: Condvar,
}

struct State {
    is_closed: bool,
    /// Batches that have not been planned yet, or `None` while prefetching is stopped or complete.
    batches: Option<Box<dyn Iterator<Item = (BatchIndex, Vec<u64>)> + Send>>,
    next_unplanned_batch: BatchIndex,
    first_unfinished_batch: BatchIndex,
    /// First batch that may have samples to prefetch. No round starts until all earlier batches are
    /// done.
    next_useful_batch: BatchIndex,
    /// Upcoming samples, and their batches, that did not fit in the last round.
    pending: VecDeque<(BatchIndex, u64)>,
    /// For each planned sample, the batches that need it and the IDs of its pieces, ordered by
    /// batch.
    planned_samples: HashMap<u64, VecDeque<(BatchIndex, u64)>>,
    pieces: HashMap<u64, Piece>,
    /// Pieces to request, ordered by the first batch that needs them.
    queue: BTreeSet<(BatchIndex, u64)>,
    /// Pieces to retry, ordered by the time of their next attempt.
    retries: BTreeSet<(Instant, u64)>,
    /// Requests in flight, by ID, oldest first.
    in_flight_requests: BTreeMap<u64, InFlightRequest>,
    weight_in_flight: usize,
    piece_bytes: usize,
    /// Total size of the planned samples that are in the cache, by batch. These bytes count against
    /// the budget. If they did not, the plan could get so far ahead that the cache would evict them
    /// before they are read.
    cached_bytes: BTreeMap<BatchIndex, usize>,
    /// Planned batches that need nothing from this fetcher, for example because all their samples
    /// come from other datasets. At most [`round::MAX_EMPTY_BATCHES`] are planned.
    empty_batches: BTreeSet<BatchIndex>,
    idle_threads: usize,
    /// Number of threads, including idle ones.
    threads: usize,
    /// Set once a request completes before `fetch` returns, which means that the store blocks.
    is_store_blocking: bool,
    last_lost_check: Instant,
    /// Whether a warning has been logged since the last successful response of the store.
    has_logged_outage: bool,
    congestion: CongestionControl,
    last_id: u64,
}

impl Fetcher {
    pub(super) fn new(store: Arc<dyn Store>, ranges: SampleRanges, order: Lookahead, counts: Arc<Counts>) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            is_closed: false,
            batches: None,
            next_unplanned_batch: BatchIndex::default(),
            first_unfinished_batch: BatchIndex::default(),
            next_useful_batch: BatchIndex::default(),
            pending: VecDeque::new(),
            planned_samples: HashMap::new(),
            pieces: HashMap::new(),
            queue: BTreeSet::new(),
            retries: BTreeSet::new(),
            in_flight_requests: BTreeMap::new(),
            weight_in_flight: 0,
            piece_bytes: 0,
            cached_bytes: BTreeMap::new(),
            empty_batches: BTreeSet::new(),
            idle_threads: 0,
            threads: 0,
            is_store_blocking: false,
            last_lost_check: now,
            has_logged_outage: false,
            congestion: CongestionControl::new(),
            last_id: 0,
        };
        let cache = store.object_cache(ranges.hash_objects(), &order);
        counts.cached.fetch_or(cache.is_some(), Ordering::Relaxed);
        let (state, work_ready) = (Mutex::new(state), Condvar::new());
        let is_closed = Arc::new(AtomicBool::new(false));
        let stop_flag = is_closed.clone();
        let cancel_token = CancelToken::new(move || stop_flag.load(Ordering::Relaxed));
        Arc::new(Fetcher {
            store,
            ranges,
            order,
            cache,
            counts,
            opened_at: now,
            cancel_token,
            is_closed,
            state,
            work_ready,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `out` with the bytes of `sample`, which are at `range` in the sample's object. Returns
    /// false if the sample is neither planned nor cached, or if its piece was dropped. Pass the
    /// sample's object as `whole_object` if `range` is known to cover the whole sample. Otherwise,
    /// the cache is searched only if [`SampleRanges`] has the same range for the sample.
    ///
    /// Fails if the last attempt to fetch the piece failed, with its error, or if the reader was
    /// canceled.
    pub(super) fn read(
        self: &Arc<Self>,
        sample: u64,
        whole_object: Option<&Object>,
        range: Range<u64>,
        out: &mut [u8],
    ) -> Result<bool> {
        let planned = {
            let mut state = self.lock();
            state.take_planned(sample).map(|(batch, id)| {
                let piece = &state.pieces[&id];
                (batch, id, piece.object, piece.range.start, piece.outcome.clone())
            })
        };
        let Some((batch, id, object, start, pending_outcome)) = planned else {
            // The sample is not in a piece, but it may be in the cache.
            let tier = self.cache.as_ref().and_then(|cache| {
                let planned_object = || {
                    let (object, planned_range) = self.ranges.object_and_range(sample)?;
                    (planned_range == range).then(|| self.ranges.object(object))
                };
                cache.get(whole_object.or_else(planned_object)?, range.start, out)
            });
            if let Some(tier) = tier {
                self.counts.record_cache_hit(tier, out.len());
            }
            return Ok(tier.is_some());
        };
        let outcome = pending_outcome.wait();
        let result = match outcome {
            Outcome::Bytes(bytes) => {
                out.copy_from_slice(&bytes[(range.start - start) as usize..][..out.len()]);
                self.counts.used_bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
                if let Some(cache) = &self.cache {
                    cache.offer(self.ranges.object(object), range.start, out, sample, self.order.next_batch(batch));
                }
                Ok(true)
            }
            Outcome::Failed(e) => Err(e),
            Outcome::Dropped => Ok(false),
            Outcome::Canceled => Err(cancel::canceled_error()),
        };
        drop(pending_outcome);
        let mut state = self.lock();
        state.release_sample(id);
        self.resume(state);
        result
    }

    /// Resumes planning after the byte ranges of more batches have become known.
    #[cfg(feature = "video")]
    pub(super) fn replan(self: &Arc<Self>) {
        self.resume(self.lock());
    }

    /// Returns whether `sample` is planned and has not been read yet.
    #[cfg(feature = "parquet")]
    pub(super) fn is_planned(&self, sample: u64) -> bool {
        self.lock().planned_samples.contains_key(&sample)
    }

    /// Plans a round if enough of the budget is free, and wakes or starts a thread if there is
    /// work.
    fn resume(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        self.plan_round(&mut state);
        if !state.has_work() {
            return;
        }
        let max_threads = if state.is_store_blocking { MAX_THREADS } else { 1 };
        if state.idle_threads > 0 || state.threads >= max_threads {
            self.work_ready.notify_one();
            return;
        }
        state.threads += 1;
        let fetcher = self.clone();
        let spawned = std::thread::Builder::new().name("warpfeed-fetch".to_owned()).spawn(move || fetcher.run());
        if let Err(e) = spawned {
            state.threads -= 1;
            if state.threads == 0 {
                // No thread can send requests, so the samples must be read directly.
                state.reset();
                drop(state);
                tracing::warn!("cannot start a prefetch thread, so samples are read on demand: {e}");
            }
        }
    }

    fn run(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                state.threads -= 1;
                return;
            }
            self.plan_round(&mut state);
            let now = Instant::now();
            self.retry_lost(&mut state, now);
            match state.next_request(now) {
                Some((piece, is_hedge)) => {
                    self.send(state, piece, is_hedge);
                    state = self.lock();
                }
                None => {
                    let timeout = state.next_wakeup().map(|wakeup| wakeup.saturating_duration_since(now));
                    state.idle_threads += 1;
                    state = match timeout {
                        Some(timeout) => {
                            self.work_ready.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
                        }
                        None => self.work_ready.wait(state).unwrap_or_else(PoisonError::into_inner),
                    };
                    state.idle_threads -= 1;
                }
            }
        }
    }

    /// Sends a request for piece `id`. A hedge duplicates a request that is already in flight.
    fn send(self: &Arc<Self>, mut guard: MutexGuard<'_, State>, id: u64, is_hedge: bool) {
        let state = &mut *guard;
        let request_id = state.next_id();
        let piece = state.pieces.get_mut(&id).expect("`next_request` returns only existing pieces");
        piece.in_flight += 1;
        piece.is_hedged |= is_hedge;
        piece.attempts += u32::from(!is_hedge);
        let (object, range, weight) = (piece.object, piece.range.clone(), weight(piece.len()));
        let sent_at = Instant::now();
        let (fetcher, thread) = (self.clone(), std::thread::current().id());
        let completion = ReadCompletion::new(move |bytes| {
            fetcher.handle_response(request_id, bytes, std::thread::current().id() == thread)
        });
        state
            .in_flight_requests
            .insert(request_id, InFlightRequest { piece: id, weight, sent_at, cancel: completion.canceler() });
        state.weight_in_flight += weight;
        state.congestion.record_request();
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.hedges.fetch_add(u64::from(is_hedge), Ordering::Relaxed);
        // This thread may block in `fetch`, so a different one must send the remaining requests.
        self.resume(guard);
        // If `fetch` panics, dropping `completion` calls `handle_response` with an error.
        let fetch = || self.cancel_token.run(|| self.store.fetch(self.ranges.object(object), range, completion));
        let _ = catch_unwind(AssertUnwindSafe(fetch));
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn remove_request(&mut self, id: u64) -> Option<InFlightRequest> {
        let removed = self.in_flight_requests.remove(&id)?;
        self.weight_in_flight -= removed.weight;
        Some(removed)
    }

    /// Removes the first occurrence of `sample` from the plan, and returns its batch and piece. The
    /// caller must call `release_sample` once it no longer needs the piece.
    fn take_planned(&mut self, sample: u64) -> Option<(BatchIndex, u64)> {
        let Some(planned) = self.planned_samples.get_mut(&sample) else {
            // The sample is not in a piece, so the caller will look in the cache or read it
            // directly.
            if let Some(index) = self.pending.iter().position(|(_, other)| *other == sample) {
                self.pending.remove(index);
            }
            return None;
        };
        let first = planned.pop_front().expect("entries are never empty");
        if planned.is_empty() {
            self.planned_samples.remove(&sample);
        }
        Some(first)
    }

    fn release_sample(&mut self, id: u64) {
        if let Some(piece) = self.pieces.get_mut(&id) {
            piece.unread_samples -= 1;
            self.release(id);
        }
    }

    /// Removes a piece if no reader needs it. If requests for the piece are in flight, cancels them
    /// and leaves the piece until `release` is called again at their end.
    fn release(&mut self, id: u64) {
        let Some(piece) = self.pieces.get(&id) else { return };
        if piece.unread_samples > 0 {
            return;
        }
        piece.outcome.set(Outcome::Dropped);
        if piece.in_flight > 0 {
            let requests = self.in_flight_requests.values().filter(|request| request.piece == id);
            requests.for_each(|request| request.cancel.cancel());
            return;
        }
        self.queue.remove(&(piece.batch, id));
        self.retries.retain(|(_, other)| *other != id);
        self.piece_bytes -= piece.len() as usize;
        self.pieces.remove(&id);
    }

    fn drop_batches(&mut self, is_dropped: impl Fn(BatchIndex) -> bool) {
        self.pending.retain(|(batch, _)| !is_dropped(*batch));
        self.cached_bytes.retain(|batch, _| !is_dropped(*batch));
        self.empty_batches.retain(|batch| !is_dropped(*batch));
        let mut dropped = Vec::new();
        self.planned_samples.retain(|_, planned| {
            planned.retain(|(batch, id)| {
                let is_dropped = is_dropped(*batch);
                dropped.extend(is_dropped.then_some(*id));
                !is_dropped
            });
            !planned.is_empty()
        });
        dropped.into_iter().for_each(|id| self.release_sample(id));
    }

    fn reset(&mut self) {
        self.batches = None;
        self.next_useful_batch = BatchIndex::default();
        self.pending.clear();
        self.drop_batches(|_| true);
        // Pieces remain only if they have requests in flight or waiting readers. Nothing will
        // request them again, so wake the readers.
        let ids: Vec<u64> = self.pieces.keys().copied().collect();
        for id in ids {
            let piece = self.pieces.get_mut(&id).expect("the ids are keys of the map");
            if !piece.is_complete {
                piece.is_complete = true;
                piece.outcome.set(Outcome::Dropped);
            }
        }
        self.queue.clear();
        self.retries.clear();
    }

    fn may_send(&self) -> bool {
        self.congestion.may_send(self.in_flight_requests.len(), self.weight_in_flight)
    }

    fn has_work(&self) -> bool {
        self.may_send() && !self.queue.is_empty() || !self.retries.is_empty()
    }

    /// Returns the piece to request now, and whether the request is a hedge.
    fn next_request(&mut self, now: Instant) -> Option<(u64, bool)> {
        while let Some(&(retry_at, id)) = self.retries.first()
            && retry_at <= now
        {
            self.retries.pop_first();
            if let Some(piece) = self.pieces.get(&id) {
                self.queue.insert((piece.batch, id));
            }
        }
        if let Some(late_threshold) = self.congestion.late_threshold() {
            let late_requests =
                self.in_flight_requests.values().take_while(|request| now >= request.sent_at + late_threshold);
            let may_hedge = |id: &u64| self.pieces.get(id).is_some_and(|piece| !piece.is_complete && !piece.is_hedged);
            let piece_id = late_requests.map(|request| request.piece).find(may_hedge);
            if let Some(id) = piece_id
                && self.congestion.try_hedge()
            {
                return Some((id, true));
            }
        }
        if !self.may_send() {
            return None;
        }
        self.queue.pop_first().map(|(_, id)| (id, false))
    }

    /// Returns the time at which an idle thread must look for work even without a notification.
    fn next_wakeup(&self) -> Option<Instant> {
        let retries = self.retries.first().map(|(retry_at, _)| *retry_at);
        let is_unhedged =
            |request: &&InFlightRequest| self.pieces.get(&request.piece).is_some_and(|piece| !piece.is_hedged);
        let late = self.congestion.late_threshold().and_then(|late_threshold| {
            // If the request is already late but must not be hedged yet, the next check for lost
            // requests finds it.
            let sent_at = self.in_flight_requests.values().find(is_unhedged)?.sent_at;
            (sent_at + late_threshold > Instant::now()).then_some(sent_at + late_threshold)
        });
        let lost = (!self.in_flight_requests.is_empty()).then(|| self.last_lost_check + LOST_CHECK_INTERVAL);
        [retries, late, lost].into_iter().flatten().min()
    }
}

/// A handle that closes the fetcher when it is dropped.
pub(super) struct FetcherHandle(pub(super) Arc<Fetcher>);

impl Prefetcher for FetcherHandle {
    fn start(&self, batch: BatchIndex) {
        let fetcher = &self.0;
        let mut state = fetcher.lock();
        if state.batches.is_some() && (state.first_unfinished_batch..=state.next_unplanned_batch).contains(&batch) {
            state.drop_batches(|other| other < batch);
        } else {
            state.reset();
            state.batches = Some(Box::new(fetcher.order.batches_from(batch)));
            state.next_unplanned_batch = batch;
        }
        state.first_unfinished_batch = batch;
        if let Some(cache) = &fetcher.cache {
            cache.advance_to(batch);
        }
        fetcher.resume(state);
    }

    fn done(&self, batch: BatchIndex) {
        let mut state = self.0.lock();
        state.drop_batches(|other| other == batch);
        state.first_unfinished_batch = self.0.order.next_batch(batch);
        if let Some(cache) = &self.0.cache {
            cache.advance_to(state.first_unfinished_batch);
        }
        self.0.resume(state);
    }

    fn stop(&self) {
        self.0.lock().reset();
    }
}

impl Drop for FetcherHandle {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
        let mut state = self.0.lock();
        state.is_closed = true;
        state.reset();
        drop(state);
        self.0.work_ready.notify_all();
    }
}
