//! Follows the order of one loader and keeps requests in flight.
//!
//! Samples are planned in rounds ([`round`]): whenever half of the bytes are free, the next samples
//! of the order become **pieces**, each one request. A piece waits in the queue until the number of
//! requests in flight allows it, so the queue empties without any reader. Its bytes are returned
//! when all its samples were read. A reader waits for pieces only, and every piece is answered:
//! with bytes, with an error after the last attempt, or by being dropped, after which the sample is
//! read directly.

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

/// Interval of the search for lost requests.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of threads for a store whose requests block.
const THREADS: usize = 128;

pub(super) struct Fetcher {
    store: Arc<dyn Store>,
    parts: Parts,
    order: Lookahead,
    /// What this machine keeps of the store.
    keep: Option<Arc<dyn ObjectCache>>,
    counts: Arc<Counts>,
    opened: Instant,
    /// Ends requests that block, once the fetcher is closed.
    stop: CancelToken,
    closed: Arc<AtomicBool>,
    state: Mutex<State>,
    /// Signals work, or that the fetcher is closed.
    work: Condvar,
}

struct State {
    closed: bool,
    /// The batches that were not planned yet; `None` while nothing is followed.
    batches: Option<Box<dyn Iterator<Item = (BatchIndex, Vec<u64>)> + Send>>,
    /// The plan begins at `from` and continues at `next`.
    from: BatchIndex,
    next: BatchIndex,
    /// The first place that no batch has reached.
    reached: BatchIndex,
    /// Samples of a batch that did not fit into the last round.
    pending: VecDeque<(BatchIndex, u64)>,
    /// The piece of each planned sample, by place.
    samples: HashMap<u64, VecDeque<(BatchIndex, u64)>>,
    pieces: HashMap<u64, Piece>,
    /// Pieces to be requested, in the order in which they are needed; and those whose time will
    /// come.
    queue: BTreeSet<(BatchIndex, u64)>,
    later: BTreeSet<(Instant, u64)>,
    /// Requests in flight by number, oldest first.
    flights: BTreeMap<u64, Flight>,
    /// Their weight.
    weight: usize,
    /// Bytes of all pieces.
    held: usize,
    /// Bytes of the planned samples that this machine keeps, by place. They bound how far the plan
    /// looks ahead, as what is kept may be dropped until then.
    kept: BTreeMap<BatchIndex, usize>,
    /// Planned batches that need nothing. They bound the plan too.
    empty: BTreeSet<BatchIndex>,
    idle: usize,
    threads: usize,
    /// Whether a request was answered before the call returned, as a store does that blocks.
    blocks: bool,
    looked: Instant,
    /// Whether a warning has said that the store does not answer. The next answer ends the outage.
    told: bool,
    pace: Pace,
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

    /// Fills `to` with `range`, the part of `sample`. Returns false if the sample was not planned.
    ///
    /// # Errors
    /// The error of the request after its last attempt.
    pub(super) fn read(self: &Arc<Self>, sample: u64, range: Range<u64>, to: &mut [u8]) -> Result<bool> {
        let taken = {
            let mut state = self.lock();
            state.take(sample).map(|(place, number)| {
                let piece = &state.pieces[&number];
                (place, number, piece.object, piece.range.start, piece.answer.clone())
            })
        };
        let Some((place, number, object, start, answer)) = taken else {
            // Samples that are kept are not planned.
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

    /// Whether `sample` is planned, and was not read yet.
    #[cfg(feature = "parquet")]
    pub(super) fn is_planned(&self, sample: u64) -> bool {
        self.lock().samples.contains_key(&sample)
    }

    /// Plans if there is room, and wakes or starts a thread if there is work.
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
                // Samples are then read directly.
                state.reset();
                drop(state);
                tracing::warn!("cannot start a thread that reads ahead, samples are read on request: {e}");
            }
        }
    }

    /// Sends requests until the fetcher is closed.
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

    /// Sends the request of a piece.
    fn send(self: &Arc<Self>, mut guard: MutexGuard<'_, State>, number: u64, hedge: bool) {
        let state = &mut *guard;
        let flight = state.number();
        let piece = state.pieces.get_mut(&number).expect("a job is a piece");
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
        // While this thread may be blocked, another one sends what is left.
        self.go_on(guard);
        // A panic drops the reply, which answers with an error.
        let fetch = || self.stop.during(|| self.store.fetch(self.parts.object(object), range, reply));
        let _ = catch_unwind(AssertUnwindSafe(fetch));
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Takes a request that is no longer in flight.
    fn land(&mut self, flight: u64) -> Option<Flight> {
        let landed = self.flights.remove(&flight)?;
        self.weight -= landed.weight;
        Some(landed)
    }

    /// Takes the first planned occurrence of `sample`. The caller gives it back.
    fn take(&mut self, sample: u64) -> Option<(BatchIndex, u64)> {
        let Some(planned) = self.samples.get_mut(&sample) else {
            // It is read directly, so it need not be planned.
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

    /// One of the piece's samples was read or dropped.
    fn give_back(&mut self, number: u64) {
        if let Some(piece) = self.pieces.get_mut(&number) {
            piece.left -= 1;
            self.release(number);
        }
    }

    /// Forgets the piece if nobody needs it and no request may still write its bytes.
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

    /// Drops the planned samples of places that `is_dropped`.
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
        // Readers still hold samples of pieces that are no longer requested.
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

    /// Whether the pace allows another request.
    fn has_room(&self) -> bool {
        self.pace.has_room(self.flights.len(), self.weight)
    }

    fn has_work(&self) -> bool {
        self.has_room() && !self.queue.is_empty() || !self.later.is_empty()
    }

    /// The piece to request now, and whether for a second time at once.
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

    /// The next time at which there may be work without a signal.
    fn wakes(&self) -> Option<Instant> {
        let later = self.later.first().map(|(at, _)| *at);
        let unhedged = |flight: &&Flight| self.pieces.get(&flight.piece).is_some_and(|piece| !piece.hedged);
        let late = self.pace.late().and_then(|late| {
            // A late request that may not be sent twice is looked at again with the lost ones.
            let begun = self.flights.values().find(unhedged)?.begun;
            (begun + late > Instant::now()).then_some(begun + late)
        });
        let lost = (!self.flights.is_empty()).then(|| self.looked + LOOK);
        [later, late, lost].into_iter().flatten().min()
    }
}

/// The fetcher of one loader.
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
        // Batches end in any order.
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
