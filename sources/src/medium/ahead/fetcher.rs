//! Prefetches in the order of one loader and keeps requests in flight.
//!
//! Samples are planned in rounds ([`round`]): whenever half of the byte budget is free, the next
//! samples of the order are grouped into **pieces**, each fetched with one request. A piece stays
//! queued until there is room for another request; no reader has to ask for it. Its bytes return to
//! the budget once all of its samples have been read. A reader waits only for pieces, and every
//! piece ends in one of three ways: with bytes, with an error after the last attempt, or by being
//! dropped, in which case its samples are read directly. Therefore, no reader waits forever.

mod responses;
mod round;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::pace::{Pace, weight};
use super::piece::{Flight, Outcome, Piece};
use super::request::{Counts, Parts};
use crate::error::Result;
use crate::machine::{CancelToken, cancel};
use crate::model::store::ReadCompletion;
use crate::model::{BatchIndex, Lookahead, ObjectCache, Prefetcher, Store};

/// Interval between searches for lost requests.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of fetch threads for a store whose requests block.
const THREADS: usize = 128;

pub(super) struct Fetcher {
    store: Arc<dyn Store>,
    parts: Parts,
    order: Lookahead,
    /// Local cache for objects in this store, if there is one.
    keep: Option<Arc<dyn ObjectCache>>,
    counts: Arc<Counts>,
    opened: Instant,
    /// Token that cancels blocking requests when the fetcher is closed.
    stop: CancelToken,
    closed: Arc<AtomicBool>,
    state: Mutex<State>,
    /// Notified when there is work to do or the fetcher is closed.
    work: Condvar,
}

struct State {
    closed: bool,
    /// Batches that have not been planned yet, or `None` while no order is active.
    batches: Option<Box<dyn Iterator<Item = (BatchIndex, Vec<u64>)> + Send>>,
    /// First batch of the plan.
    from: BatchIndex,
    /// First batch after the plan.
    next: BatchIndex,
    /// First batch after those passed to `start` or `done` so far.
    reached: BatchIndex,
    /// Samples that were taken from the order but did not fit into the last round.
    pending: VecDeque<(BatchIndex, u64)>,
    /// For each planned sample, the batches that need it and the pieces that contain it, ordered by
    /// batch.
    samples: HashMap<u64, VecDeque<(BatchIndex, u64)>>,
    pieces: HashMap<u64, Piece>,
    /// Pieces to request, ordered by the first batch that needs them.
    queue: BTreeSet<(BatchIndex, u64)>,
    /// Failed pieces, ordered by the time of their next attempt.
    later: BTreeSet<(Instant, u64)>,
    /// Requests in flight, by request number, oldest first.
    flights: BTreeMap<u64, Flight>,
    /// Total weight in flight.
    weight: usize,
    /// Total number of bytes of all pieces.
    held: usize,
    /// Number of cached bytes of planned samples, by batch. These bytes count against the budget,
    /// which limits how far ahead the plan looks. Otherwise the cache might evict them before they
    /// are read.
    kept: BTreeMap<BatchIndex, usize>,
    /// Planned batches without samples. Their number limits the plan as well.
    empty: BTreeSet<BatchIndex>,
    /// Number of threads that wait for work.
    idle: usize,
    /// Number of threads.
    threads: usize,
    /// Whether the store has completed a request before its `fetch` returned, as a blocking store
    /// does.
    blocks: bool,
    /// Time of the last search for lost requests.
    looked: Instant,
    /// Whether a warning has been logged that the store is not responding. Reset by the next
    /// successful response.
    told: bool,
    pace: Pace,
    /// Last number assigned to a piece or a request.
    numbers: u64,
}

impl Fetcher {
    pub(super) fn new(store: Arc<dyn Store>, parts: Parts, order: Lookahead, counts: Arc<Counts>) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            closed: false,
            batches: None,
            from: BatchIndex::default(),
            next: BatchIndex::default(),
            reached: BatchIndex::default(),
            pending: VecDeque::new(),
            samples: HashMap::new(),
            pieces: HashMap::new(),
            queue: BTreeSet::new(),
            later: BTreeSet::new(),
            flights: BTreeMap::new(),
            weight: 0,
            held: 0,
            kept: BTreeMap::new(),
            empty: BTreeSet::new(),
            idle: 0,
            threads: 0,
            blocks: false,
            looked: now,
            told: false,
            pace: Pace::new(),
            numbers: 0,
        };
        let keep = store.keep(parts.identity(), &order);
        counts.cached.fetch_or(keep.is_some(), Ordering::Relaxed);
        let (state, work) = (Mutex::new(state), Condvar::new());
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = closed.clone();
        let stop = CancelToken::new(move || is_closed.load(Ordering::Relaxed));
        Arc::new(Fetcher { store, parts, order, keep, counts, opened: now, stop, closed, state, work })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `to` with the bytes of `sample`, which are at `range` of its object. Returns false if
    /// the sample is neither planned nor cached, or if its piece was dropped.
    ///
    /// # Errors
    /// The error of the request's last attempt, or an error if the reader was cancelled.
    pub(super) fn read(self: &Arc<Self>, sample: u64, range: Range<u64>, to: &mut [u8]) -> Result<bool> {
        let taken = {
            let mut state = self.lock();
            state.take(sample).map(|(place, number)| {
                let piece = &state.pieces[&number];
                (place, number, piece.object, piece.range.start, piece.answer.clone())
            })
        };
        let Some((place, number, object, start, answer)) = taken else {
            // A cached sample has no piece.
            let kept = self.keep.as_ref().zip(self.parts.part(sample));
            let tier = kept.and_then(|(keep, (object, part))| {
                (part == range).then(|| keep.get(self.parts.object(object), range.start, to))?
            });
            if let Some(tier) = tier {
                self.counts.kept(tier, to.len());
            }
            return Ok(tier.is_some());
        };
        let outcome = answer.wait();
        let read = match outcome {
            Outcome::Bytes(bytes) => {
                to.copy_from_slice(&bytes[(range.start - start) as usize..][..to.len()]);
                self.counts.used.fetch_add(to.len() as u64, Ordering::Relaxed);
                if let Some(keep) = &self.keep {
                    keep.offer(self.parts.object(object), range.start, to, sample, self.order.after(place));
                }
                Ok(true)
            }
            Outcome::Failed(e) => Err(e),
            Outcome::Dropped => Ok(false),
            Outcome::Cancelled => Err(cancel::cancelled()),
        };
        drop(answer);
        let mut state = self.lock();
        state.give_back(number);
        self.go_on(state);
        read
    }

    /// Returns whether `sample` is planned and has not been read yet.
    #[cfg(feature = "parquet")]
    pub(super) fn is_planned(&self, sample: u64) -> bool {
        self.lock().samples.contains_key(&sample)
    }

    /// Plans a round if there is enough free budget. If there is work, wakes or starts a thread.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        self.plan(&mut state);
        if !state.has_work() {
            return;
        }
        let wanted = if state.blocks { THREADS } else { 1 };
        if state.idle > 0 || state.threads >= wanted {
            self.work.notify_one();
            return;
        }
        state.threads += 1;
        let fetcher = self.clone();
        let started = std::thread::Builder::new().name("warpfeed-fetch".to_owned()).spawn(move || fetcher.run());
        if let Err(e) = started {
            state.threads -= 1;
            if state.threads == 0 {
                // Without a prefetch thread, samples are read directly.
                state.reset();
                drop(state);
                tracing::warn!("cannot start a prefetch thread, so samples are read on demand: {e}");
            }
        }
    }

    /// The main loop of a fetch thread: sends requests until the fetcher is closed.
    fn run(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            if state.closed {
                state.threads -= 1;
                return;
            }
            self.plan(&mut state);
            let now = Instant::now();
            self.look_for_lost(&mut state, now);
            match state.job(now) {
                Some((piece, hedge)) => {
                    self.send(state, piece, hedge);
                    state = self.lock();
                }
                None => {
                    let until = state.wakes().map(|at| at.saturating_duration_since(now));
                    state.idle += 1;
                    state = match until {
                        Some(wait) => self.work.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                        None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                    };
                    state.idle -= 1;
                }
            }
        }
    }

    /// Sends a request for the piece `number`.
    fn send(self: &Arc<Self>, mut guard: MutexGuard<'_, State>, number: u64, hedge: bool) {
        let state = &mut *guard;
        let flight = state.number();
        let piece = state.pieces.get_mut(&number).expect("`job` returns only existing pieces");
        piece.flying += 1;
        piece.hedged |= hedge;
        piece.attempts += u32::from(!hedge);
        let (object, range) = (piece.object, piece.range.clone());
        let begun = Instant::now();
        let (fetcher, thread) = (self.clone(), std::thread::current().id());
        let reply =
            ReadCompletion::new(move |bytes| fetcher.answered(flight, bytes, std::thread::current().id() == thread));
        let weight = weight(range.end - range.start);
        state.flights.insert(flight, Flight { piece: number, weight, begun, cancel: reply.canceller() });
        state.weight += weight;
        state.pace.sent();
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.hedges.fetch_add(u64::from(hedge), Ordering::Relaxed);
        // This thread may block in `fetch`, so let another thread send the remaining requests.
        self.go_on(guard);
        // A panic drops the reply, which then reports an error to `answered`.
        let fetch = || self.stop.during(|| self.store.fetch(self.parts.object(object), range, reply));
        let _ = catch_unwind(AssertUnwindSafe(fetch));
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Removes a request from those in flight. Returns `None` if it has already been removed.
    fn land(&mut self, flight: u64) -> Option<Flight> {
        let landed = self.flights.remove(&flight)?;
        self.weight -= landed.weight;
        Some(landed)
    }

    /// Takes the first planned occurrence of `sample` and returns its batch and its piece. The
    /// caller must call `give_back` when it is done with the piece.
    fn take(&mut self, sample: u64) -> Option<(BatchIndex, u64)> {
        let Some(planned) = self.samples.get_mut(&sample) else {
            // The caller reads the sample directly, so remove it from the samples to plan.
            if let Some(at) = self.pending.iter().position(|(_, other)| *other == sample) {
                self.pending.remove(at);
            }
            return None;
        };
        let taken = planned.pop_front().expect("an entry is not empty");
        if planned.is_empty() {
            self.samples.remove(&sample);
        }
        Some(taken)
    }

    /// Records that one sample of the piece `number` was read or dropped.
    fn give_back(&mut self, number: u64) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.left -= 1;
            self.release(number);
        }
    }

    /// Removes the piece `number` if no reader needs it. If requests for it are in flight, cancels
    /// them first and keeps the piece until they have ended.
    fn release(&mut self, number: u64) {
        let Some(piece) = self.pieces.get(&number) else { return };
        if piece.left > 0 {
            return;
        }
        piece.answer.set(Outcome::Dropped);
        if piece.flying > 0 {
            let flights = self.flights.values().filter(|flight| flight.piece == number);
            flights.for_each(|flight| flight.cancel.cancel());
            return;
        }
        self.queue.remove(&(piece.place, number));
        self.later.retain(|(_, other)| *other != number);
        self.held -= (piece.range.end - piece.range.start) as usize;
        self.pieces.remove(&number);
    }

    /// Drops the planned samples of all batches for which `is_dropped` returns true.
    fn drop_places(&mut self, is_dropped: impl Fn(BatchIndex) -> bool) {
        self.pending.retain(|(place, _)| !is_dropped(*place));
        self.kept.retain(|place, _| !is_dropped(*place));
        self.empty.retain(|place| !is_dropped(*place));
        let mut dropped = Vec::new();
        self.samples.retain(|_, planned| {
            planned.retain(|(place, number)| {
                let drops = is_dropped(*place);
                dropped.extend(drops.then_some(*number));
                !drops
            });
            !planned.is_empty()
        });
        dropped.into_iter().for_each(|number| self.give_back(number));
    }

    /// Drops the whole plan.
    fn reset(&mut self) {
        self.batches = None;
        self.pending.clear();
        self.drop_places(|_| true);
        // The remaining pieces have waiting readers or requests in flight. They are not requested
        // again, so release their readers.
        let waiting: Vec<u64> = self.pieces.keys().copied().collect();
        for number in waiting {
            let piece = self.pieces.get_mut(&number).expect("a key of the map");
            if !piece.answered {
                piece.answered = true;
                piece.answer.set(Outcome::Dropped);
            }
        }
        self.queue.clear();
        self.later.clear();
    }

    /// Returns whether the pace allows another request.
    fn has_room(&self) -> bool {
        self.pace.has_room(self.flights.len(), self.weight)
    }

    fn has_work(&self) -> bool {
        self.has_room() && !self.queue.is_empty() || !self.later.is_empty()
    }

    /// Returns the piece to request now, and whether the request is a hedge.
    fn job(&mut self, now: Instant) -> Option<(u64, bool)> {
        while let Some(&(at, number)) = self.later.first()
            && at <= now
        {
            self.later.pop_first();
            if let Some(piece) = self.pieces.get(&number) {
                self.queue.insert((piece.place, number));
            }
        }
        if let Some(late) = self.pace.late() {
            let late = self.flights.values().take_while(|flight| now >= flight.begun + late);
            let is_open = |number: &u64| self.pieces.get(number).is_some_and(|piece| !piece.answered && !piece.hedged);
            let found = late.map(|flight| flight.piece).find(is_open);
            if let Some(number) = found
                && self.pace.hedge()
            {
                return Some((number, true));
            }
        }
        if !self.has_room() {
            return None;
        }
        self.queue.pop_first().map(|(_, number)| (number, false))
    }

    /// Returns the next time at which there may be work without a notification.
    fn wakes(&self) -> Option<Instant> {
        let later = self.later.first().map(|(at, _)| *at);
        let unhedged = |flight: &&Flight| self.pieces.get(&flight.piece).is_some_and(|piece| !piece.hedged);
        let late = self.pace.late().and_then(|late| {
            // A request that is already late but may not be hedged yet is checked again at the next
            // search for lost requests.
            let begun = self.flights.values().find(unhedged)?.begun;
            (begun + late > Instant::now()).then_some(begun + late)
        });
        let lost = (!self.flights.is_empty()).then(|| self.looked + LOOK);
        [later, late, lost].into_iter().flatten().min()
    }
}

/// The `Prefetcher` handle held by a loader. Dropping it closes the fetcher.
pub(super) struct Following(pub(super) Arc<Fetcher>);

impl Prefetcher for Following {
    fn start(&self, place: BatchIndex) {
        let fetcher = &self.0;
        let mut state = fetcher.lock();
        if state.batches.is_some() && (state.from..=state.next).contains(&place) {
            state.drop_places(|other| other < place);
        } else {
            state.reset();
            state.batches = Some(Box::new(fetcher.order.from(place)));
            state.next = place;
        }
        (state.from, state.reached) = (place, place);
        if let Some(keep) = &fetcher.keep {
            keep.start(place);
        }
        fetcher.go_on(state);
    }

    fn done(&self, place: BatchIndex) {
        let mut state = self.0.lock();
        state.drop_places(|other| other == place);
        // Batches may complete out of order.
        let after = self.0.order.after(place);
        if after > state.reached {
            state.reached = after;
            if let Some(keep) = &self.0.keep {
                keep.start(after);
            }
        }
        self.0.go_on(state);
    }

    fn stop(&self) {
        self.0.lock().reset();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
        let mut state = self.0.lock();
        state.closed = true;
        state.reset();
        drop(state);
        self.0.work.notify_all();
    }
}
