//! Chooses the samples of a round, and makes them requests.
//!
//! Samples come in the order in which they are needed, up to half of the free bytes. Then come
//! those that are needed a little later and lie next to them in an object. A windowed shuffle needs
//! each of its blocks to the end, so a block becomes one request, if the bytes hold a window. The
//! rest of the bytes stays free for the blocks of the next window. In an order with few such
//! neighbors, the rest is filled in order.

use std::ops::Range;
use std::sync::Arc;

use super::{Fetcher, Piece, State};
use crate::medium::ahead::plan::{Wanted, allowance, in_runs, neighbors, pieces};
use crate::model::{BatchIndex, ObjectCache};

/// Maximum number of samples looked at in order, and in search of neighbors.
const ROUND: usize = 1 << 16;
/// Maximum number of planned batches that need nothing.
const EMPTY: usize = 256;
/// An order has blocks if at least this part of its samples lie next to each other.
const BLOCKS: usize = 4;

/// The samples that a round has taken.
struct Round {
    /// Bytes that are still free.
    room: usize,
    /// Bytes of the samples.
    taken: usize,
    /// Bytes reserved for gaps between samples.
    gaps: u64,
    wanted: Vec<Wanted>,
    /// Whether the order has ended.
    ended: bool,
}

fn len(part: &Wanted) -> usize {
    (part.range.end - part.range.start) as usize
}

impl Fetcher {
    /// Plans another round if half of the bytes are free.
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
            // The order ends here, or none of its samples fits.
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

    /// Takes later samples that lie next to those of `round`. The others stay in order, or fill the
    /// room.
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

    /// The next sample of the order that no round has taken.
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
                // A batch that was read before it was planned does not end again.
                if place >= state.reached {
                    state.empty.insert(place);
                }
            }
            state.pending.extend(samples.into_iter().map(|sample| (place, sample)));
        }
    }

    /// The bytes of a sample. `None` for one without any, and for one that never fits, which is read
    /// directly.
    fn part(&self, place: BatchIndex, sample: u64) -> Option<Wanted> {
        let (object, range): (u32, Range<u64>) = self.parts.part(sample)?;
        let part = Wanted { place, sample, object, range };
        (1..=self.order.bytes()).contains(&len(&part)).then_some(part)
    }

    /// Takes a sample that fits. One that this machine keeps needs no request.
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
        // Requests may also contain bytes between samples.
        let gap = allowance(size).min(round.room);
        round.room -= gap;
        round.gaps += gap as u64;
        round.wanted.push(part);
    }
}
