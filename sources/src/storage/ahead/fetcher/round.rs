//! Plans a round: selects samples to prefetch, and merges them into requests.
//!
//! A round first takes samples in the order in which they are needed, up to half of the free bytes.
//! It then adds samples that are needed a little later and adjoin one of these in the same object.
//! A windowed shuffle reads all samples of a block within one window, so each block becomes one
//! request, or several of up to 4 MiB, if a window fits in the byte budget. The remaining bytes
//! stay free for the blocks of the next window. If the order has few adjacent samples, the round
//! uses the remaining bytes for the next samples of the order.

use std::ops::Range;
use std::sync::Arc;

use super::{Fetcher, Piece, State};
use crate::model::{BatchIndex, ObjectCache};
use crate::storage::ahead::pace::weight;
use crate::storage::ahead::plan::{SampleRange, adjacent_count, allowance, neighbors, pieces};

/// Maximum number of samples that a round takes in order, and of later samples that it checks for
/// adjacency.
const MAX_SAMPLES: usize = 1 << 16;
pub(super) const MAX_EMPTY: usize = 256;
/// An order reads in blocks if at least `1 / BLOCKS` of the selected samples adjoin a different
/// one.
const BLOCKS: usize = 4;

struct Round {
    free_bytes: usize,
    selected_bytes: usize,
    /// Bytes reserved for the gaps between samples.
    gap_bytes: u64,
    samples: Vec<SampleRange>,
    order_ended: bool,
}

fn len(part: &SampleRange) -> usize {
    (part.range.end - part.range.start) as usize
}

impl Fetcher {
    pub(super) fn plan(&self, state: &mut State) {
        let bytes = self.order.bytes();
        let free_bytes = bytes.saturating_sub(state.piece_bytes + state.cached_bytes.values().sum::<usize>());
        if state.closed || state.batches.is_none() || (free_bytes < bytes / 2 && !state.pieces.is_empty()) {
            return;
        }
        let max_bytes = free_bytes / 2;
        let mut round = Round { free_bytes, selected_bytes: 0, gap_bytes: 0, samples: Vec::new(), order_ended: true };
        for _ in 0..MAX_SAMPLES {
            let Some((batch, sample)) = self.next_sample(state, &mut round) else { break };
            let Some(part) = self.part(batch, sample) else { continue };
            if len(&part) > round.free_bytes
                || round.selected_bytes > 0 && round.selected_bytes + len(&part) > max_bytes
            {
                // Reads of earlier samples will free bytes for it.
                state.pending.push_front((batch, sample));
                round.order_ended = false;
                break;
            }
            self.select(state, &mut round, part);
        }
        if round.selected_bytes > 0 {
            self.select_neighbors(state, &mut round);
        }
        if round.samples.is_empty() && self.cache.is_none() && round.order_ended {
            // The order has no more samples, or none of the next `MAX_SAMPLES` can be prefetched.
            state.batches = None;
        }
        for piece in pieces(round.samples, round.gap_bytes + round.free_bytes as u64) {
            let id = state.next_id();
            for part in &piece.samples {
                let planned = state.planned_samples.entry(part.sample).or_default();
                let index = planned.partition_point(|(batch, _)| *batch <= part.batch);
                planned.insert(index, (part.batch, id));
            }
            state.piece_bytes += (piece.range.end - piece.range.start) as usize;
            state.queue.insert((piece.batch, id));
            let piece = Piece {
                object: piece.object,
                range: piece.range,
                batch: piece.batch,
                unread: piece.samples.len(),
                answer: Arc::default(),
                answered: false,
                attempts: 0,
                in_flight: 0,
                hedged: false,
            };
            state.pieces.insert(id, piece);
        }
        let State { pace, queue, pieces, .. } = state;
        if let Some(&(first_batch, _)) = queue.first() {
            let first_pieces = queue.iter().take_while(|(batch, _)| *batch == first_batch);
            pace.start_ramp(|| first_pieces.map(|(_, id)| weight(pieces[id].len())).sum());
        }
    }

    /// Adds later samples that adjoin samples of `round`, or any samples if the order does not read
    /// in blocks. Moves all other samples to `pending`.
    fn select_neighbors(&self, state: &mut State, round: &mut Round) {
        let (mut later, mut later_bytes) = (Vec::new(), 0);
        while later_bytes < round.free_bytes && later.len() < MAX_SAMPLES {
            let Some((batch, sample)) = self.next_sample(state, round) else { break };
            let Some(part) = self.part(batch, sample) else { continue };
            later_bytes += len(&part);
            later.push(part);
        }
        let is_neighbor = neighbors(&round.samples, &later);
        let mut others = Vec::new();
        for (part, is_neighbor) in later.into_iter().zip(is_neighbor) {
            if is_neighbor && len(&part) <= round.free_bytes {
                self.select(state, round, part);
            } else {
                others.push(part);
            }
        }
        let adjacent_count = adjacent_count(&round.samples);
        let has_blocks = adjacent_count > 0 && BLOCKS * adjacent_count >= round.samples.len();
        let mut others = others.into_iter().peekable();
        while !has_blocks && let Some(part) = others.next_if(|part| len(part) <= round.free_bytes) {
            self.select(state, round, part);
        }
        let skipped: Vec<_> = others.map(|part| (part.batch, part.sample)).collect();
        skipped.into_iter().rev().for_each(|sample| state.pending.push_front(sample));
    }

    fn next_sample(&self, state: &mut State, round: &mut Round) -> Option<(BatchIndex, u64)> {
        loop {
            if let Some(sample) = state.pending.pop_front() {
                return Some(sample);
            }
            if state.empty_batches.len() >= MAX_EMPTY {
                round.order_ended = false;
                return None;
            }
            let batches = state.batches.as_mut()?;
            if !self.parts.are_known(state.next_unplanned) {
                round.order_ended = false;
                return None;
            }
            let (batch, samples) = batches.next()?;
            state.next_unplanned = self.order.after(batch);
            if samples.is_empty() {
                round.order_ended = false;
                // No call of `done` would remove the entry of a batch that was completed before it
                // was planned.
                if batch >= state.reached {
                    state.empty_batches.insert(batch);
                }
            }
            state.pending.extend(samples.into_iter().map(|sample| (batch, sample)));
        }
    }

    /// Returns the byte range of a sample. Returns `None` if the sample is not prefetched, because
    /// the source excludes it, it has no bytes, or it is larger than the whole budget.
    fn part(&self, batch: BatchIndex, sample: u64) -> Option<SampleRange> {
        let (object, range): (u32, Range<u64>) = self.parts.part(sample)?;
        let part = SampleRange { batch, sample, object, range };
        (1..=self.order.bytes()).contains(&len(&part)).then_some(part)
    }

    /// Adds a sample, which must fit in the round. The bytes of a cached sample are counted but not
    /// requested.
    fn select(&self, state: &mut State, round: &mut Round, part: SampleRange) {
        let size = len(&part);
        round.free_bytes -= size;
        round.selected_bytes += size;
        let is_cached =
            |cache: &Arc<dyn ObjectCache>| cache.has(self.parts.object(part.object), part.range.start, size as u64);
        if self.cache.as_ref().is_some_and(is_cached) {
            *state.cached_bytes.entry(part.batch).or_default() += size;
            return;
        }
        // Reserve bytes for a gap, in case this sample shares a request with others.
        let gap = allowance(size).min(round.free_bytes);
        round.free_bytes -= gap;
        round.gap_bytes += gap as u64;
        round.samples.push(part);
    }
}
