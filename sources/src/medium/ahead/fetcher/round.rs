//! Plans a round: chooses its samples and merges them into requests.
//!
//! A round first takes samples in the order in which they are needed, up to half of the free bytes.
//! It then adds samples that are needed a little later and are adjacent, within an object, to
//! samples that it has already taken. A windowed shuffle reads every sample of a block within one
//! window, so each block becomes one request if the byte budget is large enough for a window. The
//! remaining budget stays free for the blocks of the next window. If the order has few adjacent
//! samples, the remaining budget is filled with the next samples of the order.

use std::ops::Range;
use std::sync::Arc;

use super::{Fetcher, Piece, State};
use crate::medium::ahead::plan::{Wanted, allowance, in_runs, neighbors, pieces};
use crate::model::{BatchIndex, ObjectCache};

/// Maximum number of samples that a round takes in order, and of samples that it examines in the
/// search for adjacent ones.
const ROUND: usize = 1 << 16;
/// Maximum number of planned batches without samples.
const EMPTY: usize = 256;
/// An order is considered to read in blocks if at least `1 / BLOCKS` of the chosen samples are
/// adjacent to another chosen sample.
const BLOCKS: usize = 4;

/// The samples chosen in a round.
struct Round {
    /// Number of bytes that are still free.
    room: usize,
    /// Number of bytes of the chosen samples.
    taken: usize,
    /// Number of bytes reserved for gaps between samples.
    gaps: u64,
    wanted: Vec<Wanted>,
    /// Whether the order has ended.
    ended: bool,
}

fn len(part: &Wanted) -> usize {
    (part.range.end - part.range.start) as usize
}

impl Fetcher {
    /// Plans a new round if half of the byte budget is free.
    pub(super) fn plan(&self, state: &mut State) {
        let bytes = self.order.bytes();
        let room = bytes.saturating_sub(state.held + state.kept.values().sum::<usize>());
        if state.closed || state.batches.is_none() || (room < bytes / 2 && !state.pieces.is_empty()) {
            return;
        }
        let near = room / 2;
        let mut round = Round { room, taken: 0, gaps: 0, wanted: Vec::new(), ended: true };
        for _ in 0..ROUND {
            let Some((place, sample)) = self.next_sample(state, &mut round) else { break };
            let Some(part) = self.part(place, sample) else { continue };
            if len(&part) > round.room || round.taken > 0 && round.taken + len(&part) > near {
                state.pending.push_front((place, sample));
                break;
            }
            self.take(state, &mut round, part);
        }
        if round.taken > 0 {
            self.take_neighbors(state, &mut round);
        }
        if round.wanted.is_empty() && self.keep.is_none() && round.ended {
            // The order has ended, or none of the remaining samples fits into the budget.
            state.batches = None;
        }
        for piece in pieces(round.wanted, round.gaps + round.room as u64) {
            let number = state.number();
            for part in &piece.wanted {
                let planned = state.samples.entry(part.sample).or_default();
                let at = planned.partition_point(|(place, _)| *place <= part.place);
                planned.insert(at, (part.place, number));
            }
            state.held += (piece.range.end - piece.range.start) as usize;
            state.queue.insert((piece.place, number));
            let piece = Piece {
                object: piece.object,
                range: piece.range,
                place: piece.place,
                left: piece.wanted.len(),
                answer: Arc::default(),
                answered: false,
                attempts: 0,
                flying: 0,
                hedged: false,
            };
            state.pieces.insert(number, piece);
        }
    }

    /// Adds later samples that are adjacent to samples of `round`. If the order does not read in
    /// blocks, the other samples fill the remaining bytes. Samples that are not added return to the
    /// order.
    fn take_neighbors(&self, state: &mut State, round: &mut Round) {
        let (mut later, mut seen) = (Vec::new(), 0);
        while seen < round.room && later.len() < ROUND {
            let Some((place, sample)) = self.next_sample(state, round) else { break };
            let Some(part) = self.part(place, sample) else { continue };
            seen += len(&part);
            later.push(part);
        }
        let is_neighbor = neighbors(&round.wanted, &later);
        let mut rest = Vec::new();
        for (part, is_neighbor) in later.into_iter().zip(is_neighbor) {
            if is_neighbor && len(&part) <= round.room {
                self.take(state, round, part);
            } else {
                rest.push(part);
            }
        }
        let in_runs = in_runs(&round.wanted);
        let has_blocks = in_runs > 0 && BLOCKS * in_runs >= round.wanted.len();
        let mut rest = rest.into_iter().peekable();
        while !has_blocks && let Some(part) = rest.next_if(|part| len(part) <= round.room) {
            self.take(state, round, part);
        }
        let left: Vec<_> = rest.map(|part| (part.place, part.sample)).collect();
        left.into_iter().rev().for_each(|sample| state.pending.push_front(sample));
    }

    /// Returns the next sample of the order that no round has chosen.
    fn next_sample(&self, state: &mut State, round: &mut Round) -> Option<(BatchIndex, u64)> {
        loop {
            if let Some(sample) = state.pending.pop_front() {
                return Some(sample);
            }
            if state.empty.len() >= EMPTY {
                round.ended = false;
                return None;
            }
            let (place, samples) = state.batches.as_mut()?.next()?;
            state.next = self.order.after(place);
            if samples.is_empty() {
                round.ended = false;
                // Do not record a batch that was completed before it was planned, because no later
                // `done` would remove it.
                if place >= state.reached {
                    state.empty.insert(place);
                }
            }
            state.pending.extend(samples.into_iter().map(|sample| (place, sample)));
        }
    }

    /// Returns the byte range of a sample. Returns `None` if the sample has no bytes, or if it is
    /// larger than the whole budget and is therefore read directly.
    fn part(&self, place: BatchIndex, sample: u64) -> Option<Wanted> {
        let (object, range): (u32, Range<u64>) = self.parts.part(sample)?;
        let part = Wanted { place, sample, object, range };
        (1..=self.order.bytes()).contains(&len(&part)).then_some(part)
    }

    /// Adds a sample that fits into the round. A cached sample is counted but not requested.
    fn take(&self, state: &mut State, round: &mut Round, part: Wanted) {
        let size = len(&part);
        round.room -= size;
        round.taken += size;
        let kept =
            |keep: &Arc<dyn ObjectCache>| keep.has(self.parts.object(part.object), part.range.start, size as u64);
        if self.keep.as_ref().is_some_and(kept) {
            *state.kept.entry(part.place).or_default() += size;
            return;
        }
        // Reserve bytes for a gap next to this sample, in case the two samples share a request.
        let gap = allowance(size).min(round.room);
        round.room -= gap;
        round.gaps += gap as u64;
        round.wanted.push(part);
    }
}
